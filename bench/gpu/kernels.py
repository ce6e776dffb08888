"""What a trace of torch's profiler says: kernels by kind, launches, and how long the device had nothing to do."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TO_HOST, COPIES, ATTENTION, PRODUCTS = "copies to and from the host", "copies, fills", "attention", "matrix products"
STORING, BETWEEN, CHOOSING = "keys and values stored", "norms, rotary, SwiGLU", "choosing tokens"
INDEXING, REST = "indexing", "the rest"

_KINDS: Sequence[tuple[str, tuple[str, ...]]] = (
    (TO_HOST, ("dtoh", "htod", "device -> pageable", "device -> pinned", "pinned -> device", "pageable -> device")),
    (COPIES, ("memcpy", "memset", "aten::copy_", "fillfunctor", "aten::fill_")),
    (ATTENTION, ("attend", "fmha", "flash", "attention", "softmax")),
    (
        PRODUCTS,
        ("gemm", "nvjet", "cutlass", "xmma", "cublas", "wgmma", "gemv", "splitk", "scaled_mm", "::mm", "::addmm"),
    ),
    (STORING, ("store", "note_kernel", "index_put")),
    (BETWEEN, ("norm", "rotary", "swiglu", "silu", "quantize", "triton_")),
    (CHOOSING, ("choose", "argmax", "reduce", "topk", "sort", "::max")),
    (INDEXING, ("index", "gather", "scatter", "embedding")),
)
"""Kind -> what a kernel's name has in it, in lower case; the first that fits. Ours are called as what they do
(hpd_core/attention/triton.py, hpd_core/layers), those of torch.compile begin with triton_."""

_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_CALLS = ("cuda_runtime", "cuda_driver")
_LAUNCHES = ("launch", "memcpy", "memset")
"""Of the host's calls, those that give the device something to do."""


def kind_of(name: str) -> str:
    """The kind of a kernel."""
    lower = name.lower()
    return next((kind for kind, words in _KINDS if any(word in lower for word in words)), REST)


@dataclass(frozen=True, slots=True)
class Kernels:
    """What the device did in a step, on average.

    Attributes:
        busy_ms: how long it did anything.
        kinds: kind -> (milliseconds, kernels and copies), the longest first.
        calls: of the host, that gave it something to do; a graph is one.
        calls_by_name: the same, and all other calls of CUDA.
        of_a_layer: kernels and copies that come as often as there are layers.
        outside: the others.
        names: (milliseconds, how many, name), the longest first.
        are_pretended: there was no GPU: operations of the CPU, the inner ones counted again.
    """

    busy_ms: float
    kinds: Mapping[str, tuple[float, float]]
    calls: float
    calls_by_name: Mapping[str, float]
    of_a_layer: float
    outside: float
    names: Sequence[tuple[float, float, str]]
    are_pretended: bool

    @property
    def count(self) -> float:
        """Kernels and copies."""
        return sum(count for _, count in self.kinds.values())

    @classmethod
    def of_trace(cls, events: Sequence[Mapping[str, Any]], num_steps: int, num_layers: int) -> Kernels:
        """From the events of a Chrome trace of so many steps."""
        spans = [event for event in events if event.get("ph") == "X"]
        device = [event for event in spans if event.get("cat") in _ON_DEVICE]
        are_pretended = not device
        if are_pretended:
            device = [event for event in spans if event.get("cat") == "cpu_op"]
        durations: dict[str, list[float]] = defaultdict(list)
        for event in device:
            durations[event["name"]].append(event["dur"] / 1000)
        kinds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        of_layers = 0
        for name, all_ms in durations.items():
            kinds[kind_of(name)][0] += sum(all_ms) / num_steps
            kinds[kind_of(name)][1] += len(all_ms) / num_steps
            of_layers += round(len(all_ms) / num_steps / num_layers)
        calls = Counter(event["name"] for event in spans if event.get("cat") in _CALLS)
        launches = sum(count for name, count in calls.items() if any(word in name.lower() for word in _LAUNCHES))
        in_order = sorted(kinds.items(), key=lambda item: -item[1][0])
        return cls(
            busy_ms=_busy(device) / num_steps,
            kinds={kind: (ms, count) for kind, (ms, count) in in_order},
            calls=launches / num_steps,
            calls_by_name={name: count / num_steps for name, count in calls.most_common()},
            of_a_layer=of_layers,
            outside=len(device) / num_steps - of_layers * num_layers,
            names=sorted(
                ((sum(ms) / num_steps, len(ms) / num_steps, name) for name, ms in durations.items()), reverse=True
            ),
            are_pretended=are_pretended,
        )

    def table(self, wall_ms: float) -> list[str]:
        """Lines for people. `wall_ms`: of a step without the profiler."""
        total = sum(ms for ms, _ in self.kinds.values()) or 1.0
        what = "the CPU's operations (a rehearsal)" if self.are_pretended else "GPU"
        return [
            f"{what}: busy {self.busy_ms:.1f} of {wall_ms:.1f} ms, idle {1 - self.busy_ms / wall_ms:.0%}; "
            f"{self.count:.0f} kernels and copies ({self.of_a_layer:.0f} a layer, {self.outside:.0f} outside), "
            f"{self.calls:.0f} launches by the host",
            f"{'':<32}{'ms':>9}{'launches':>10}{'share':>8}",
            *(f"{kind:<32}{ms:>9.2f}{count:>10.0f}{ms / total:>8.0%}" for kind, (ms, count) in self.kinds.items()),
        ]


def _busy(device: Sequence[Mapping[str, Any]]) -> float:
    """Milliseconds in which anything ran; what runs side by side counts once."""
    busy = last = 0.0
    for event in sorted(device, key=lambda item: float(item["ts"])):
        start, stop = float(event["ts"]), float(event["ts"]) + float(event["dur"])
        busy += max(0.0, stop - max(start, last))
        last = max(last, stop)
    return busy / 1000
