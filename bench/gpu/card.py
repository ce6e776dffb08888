"""What the card does at best: a large product in bf16 and in FP8, a copy; and what a launch costs the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from hpd_core.layers import fp8

_SIDE = 8192
_SIDE_ON_CPU = 512
_COPIED_BYTES = 2**31
_COPIED_BYTES_ON_CPU = 2**26
_LAUNCHES = 2000


def card(device: str, say: Callable[[str], object]) -> dict[str, Any]:
    """A row: FLOP and bytes a second, seconds a launch, and which card it is."""
    on_gpu = device == "cuda"
    side = _SIDE if on_gpu else _SIDE_ON_CPU
    like: dict[str, Any] = {"device": device, "dtype": torch.bfloat16}
    a, b = (torch.randn(side, side, **like) for _ in range(2))
    out = torch.empty_like(a)
    source = torch.empty(_COPIED_BYTES if on_gpu else _COPIED_BYTES_ON_CPU, device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    row: dict[str, Any] = {
        "kind": "gemm",
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
    return row


def _seconds(run: Callable[[], object], on_gpu: bool, count: int = 10) -> float:
    """Of one, on the device."""
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
    """With a scale for each row and column; None where the card has no FP8."""
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
