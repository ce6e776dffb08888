"""Attention while a model trains in bfloat16 on a CPU with tiles (AMX): `training_attention.cpp`, with gradients.

Torch's kernel computes masked pairs as well, pads examples, and copies their prefix for each of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hpd_core.native import library, linear

COLUMNS = 32
"""Divisor of heads' sizes, and of the number of columns of `Problems.seen`."""


@dataclass(frozen=True, slots=True)
class Problems:
    """Visibility in one layer: stretches of the packed row, one after the other from its start.

    Attributes:
        counts: number of tokens of each stretch.
        shared: for each stretch, how many of the row's first tokens it sees beside its own.
        seen: for each stretch, bool [count or more, columns]: which of the shared tokens and then of its own it sees;
            columns are a multiple of 32, and those after its tokens are False.
    """

    counts: Sequence[int]
    shared: Sequence[int]
    seen: Sequence[Tensor]

    @property
    def prefix(self) -> int:
        """Number of tokens that are shared."""
        return max(self.shared)


def takes(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Return whether `attend` supports these queries [T, H, D], keys and values."""
    sizes = (k.shape[-1], v.shape[-1])
    is_bf16 = all(x.dtype == torch.bfloat16 and x.device.type == "cpu" for x in (q, k, v))
    return is_bf16 and not any(size % COLUMNS for size in sizes) and linear.has_tiles()


def attend(q: Tensor, k: Tensor, v: Tensor, problems: Problems, scale: float) -> Tensor:
    """Compute softmax attention. q: [T, H, D]; k, v: [T, H_kv, D] and [T, H_kv, D_v].

    Returns:
        [T, H, D_v], 0 for tokens after the problems'.

    Raises:
        MemoryError: not enough for a thread's working memory.
    """
    attended: Tensor = _Attention.apply(q, k, v, problems, scale)  # type: ignore[no-untyped-call]
    return attended


class _Attention(torch.autograd.Function):
    """Autograd function of `attend`. Beside inputs and output each row's normalizer is kept; the backward recomputes
    the weights.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, problems: Problems, scale: float) -> Tensor:
        """Compute as `attend`."""
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = q.new_empty(*q.shape[:2], v.shape[2])
        out[sum(problems.counts) :] = 0
        normalizers = q.new_empty(q.shape[:2], dtype=torch.float32)
        _run("trained_attention", problems, scale, q=q, k=k, v=v, out=out, normalizers=normalizers)
        ctx.problems, ctx.scale = problems, scale
        ctx.save_for_backward(q, k, v, out, normalizers)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of q, k and v."""
        problems = ctx.problems
        q, k, v, out, normalizers = ctx.saved_tensors
        found = {f"{name}_gradient": torch.empty_like(x) for name, x in (("q", q), ("k", k), ("v", v))}
        for gradient in found.values():
            gradient[sum(problems.counts) :] = 0
        parts = {
            f"{name}_parts": x.new_empty(len(problems.counts), problems.prefix, *x.shape[1:], dtype=torch.float32)
            for name, x in (("k", k), ("v", v))
        }
        given = {"q": q, "k": k, "v": v, "out": out, "normalizers": normalizers}
        given["out_gradient"] = gradients[0].contiguous()
        _run("trained_attention_backward", problems, ctx.scale, **given, **found, **parts)
        return *found.values(), None, None


class _Arguments(ctypes.Structure):
    """Structure `TrainedAttention` of training_attention.cpp, field by field."""

    _fields_ = [
        *(
            (name, library.INT)
            for name in ("num_problems", "num_kv_heads", "group", "key_size", "value_size", "prefix")
        ),
        ("scale", library.NUMBER),
        *((name, library.POINTER) for name in ("starts", "counts", "shared", "seen", "seen_rows")),
        *((name, library.POINTER) for name in ("q", "k", "v", "out", "normalizers", "out_gradient")),
        *((name, library.POINTER) for name in ("q_gradient", "k_gradient", "v_gradient", "k_parts", "v_parts")),
        ("threads", library.INT),
    ]


def _run(name: str, problems: Problems, scale: float, **tensors: Tensor) -> None:
    counts = torch.tensor(problems.counts)
    whose = {
        "starts": counts.cumsum(0) - counts,
        "counts": counts,
        "shared": torch.tensor(problems.shared),
        "seen": torch.tensor([seen.data_ptr() for seen in problems.seen]),
        "seen_rows": torch.tensor([seen.shape[1] for seen in problems.seen]),
    }
    q, k, v = (tensors[x] for x in ("q", "k", "v"))
    arguments = _Arguments(
        num_problems=len(counts),
        num_kv_heads=k.shape[1],
        group=q.shape[1] // k.shape[1],
        key_size=k.shape[2],
        value_size=v.shape[2],
        prefix=problems.prefix,
        scale=scale,
        threads=torch.get_num_threads(),
        **{name: x.data_ptr() for name, x in (whose | tensors).items()},
    )
    if getattr(library.load(), f"hpd_{name}")(ctypes.byref(arguments)):
        raise MemoryError("attention found no memory for what a thread works on")
