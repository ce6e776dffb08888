"""The parts that need no model: whether tests/gpu pass on the card, and what the card does at best."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from bench.gpu.plan import EXACT, GEMM, GpuSettings, PartError
from hpd_core.layers import fp8

_ROOT = Path(__file__).resolve().parents[2]
_MOST_PROCESSES = 8
_SECONDS_FOR_THE_COUNT = 6.0
_SHOWN = 20

_SIDE = 8192
_SIDE_ON_CPU = 512
_COPIED_BYTES = 2**31
_COPIED_BYTES_ON_CPU = 2**26
_LAUNCHES = 2000


def exactness(
    seconds: float, settings: GpuSettings, say: Callable[[str], object], tests: str = "tests/gpu"
) -> Iterator[dict[str, Any]]:
    """Run the tests in several processes. Yield a row: how many passed, failed and were skipped.

    Args:
        seconds: what is not done by then is left out.

    Raises:
        PartError: not all that ran passed, not all ran, or none. The row comes first.
    """
    count = 2 if settings.rehearsal else max(1, min(_MOST_PROCESSES, (os.cpu_count() or 2) // 2))
    command = [sys.executable, "-m", "pytest", "-v", "-rsfE", "--tb=short", "-p", "no:cacheprovider", "-n", str(count)]
    # As many examples as `make test` has: the others are for machines with more time.
    command += ["--continue-on-collection-errors", "--hypothesis-profile=quick", "--durations=10", tests]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "2"}
    path, problems = Path(settings.out, "exactness.txt"), []
    with path.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=_ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            if process.wait(seconds - _SECONDS_FOR_THE_COUNT) not in (0, 1):  # 1: a failed test, which is counted
                problems.append(f"pytest's exit code is {process.returncode}")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # a test that hangs would keep its process, and the GPU
            process.wait()
            problems.append("not all were done in time")
    text = path.read_text(errors="replace")
    # xdist tells every test when it is done; files that cannot be imported stand in the summary.
    outcomes = Counter(re.findall(r"\] (PASSED|FAILED|SKIPPED) ", text))
    num_failed = outcomes["FAILED"] + len(re.findall(r"(?m)^ERROR ", text))
    row = {"kind": EXACT, "passed": outcomes["PASSED"], "failed": num_failed, "skipped": outcomes["SKIPPED"]}
    say(f"{row['passed']} passed, {num_failed} failed, {row['skipped']} skipped")
    for line in re.findall(r"(?m)^(?:FAILED|ERROR|SKIPPED \[).*", text)[:_SHOWN]:
        say(line)
    yield row
    if num_failed:
        problems.insert(0, f"{num_failed} failed")
    if not row["passed"] and not settings.rehearsal:
        problems.append("none has passed")
    if problems:
        raise PartError(f"{'; '.join(problems)} (exactness.txt in others.tar.gz has all of it)")


def speed_of_card(settings: GpuSettings, say: Callable[[str], object]) -> Iterator[dict[str, Any]]:
    """Yield a row: FLOP and bytes a second, seconds a launch, and which card it is."""
    device, on_gpu = settings.device, settings.device == "cuda"
    side = _SIDE if on_gpu else _SIDE_ON_CPU
    like: dict[str, Any] = {"device": device, "dtype": torch.bfloat16}
    a, b = (torch.randn(side, side, **like) for _ in range(2))
    out = torch.empty_like(a)
    source = torch.empty(_COPIED_BYTES if on_gpu else _COPIED_BYTES_ON_CPU, device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    row: dict[str, Any] = {
        "kind": GEMM,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "architecture": "sm_" + "".join(map(str, torch.cuda.get_device_capability())) if on_gpu else "cpu",
        "side": side,
        "bf16_flops": 2 * side**3 / _seconds(lambda: torch.mm(a, b, out=out), on_gpu),
        "fp8_flops": _fp8_flops(a, b, on_gpu, say),
        "bytes_per_second": 2 * source.numel() / _seconds(lambda: target.copy_(source), on_gpu),
        "launch_seconds": _launch_seconds(device),
        "torch": torch.__version__,
    }
    bf16 = f"{row['bf16_flops'] / 1e12:.0f} TFLOP/s"
    fp8 = "none" if row["fp8_flops"] is None else f"{row['fp8_flops'] / 1e12:.0f} TFLOP/s"
    say(
        f"{row['device']}, {row['architecture']}: {side}^3 in bf16 {bf16}, in FP8 {fp8}, "
        f"copy {row['bytes_per_second'] / 1e12:.2f} TB/s, {1e6 * row['launch_seconds']:.1f} us a launch, "
        f"torch {row['torch']}"
    )
    yield row


def _seconds(run: Callable[[], object], on_gpu: bool, count: int = 10) -> float:
    """Return the seconds of one run on the device."""
    for _ in range(3):
        run()
    if not on_gpu:
        started = time.perf_counter()
        for _ in range(count):
            run()
        return (time.perf_counter() - started) / count
    make_event: Any = torch.cuda.Event  # not typed
    first, last = (make_event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(count):
        run()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) / 1000 / count


def _fp8_flops(a: torch.Tensor, b: torch.Tensor, on_gpu: bool, say: Callable[[str], object]) -> float | None:
    """Return FLOP/s with a scale for each row and column; None where the card has no FP8."""
    if not on_gpu:
        return None
    reason = fp8.why_not(a.device, torch.bfloat16)
    if reason is not None:
        say(reason)
        return None
    left, right = fp8.quantize_rows(a), fp8.quantize_rows(b)
    seconds = _seconds(lambda: fp8.product(*left, *right, None, torch.bfloat16), on_gpu)
    return 2 * a.numel() * len(b) / seconds


def _launch_seconds(device: str) -> float:
    small = torch.zeros(16, device=device)
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(_LAUNCHES):
        small.add_(1)
    seconds = (time.perf_counter() - started) / _LAUNCHES
    if device == "cuda":
        torch.cuda.synchronize()
    return seconds
