"""Where the time of a large step and of a small one goes, by kind of kernel, and how many launches they have."""

from __future__ import annotations

import cProfile
import gzip
import io
import json
import pstats
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from bench.gpu.loaded import Loaded
from bench.gpu.plan import Part
from bench.workloads.workload import Workload
from hpd_core import EngineConfig
from hpd_core.decoding.decoder import Decoder

_RECORDS_SHARE = 2
"""Divisor of the workload for the large steps: as many as keep several cohorts busy."""

_MOST_STEPS = 8
_SMALL_VALUES, _SMALL_LENGTH = 256, 24
_NAMES = 6
"""Kernels and Python functions that are shown."""

_NEARLY_FULL = 0.97

_KINDS: Sequence[tuple[str, tuple[str, ...]]] = (
    ("copies to and from the host", ("dtoh", "htod", "device -> pa", "device -> pinned", "-> device")),
    ("copies, fills", ("memcpy", "memset", "aten::copy_", "fillfunctor", "aten::fill_")),
    ("attention", ("attend", "fmha", "flash", "attention", "softmax")),
    (
        "matrix products",
        ("gemm", "nvjet", "cutlass", "xmma", "cublas", "wgmma", "gemv", "splitk", "scaled_mm", "::mm", "::addmm"),
    ),
    ("keys and values stored", ("store", "note_kernel", "index_put")),
    ("norms, rotary, SwiGLU", ("norm", "rotary", "gated", "silu", "quantize", "triton_")),
    ("choosing tokens", ("choose", "argmax", "reduce", "topk", "sort", "::max")),
    ("indexing", ("index", "gather", "scatter", "embedding")),
    ("the rest", ("",)),
)
"""Kind -> what a kernel's name has in it, in lower case; the first that fits. Our kernels are named for what they do
(hpd_core/attention/triton.py, hpd_core/layers); those of torch.compile begin with triton_."""

_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_CALLS = ("cuda_runtime", "cuda_driver")
_LAUNCHES = ("launch", "memcpy", "memset")
"""Calls of the host that give the device something to do."""


def run_profile(loaded: Loaded, part: Part) -> Iterator[dict[str, Any]]:
    """Yield a row for the large steps in the middle of a run, and one for small ones of _SMALL_VALUES tokens."""
    config = loaded.config(part)
    workload = loaded.workload(part.workload)
    workload = workload.part(range(max(1, len(workload.records) // _RECORDS_SHARE)))
    decoder = loaded.decoder(config)
    small = loaded.values(_SMALL_VALUES, _SMALL_LENGTH)
    yield _profile(loaded, decoder, f"{part.name}, large steps", workload, config, None)
    yield _profile(loaded, decoder, f"{part.name}, small steps", small, config, _SMALL_VALUES)


def _profile(
    loaded: Loaded, decoder: Decoder, name: str, workload: Workload, config: EngineConfig, tokens: int | None
) -> dict[str, Any]:
    """Measure some steps of a run: their time without a profiler, the device's kernels, and Python's functions.

    Args:
        tokens: of the steps that are meant; None: those that feed the most.
    """

    def from_step(first: int, run: Callable[[], Any]) -> Any:
        """Call `run` after so many steps of a new run."""
        decoder.forget_prefixes()
        decoder.add(workload.prompts(loaded.model.config, config))
        walk(first)
        loaded.wait()
        found = run()
        decoder.clear()
        decoder.forget_prefixes()
        return found

    def walk(count: int) -> int:
        return sum(step(decoder) for _ in range(count) if decoder.has_work)

    def time_steps() -> tuple[int, float]:
        started = time.perf_counter()
        fed = walk(count)
        loaded.wait()
        wall = time.perf_counter() - started
        functions.runcall(walk, count)
        return fed // count, 1000 * wall / count

    decoder.add(workload.prompts(loaded.model.config, config))
    loads = []
    while decoder.has_work:
        loads.append(step(decoder))
    first, count = stretch(loads, tokens)
    functions = cProfile.Profile()
    fed, wall_ms = from_step(first, time_steps)
    out, file = Path(loaded.settings.out), name.replace(":", "-").replace(", ", "-").replace(" ", "-").replace("/", "-")
    row = kernels(from_step(first, lambda: _trace(loaded, lambda: walk(count), out / f"trace-{file}.json.gz")), count)
    loaded.say(f"{name}: {count} from step {first} of {len(loads)}, {fed:,} tokens")
    loaded.say(
        f"{row['device']}: busy {row['busy_ms']:.1f} of {wall_ms:.1f} ms, idle {1 - row['busy_ms'] / wall_ms:.0%}; "
        f"{row['kernels']:.0f} kernels and copies, {row['calls']:.0f} launches by the host"
    )
    total = sum(ms for ms, _ in row["kinds"].values()) or 1.0
    for kind, (ms, number) in row["kinds"].items():
        loaded.say(f"{kind:<32}{ms:>9.2f} ms{number:>8.0f} launches{ms / total:>8.0%}")
    for ms, number, kernel in row["names"][:_NAMES]:
        loaded.say(f"  {ms:8.2f} ms {number:6.0f}  {kernel[:90]}")
    text = io.StringIO()
    pstats.Stats(functions, stream=text).strip_dirs().sort_stats("tottime").print_stats(60)
    (out / f"host-{file}.txt").write_text(text.getvalue())
    lines = [line for line in text.getvalue().splitlines() if line.strip()]
    start = next(number for number, line in enumerate(lines) if "ncalls" in line)
    loaded.say(f"Python's functions in {count} steps, by their own seconds")
    for line in lines[start : start + _NAMES + 1]:
        loaded.say(f"  {line[:110]}")
    return {"name": name.rpartition(", ")[2], "tokens": fed, "wall_ms": wall_ms, **row}


def _trace(loaded: Loaded, run: Callable[[], object], kept: Path) -> list[dict[str, Any]]:
    """Run under torch's profiler. Return the events of its trace, which is kept as a file."""
    on_gpu = loaded.settings.device == "cuda"
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
        run()
        loaded.wait()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        text = path.read_text(errors="replace")
    kept.write_bytes(gzip.compress(text.encode(), 6))
    events: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    return events


def kernels(events: Sequence[Mapping[str, Any]], num_steps: int) -> dict[str, Any]:
    """Return what the device did in a step, on average, from the events of a Chrome trace.

    Without a GPU these are the CPU's operations, the inner ones counted again.
    """
    spans = [event for event in events if event.get("ph") == "X"]
    device = [event for event in spans if event.get("cat") in _ON_DEVICE]
    name = "GPU" if device else "the CPU's operations (a rehearsal)"
    device = device or [event for event in spans if event.get("cat") == "cpu_op"]
    names: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    kinds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    busy = last = 0.0
    for event in sorted(device, key=lambda item: float(item["ts"])):
        start, stop = float(event["ts"]), float(event["ts"]) + float(event["dur"])
        busy += max(0.0, stop - max(start, last))  # what runs side by side counts once
        last = max(last, stop)
        kind = next(kind for kind, words in _KINDS if any(word in event["name"].lower() for word in words))
        for found in (names[event["name"]], kinds[kind]):
            found[0] += event["dur"] / 1000 / num_steps
            found[1] += 1 / num_steps
    calls = Counter(event["name"] for event in spans if event.get("cat") in _CALLS)
    launches = sum(number for call, number in calls.items() if any(word in call.lower() for word in _LAUNCHES))
    return {
        "device": name,
        "busy_ms": busy / 1000 / num_steps,
        "kinds": dict(sorted(kinds.items(), key=lambda item: -item[1][0])),
        "kernels": len(device) / num_steps,
        "calls": launches / num_steps,
        "names": sorted(((ms, number, kernel) for kernel, (ms, number) in names.items()), reverse=True)[:40],
    }


def step(decoder: Decoder) -> int:
    """Take one step; return the tokens that it fed."""
    return sum(count for cohort in decoder.step().cohorts for _, count in cohort)


def stretch(loads: Sequence[int], tokens: int | None) -> tuple[int, int]:
    """Return the first of some consecutive steps, and how many: of so many tokens each, or of nearly the most.

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
