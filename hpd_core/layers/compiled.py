"""Norms, rotary embedding and SwiGLU by torch.compile: on a GPU what native/pointwise.cpp is on a CPU.

Each function is one or two kernels (Triton's on a GPU) where transformers' code launches up to a dozen, each of which
reads and writes all tokens. Only these are compiled, not the model: they depend on nothing but the number of tokens,
which is left open, so that a step of any size runs what was compiled when the model was loaded (unless somebody has
changed torch's global settings since, such as its threads or its precision of products: then it compiles anew).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hpd_core.native.pointwise import Norm, norm_of
from hpd_core.system.device import is_out_of_memory

_NUMBERS_OF_TOKENS = (2, 3, 1)
"""To compile for: at the second size torch leaves it open; of one token it makes a function of its own."""

_MOST_COMPILED = 64
"""Times that torch compiles a function in one process, three for each kind of model. Left alone it stops at 8, runs
what is written here as it stands, and says so in its log alone."""


def prepare(model: Any) -> str | None:
    """Compiles all for a model as Llama has them (`forward.FusedLayers`), some seconds. Why it cannot be had, or None.

    torch keeps what it has compiled on the disk, for later processes (TORCHINDUCTOR_CACHE_DIR).

    Raises:
        RuntimeError: out of memory.
    """
    try:
        with (
            torch.inference_mode(),
            torch._dynamo.config.patch(recompile_limit=_MOST_COMPILED, fail_on_recompile_limit_hit=True),
        ):
            for num_tokens in _NUMBERS_OF_TOKENS:
                _run_layer(model.model.layers[0], num_tokens)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        # A compiler may be missing or fail in as many ways as there are compilers; nobody needs this one to go on.
        said = str(error).strip().splitlines() or [""]
        return f"torch.compile does not work here ({type(error).__name__}: {said[0]})"
    return None


def _run_layer(layer: Any, num_tokens: int) -> None:
    """All functions, of tensors as `forward.FusedLayers` has them."""
    attention, mlp = layer.self_attn, layer.mlp
    norm = norm_of(layer.input_layernorm)
    norms = (norm_of(attention.q_norm), norm_of(attention.k_norm)) if hasattr(attention, "q_norm") else None
    x = norm[0].new_zeros(num_tokens, len(norm[0]))
    angles = x.new_zeros(num_tokens, attention.head_dim)
    normed = add_norm(x, None, *norm)
    q, k = (
        project(normed).view(num_tokens, -1, attention.head_dim) for project in (attention.q_proj, attention.k_proj)
    )
    rotary(q, k, angles, angles.clone(), norms)
    swiglu(mlp.gate_proj(normed), mlp.up_proj(normed))
    add_norm(x, normed, *norm)


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
