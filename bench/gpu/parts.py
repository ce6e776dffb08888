"""Measurements of a model, one function for each kind of part. Each returns rows for results.jsonl."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from bench.gpu import plan
from bench.gpu.loaded import Loaded
from bench.gpu.plan import Part
from bench.gpu.profile import run_profile, step
from bench.peak_memory import measure
from bench.rivals.generate import run_generate
from bench.speed.ceilings import Floor, StepWork, best_shape, rows_of_large_steps, run_dense, seconds_of
from bench.speed.contenders import TREE, EngineRuns, TimedRun, check_lengths
from bench.speed.rounds import PREFIX_KNOWN, Ask, engine_asker
from hpd_core.models import description, steering

Row = dict[str, Any]

_WARM_UP_SHARE = 4
"""The engine decodes a quarter of the workload before it counts: by then all is compiled and has its memory."""

_GENERATE_SHARE = 4
"""generate, the slowest, gets a quarter of the records."""

_GENERATE_BATCH = 128
_WORDS_TO_WARM_UP = 6

_DENSE_SHAPES = ((16, 512), (32, 256), (64, 128), (32, 512), (64, 256), (8, 512))
"""(rows, length): those of the ceiling's batches that have come out best on large GPUs."""

_SINGLE_RECORDS = 20

SIZES = (1, 16, 64, 256, 512)
"""Tokens of small steps. The listings have 16 attributes: 512 are 32 products."""

_STEPS = 24
"""Tokens of each value in small steps, and so steps of as many tokens each."""


def run_part(loaded: Loaded, part: Part) -> Iterator[Row]:
    """Yield the rows of one part of a model, each when it is found."""
    shared = {
        "shape": loaded.shape,
        "kind": part.kind,
        "workload": part.workload,
        "options": list(part.options),
        "quantization": part.quantization,
        "device": description.device_name(loaded.device),
        **loaded.size,
    }
    for row in _KINDS[part.kind](loaded, part):
        yield shared | row


def _tree(loaded: Loaded, part: Part) -> list[Row]:
    workload = loaded.workload(part.workload)
    few = workload.part(range(max(1, len(workload.records) // _WARM_UP_SHARE)))
    runs = EngineRuns(loaded.model, workload, loaded.config(part), warm_up=few)
    found: list[TimedRun] = []
    whole, peak = measure(lambda: seconds_of(lambda: found.extend(runs() for _ in range(part.rounds))), loaded.device)
    run = sorted(found, key=lambda item: item.seconds)[(len(found) - 1) // 2]
    assert run.work is not None
    tokens = [count for _, count in run.steps]
    loaded.large_steps[part.workload, part.options] = run.work, rows_of_large_steps(tokens)
    row = timed([item.seconds for item in found], len(workload.records)) | {
        "tokens": run.work.num_tokens,
        "logits": run.work.num_logits,
        "flop": loaded.flop(run.work),
        "seconds_before": whole - sum(item.seconds for item in found),
        "code": dict(run.code or {}),
        "steps": [[round(1000 * seconds, 3), count] for seconds, count in run.steps],
        **kinds_of_steps(run.steps),
        **({"note": run.note} if run.note else {}),
        **({"peak_bytes": peak} if peak is not None else {}),
    }
    loaded.say(f"{_rate(row)}; {_steps(row)}; {row['seconds_before']:.0f} s to compile and warm up; {row['code']}")
    return [row]


def kinds_of_steps(steps: Sequence[tuple[float, int]]) -> Row:
    """Return how many, median tokens and milliseconds, of the large steps (half of the largest one's tokens, or more)
    and of the small ones."""
    least = max(tokens for _, tokens in steps) / 2
    found: Row = {}
    for name, kind in (
        ("large", [each for each in steps if each[1] >= least]),
        ("small", [each for each in steps if each[1] < least]),
    ):
        if kind:
            found[f"{name}_steps"] = {
                "count": len(kind),
                "tokens": int(statistics.median(tokens for _, tokens in kind)),
                "ms": 1000 * statistics.median(seconds for seconds, _ in kind),
                "seconds": sum(seconds for seconds, _ in kind),
            }
    return found


def _work_of_tree(loaded: Loaded, part: Part) -> tuple[StepWork, int]:
    """Return what tree forwards of this workload, and the rows of its large steps; run it if its part has not."""
    key = part.workload, part.options
    if key not in loaded.large_steps:
        run = EngineRuns(loaded.model, loaded.workload(part.workload), loaded.config(part)).once()
        assert run.work is not None
        loaded.large_steps[key] = run.work, rows_of_large_steps([tokens for _, tokens in run.steps])
    return loaded.large_steps[key]


def _floor(loaded: Loaded, part: Part) -> list[Row]:
    work, rows = _work_of_tree(loaded, part)
    floor = Floor(loaded.model, rows)
    floor.run(
        StepWork(min(rows, work.num_tokens), max(1, min(rows, work.num_tokens) * work.num_logits // work.num_tokens))
    )
    seconds = [seconds_of(lambda: floor.run(work)) for _ in range(part.rounds)]
    return [_yardstick(loaded, part, work, seconds, rows=rows, note=f"products of {rows:,} rows, as large steps have")]


def _ceiling(loaded: Loaded, part: Part) -> list[Row]:
    work, _ = _work_of_tree(loaded, part)
    attention = steering.own_attentions(loaded.model)[0]
    with steering.own_attention(loaded.model, attention):
        _, shape = best_shape(loaded.model, work, _DENSE_SHAPES)
        seconds = [seconds_of(partial(run_dense, loaded.model, work, shape)) for _ in range(part.rounds)]
    note = f"dense batches of {shape[0]} x {shape[1]}, {attention}"
    return [_yardstick(loaded, part, work, seconds, note=note)]


def _yardstick(loaded: Loaded, part: Part, work: StepWork, seconds: list[float], **facts: Any) -> Row:
    row = timed(seconds, len(loaded.workload(part.workload).records)) | {
        "tokens": work.num_tokens,
        "logits": work.num_logits,
        "flop": loaded.flop(work),
        **facts,
    }
    loaded.say(f"{_rate(row)}; {facts['note']}")
    return row


def _generate(loaded: Loaded, part: Part) -> list[Row]:
    workload = loaded.workload(part.workload)
    workload = workload.part(range(max(1, len(workload.records) // _GENERATE_SHARE)))
    forced = workload.forced(loaded.model.config, loaded.config(part))
    brief = [dataclasses.replace(record, answer_length=_WORDS_TO_WARM_UP) for record in forced[:_GENERATE_BATCH]]
    seconds = []
    with steering.own_attention(loaded.model):
        run_generate(loaded.model, brief, _GENERATE_BATCH)
        for _ in range(part.rounds):
            started = time.perf_counter()
            answers = run_generate(loaded.model, forced, _GENERATE_BATCH)
            seconds.append(time.perf_counter() - started)
            check_lengths(answers, forced)
    row = timed(seconds, len(forced)) | {"note": f"{len(forced)} records, batches of {_GENERATE_BATCH}"}
    loaded.say(f"{_rate(row)}; {row['note']}")
    return [row]


def _single(loaded: Loaded, part: Part) -> Iterator[Row]:
    workload = loaded.workload("single" if part.workload == plan.LISTINGS else part.workload, _SINGLE_RECORDS)
    config = loaded.config(part)
    asks: Mapping[str, Ask] = {
        TREE: engine_asker(loaded.model, workload, config),
        PREFIX_KNOWN: engine_asker(loaded.model, workload, config, is_prefix_known=True),
    }
    for name, ask in asks.items():
        ask(0)
        waits = [ask(number) for _ in range(part.rounds) for number in range(len(workload.records))]
        seconds = sorted(wait.seconds for wait in waits)
        row = {
            "name": name,
            "median_ms": 1000 * statistics.median(seconds),
            "p90_ms": 1000 * seconds[(9 * len(seconds)) // 10],
            "steps_of_one": statistics.median(wait.num_steps or 0 for wait in waits),
        }
        loaded.say(
            f"one product, {name}: {row['median_ms']:.1f} ms (p90 {row['p90_ms']:.1f}), {row['steps_of_one']:.0f} steps"
        )
        yield row


def _small_steps(loaded: Loaded, part: Part) -> Iterator[Row]:
    """Yield a row for each of SIZES: the median milliseconds of a step that decodes so many tokens.

    The tail of a run, and one product alone, are made of such steps. One at a time: neither the host nor the device has
    anything else to do meanwhile, as at the end of a run.
    """
    config = loaded.config(part).model_copy(update={"overlap_steps": False, "max_prompts_per_cohort": 128})
    decoder = loaded.decoder(config)
    for size in SIZES:
        steps: list[tuple[float, int]] = []
        for _ in range(2):  # the first time compiles
            steps.clear()
            decoder.add(loaded.values(size, _STEPS).prompts(loaded.model.config, config))
            while decoder.has_work:
                started = time.perf_counter()
                tokens = step(decoder)
                steps.append((time.perf_counter() - started, tokens))
        ms = 1000 * statistics.median(seconds for seconds, tokens in steps if tokens == size)
        loaded.say(f"a step of {size} tokens: {ms:.2f} ms")
        yield {"name": f"{size} tokens", "tokens": size, "ms": ms}


def timed(seconds: Sequence[float], num_records: int) -> Row:
    """Return what every row with products a second has."""
    median = statistics.median(seconds)
    return {
        "seconds": median,
        "all_seconds": list(seconds),
        "records": num_records,
        "products_per_second": num_records / median,
    }


def _rate(row: Row) -> str:
    text = f"{row['products_per_second']:.1f} products/s, {row['seconds']:.2f} s"
    return text + (f", {row['flop'] / row['seconds'] / 1e12:.0f} TFLOP/s" if "flop" in row else "")


def _steps(row: Row) -> str:
    return ", ".join(
        f"{row[f'{kind}_steps']['count']} {kind} steps of {row[f'{kind}_steps']['tokens']:,} tokens and "
        f"{row[f'{kind}_steps']['ms']:.1f} ms"
        for kind in ("large", "small")
        if f"{kind}_steps" in row
    )


_KINDS: Mapping[str, Callable[[Loaded, Part], Iterable[Row]]] = {
    plan.TREE: _tree,
    plan.FLOOR: _floor,
    plan.CEILING: _ceiling,
    plan.GENERATE: _generate,
    plan.SMALL_STEPS: _small_steps,
    plan.SINGLE: _single,
    plan.PROFILE: run_profile,
}
