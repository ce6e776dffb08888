"""Where the time of a large step and of a small one goes, by kind of kernel; and how many launches steps have."""

from __future__ import annotations

import cProfile
import dataclasses
import gzip
import io
import json
import pstats
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from bench.gpu.kernels import Kernels
from bench.gpu.loaded import Loaded
from bench.gpu.plan import LISTINGS, Part
from bench.gpu.small_steps import make_decoder, values_of
from bench.workloads.workload import Workload
from hpd_core import EngineConfig
from hpd_core.decoding.decoder import Decoder
from hpd_core.decoding.prompt import Prompt

_RECORDS_SHARE = 2
"""Of the workload, for the large steps: as many as keep several cohorts busy."""

_MOST_STEPS = 8
_SMALL_VALUES = 256
_NAMES = 6
"""Of kernels and of Python's functions, that are shown."""

_COHORTS = (1, 4, 16)
_PROMPTS_OF_LAUNCHES = 64
_STEPS_OF_LAUNCHES = 40
"""Tokens of a value: a cohort is admitted in each of the first steps."""

_NEARLY_FULL = 0.97


def run_profile(loaded: Loaded, part: Part) -> Iterator[dict[str, Any]]:
    """A row for the large steps in the middle of a run, and one for small ones of _SMALL_VALUES tokens."""
    config = loaded.config(part)
    workload = loaded.workload(part.workload)
    workload = workload.part(range(max(1, len(workload.records) // _RECORDS_SHARE)))
    decoder = make_decoder(loaded, config)
    small = values_of(loaded, _SMALL_VALUES)
    yield _Profiled(loaded, part, decoder, "large steps", workload, config).row()
    yield _Profiled(loaded, part, decoder, "small steps", small, config, tokens=_SMALL_VALUES).row()


def run_launches(loaded: Loaded, part: Part) -> Iterator[dict[str, Any]]:
    """A row for each number of cohorts and of values a product: does a step of more cohorts launch more?"""
    config = loaded.config(part).model_copy(update={"overlap_steps": False})
    decoder = make_decoder(loaded, config)
    for num_values in (4, 16):
        workload = loaded.workload(LISTINGS, _PROMPTS_OF_LAUNCHES).with_attributes(num_values)
        workload = workload.with_values_of(_STEPS_OF_LAUNCHES)
        for cohorts in _COHORTS:
            prompts = _PROMPTS_OF_LAUNCHES // cohorts
            decoder.limit(dataclasses.replace(decoder.limits, max_prompts_per_cohort=prompts))
            tokens = _PROMPTS_OF_LAUNCHES * num_values
            name = f"{tokens:,} tokens, {cohorts} cohorts"
            row = _Profiled(loaded, part, decoder, name, workload, config, tokens=tokens, shows_table=False).row()
            loaded.say(
                f"{name}: {row['kernels']:.0f} kernels and copies, {row['of_a_layer']:.0f} a layer and "
                f"{row['outside']:.0f} outside; {row['calls']:.0f} launches by the host; {row['wall_ms']:.2f} ms"
            )
            yield row


class _Profiled:
    """Some steps of a run: their time without a profiler, the device's kernels, and Python's functions."""

    def __init__(
        self,
        loaded: Loaded,
        part: Part,
        decoder: Decoder,
        name: str,
        workload: Workload,
        config: EngineConfig,
        *,
        tokens: int | None = None,
        shows_table: bool = True,
    ) -> None:
        """`tokens`: of the steps that are meant; None: those that feed the most."""
        self._loaded, self._part, self._name, self._tokens = loaded, part, name, tokens
        self._shows_table = shows_table
        self._workload, self._config = workload, config
        self._decoder = decoder

    def row(self) -> dict[str, Any]:
        """Measures."""
        decoder = self._decoder
        decoder.add(self._prompts())
        loads = []
        while decoder.has_work:
            loads.append(_step(decoder))
        first, count = stretch(loads, self._tokens)
        fed, wall, functions = 0, 0.0, cProfile.Profile()

        def time_steps() -> None:
            nonlocal fed, wall
            started = time.perf_counter()
            fed = self._walk(count)
            self._loaded.wait()
            wall = time.perf_counter() - started
            if self._shows_table:
                functions.runcall(self._walk, count)

        self._from(first, time_steps)
        events: list[dict[str, Any]] = []
        self._from(first, lambda: events.extend(self._trace(count)))
        found = Kernels.of_trace(events, count, self._loaded.model.config.num_hidden_layers)
        wall_ms = 1000 * wall / count
        if self._shows_table:
            self._show(
                found, f"{self._name}: {count} from step {first} of {len(loads)}, {fed // count:,} tokens", wall_ms
            )
            self._show_functions(functions, count)
        return {
            "name": self._name,
            "tokens": fed // count,
            "wall_ms": wall_ms,
            "busy_ms": found.busy_ms,
            "kinds": found.kinds,
            "kernels": found.count,
            "of_a_layer": found.of_a_layer,
            "outside": found.outside,
            "calls": found.calls,
            "calls_by_name": found.calls_by_name,
            "names": found.names[:40],
        }

    def _prompts(self) -> list[Prompt]:
        return self._workload.prompts(self._loaded.model.config, self._config)

    def _walk(self, count: int) -> int:
        return sum(_step(self._decoder) for _ in range(count) if self._decoder.has_work)

    def _from(self, first: int, run: Callable[[], None]) -> None:
        """`run` behind so many steps of a new run."""
        self._decoder.forget_prefixes()
        self._decoder.add(self._prompts())
        self._walk(first)
        self._loaded.wait()
        run()
        self._decoder.clear()
        self._decoder.forget_prefixes()

    def _trace(self, count: int) -> list[dict[str, Any]]:
        on_gpu = self._loaded.settings.device == "cuda"
        with torch.profiler.profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
            self._walk(count)
            self._loaded.wait()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "trace.json")
            profiler.export_chrome_trace(str(path))
            text = path.read_text(errors="replace")
        if self._shows_table:
            kept = Path(self._loaded.settings.out) / f"trace-{self._file_name()}.json.gz"
            kept.write_bytes(gzip.compress(text.encode(), 6))
        events: list[dict[str, Any]] = json.loads(text)["traceEvents"]
        return events

    def _file_name(self) -> str:
        return f"{self._part.name}-{self._name}".replace(":", "-").replace("/", "-").replace(" ", "-")

    def _show(self, found: Kernels, title: str, wall_ms: float) -> None:
        self._loaded.say(title)
        for line in found.table(wall_ms):
            self._loaded.say(line)
        for ms, count, name in found.names[:_NAMES]:
            self._loaded.say(f"  {ms:8.2f} ms {count:6.0f}  {name[:90]}")

    def _show_functions(self, functions: cProfile.Profile, count: int) -> None:
        text = io.StringIO()
        pstats.Stats(functions, stream=text).strip_dirs().sort_stats("tottime").print_stats(60)
        Path(self._loaded.settings.out, f"host-{self._file_name()}.txt").write_text(text.getvalue())
        lines = [line for line in text.getvalue().splitlines() if line.strip()]
        start = next(number for number, line in enumerate(lines) if "ncalls" in line)
        self._loaded.say(f"Python's functions in {count} steps, by their own seconds")
        for line in lines[start : start + _NAMES + 1]:
            self._loaded.say(f"  {line[:110]}")


def _step(decoder: Decoder) -> int:
    """One step; the tokens that it fed."""
    return sum(count for cohort in decoder.step().cohorts for _, count in cohort)


def stretch(loads: Sequence[int], tokens: int | None) -> tuple[int, int]:
    """The first of some steps that follow one another, and how many: of so many tokens each, or of nearly the most.

    Args:
        loads: tokens of each step of a run.
        tokens: None: the middle one of those stretches that feed nearly the most, so that prompts come and go in it.
    """
    if tokens is not None:
        first = list(loads).index(tokens)
        count = next((n for n, load in enumerate(loads[first:]) if load != tokens), len(loads) - first)
        # The first one may have been prepared beside other work.
        return (first + 1, min(_MOST_STEPS, count - 1)) if count > 1 else (first, 1)
    count = max(1, min(_MOST_STEPS, len(loads) // 4))
    sums = [sum(loads[start : start + count]) for start in range(len(loads) - count + 1)]
    fullest = [start for start, fed in enumerate(sums) if fed >= _NEARLY_FULL * max(sums)]
    return fullest[len(fullest) // 2], count
