"""Norms, rotary embedding and SwiGLU by torch.compile: on a GPU what native/pointwise.cpp is on a CPU.

Each function is one or two kernels (Triton's on a GPU) where transformers' code launches up to a dozen, each of which
reads and writes all tokens. Only these are compiled, not the model: they depend on nothing but the number of tokens,
which is left open, so that a step of any size runs what was compiled when the model was loaded.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hpd_core.native.pointwise import Norm

_NUMBERS_OF_TOKENS = (2, 3, 1)
"""To compile for: at the second size torch leaves it open; of one token it makes a function of its own."""


def prepare(model: Any) -> str | None:
    """Compiles all for a model as Llama has them (`forward.FusedLayers`), some seconds. Why it cannot be had, or None.

    torch keeps what it has compiled on the disk, for later processes (TORCHINDUCTOR_CACHE_DIR).
    """
    layer, mlp = model.model.layers[0], model.model.layers[0].mlp
    attention = layer.self_attn
    options: dict[str, Any] = {"dtype": layer.input_layernorm.weight.dtype, "device": model.device}

    def zeros(*sizes: int) -> Tensor:
        return torch.zeros(*sizes, **options)

    size, hidden = model.config.hidden_size, mlp.gate_proj.weight.shape[0]  # of this rank, where several share a model
    heads = [linear.weight.shape[0] // attention.head_dim for linear in (attention.q_proj, attention.k_proj)]
    norm = (layer.input_layernorm.weight, layer.input_layernorm.variance_epsilon)
    norms = None
    if hasattr(attention, "q_norm"):
        q_norm, k_norm = attention.q_norm, attention.k_norm
        norms = (q_norm.weight, q_norm.variance_epsilon), (k_norm.weight, k_norm.variance_epsilon)
    try:
        with torch.inference_mode():
            for n in _NUMBERS_OF_TOKENS:
                add_norm(zeros(n, size), None, *norm)
                add_norm(zeros(n, size), zeros(n, size), *norm)
                queries, keys = (zeros(n, count, attention.head_dim) for count in heads)
                rotary(queries, keys, zeros(n, attention.head_dim), zeros(n, attention.head_dim), norms)
                swiglu(zeros(n, hidden), zeros(n, hidden))
    except Exception as error:
        # A compiler may be missing or fail in as many ways as there are compilers; nobody needs this one to go on.
        said = str(error).strip().splitlines() or [""]
        return f"torch.compile does not work here ({type(error).__name__}: {said[0]})"
    return None


def add_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """Adds `delta` to the residual stream `x`, in place, and returns its RMS norm times `weight`.

    Args:
        x, delta: [T, D]; weight: [D].
    """
    found: Tensor = _norm(x, weight, eps) if delta is None else _add_norm(x, delta, weight, eps)
    return found


def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, norms: tuple[Norm, Norm] | None) -> tuple[Tensor, Tensor]:
    """Rotary embedding of queries [T, H, D] and keys [T, H_kv, D], behind their norms where they have some.

    Args:
        cos, sin: [T, D], D even.
    """
    found: tuple[Tensor, Tensor] = _rotary(q, k, cos, sin, norms or (None, None))
    return found


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up."""
    found: Tensor = _swiglu(gate, up)
    return found


def _rms_norm(wide: Tensor, weight: Tensor, eps: float) -> Tensor:
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()


@torch.compile
def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return _rms_norm(x.float(), weight, eps).to(x.dtype)


@torch.compile
def _add_norm(x: Tensor, delta: Tensor, weight: Tensor, eps: float) -> Tensor:
    x.add_(delta)
    return _rms_norm(x.float(), weight, eps).to(x.dtype)


@torch.compile
def _rotary(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, norms: tuple[Norm | None, Norm | None]
) -> tuple[Tensor, Tensor]:
    cos, sin = cos.float()[:, None], sin.float()[:, None]
    rotated = []
    for x, norm in zip((q, k), norms, strict=True):
        wide = x.float() if norm is None else _rms_norm(x.float(), *norm)
        first, second = wide.chunk(2, dim=-1)
        rotated.append((wide * cos + torch.cat([-second, first], dim=-1) * sin).to(x.dtype))
    return rotated[0], rotated[1]


@torch.compile
def _swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return (F.silu(gate.float()) * up.float()).to(gate.dtype)
