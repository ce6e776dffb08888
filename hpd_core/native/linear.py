"""Binding of `linear.cpp` to tensors, where the processor multiplies tiles (AMX)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from hpd_core.native import library

_TILE = 16
_DEPTH = 2 * _TILE
"""Number of a sum's terms that a tile holds, for each of 16 columns."""


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """Weights of one layer, or of two that are multiplied together, in the order in which they are read.

    Attributes:
        tiles: int32 [blocks, 2, K / 32, 16, 16]: each block is two times 16 columns, tile by tile, as pairs of
            neighbouring terms; one pair of each column, then the next of each. Blocks are padded with 0.
        num_columns: of the product.
    """

    tiles: Tensor
    num_columns: int

    @property
    def depth(self) -> int:
        """Number of a sum's terms, K."""
        return int(self.tiles.shape[2]) * _DEPTH


def has_tiles() -> bool:
    """Return whether the library is available, the processor has tiles, and Linux allows them."""
    try:
        return bool(library.load().hpd_has_tiles())
    except library.NativeError:
        return False


def fits(*weights: Tensor) -> bool:
    """Return whether layers of such weights [N, K] can be packed."""
    return has_tiles() and all(
        weight.dtype == torch.bfloat16 and weight.device.type == "cpu" and weight.shape[1] % _DEPTH == 0
        for weight in weights
    )


def pack(weight: Tensor) -> PackedWeight:
    """Pack the weight [N, K] of a layer; see `linear`."""
    panels = _panels(weight, 2 * _TILE)
    return PackedWeight(panels.contiguous().view(-1, 2, *panels.shape[1:]), len(weight))


def pack_gated(gate: Tensor, up: Tensor) -> PackedWeight:
    """Pack the weights [N, K] of two layers whose products are multiplied with each other; see `gated_mlp`."""
    panels = torch.stack([_panels(gate, _TILE), _panels(up, _TILE)], dim=1)
    return PackedWeight(panels, len(gate))


def _panels(weight: Tensor, multiple: int) -> Tensor:
    """Reorder [N, K] -> [N / 16, K / 32, 16, 16] of pairs, N padded with zeros. Raise RuntimeError if it cannot be
    packed.
    """
    if not fits(weight):
        raise RuntimeError(f"a weight of {weight.dtype} {tuple(weight.shape)} cannot be packed, or not here")
    missing = -len(weight) % multiple
    filled = pad(weight, (0, 0, 0, missing)) if missing else weight.contiguous()
    if filled.storage_offset() % 2:  # cut from a larger tensor
        filled = filled.clone()
    pairs = filled.view(torch.int32)
    return pairs.view(-1, _TILE, weight.shape[1] // _DEPTH, _TILE).permute(0, 2, 3, 1)


@dataclass(frozen=True, slots=True, eq=False)
class TiledLinear:
    """Callable `linear` with this weight and bias."""

    weight: PackedWeight
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Compute [..., K] -> [..., N]."""
        return linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True, eq=False)
class TiledMLP:
    """Callable `gated_mlp` with these weights."""

    gate_up: PackedWeight
    down: PackedWeight

    def __call__(self, x: Tensor) -> Tensor:
        """Compute [..., K] -> [..., N]."""
        return gated_mlp(x, self.gate_up, self.down)


def linear(x: Tensor, weight: PackedWeight, bias: Tensor | None = None) -> Tensor:
    """Return x [..., K] times the weight, [..., N], plus the bias [N]. Sums in fp32, rounded once."""
    if bias is not None and (bias.shape != (weight.num_columns,) or not is_read(bias)):
        raise RuntimeError(
            f"a bias of {bias.dtype} {tuple(bias.shape)} by {bias.stride()} for {weight.num_columns} columns"
        )
    x = x.contiguous()
    out = x.new_empty(*x.shape[:-1], weight.num_columns)
    library.load().hpd_linear(
        *_product(x, weight),
        None if bias is None else bias.data_ptr(),
        *(out.data_ptr(), weight.num_columns, torch.get_num_threads()),
    )
    return out


def gated_mlp(x: Tensor, gate_up: PackedWeight, down: PackedWeight) -> Tensor:
    """Return (silu(x gate^T) * (x up^T)) down^T, [..., N], for x [..., K].

    Sums are in fp32; the values between the products are rounded once.

    Raises:
        MemoryError: not enough for the values between the products.
    """
    if gate_up.num_columns != down.depth:
        raise RuntimeError(f"{gate_up.num_columns} columns for a layer of {down.depth}")
    x = x.contiguous()
    out = x.new_empty(*x.shape[:-1], down.num_columns)
    missing = library.load().hpd_gated_mlp(
        *_product(x, gate_up),
        *(down.depth, down.tiles.data_ptr(), len(down.tiles)),
        *(out.data_ptr(), down.num_columns, torch.get_num_threads()),
    )
    if missing:
        raise MemoryError("an MLP found no memory for what is between its layers")
    return out


def choose_by_tiles(x: Tensor, layer: TiledLinear) -> tuple[Tensor, Tensor, Tensor]:
    """Choose as `pointwise.choose` from the layer's products, which are not stored.

    Args:
        x: [n, K]

    Returns:
        For each row the likeliest column (the first of equals), int64 [n]; its logit, rounded as by `linear`, and
        log(sum(exp)), float32 [n].

    Raises:
        MemoryError: there is not enough.
    """
    x = x.contiguous()
    tokens = torch.empty(len(x), dtype=torch.int64)
    scores, normalizers = torch.empty(2, len(x), dtype=torch.float32)
    missing = library.load().hpd_choose_by_tiles(
        *_product(x, layer.weight),
        None if layer.bias is None else layer.bias.data_ptr(),
        layer.weight.num_columns,
        *(tokens.data_ptr(), scores.data_ptr(), normalizers.data_ptr(), torch.get_num_threads()),
    )
    if missing:
        raise MemoryError("the choice of tokens found no memory for what it has seen")
    return tokens, scores, normalizers


def _product(x: Tensor, weight: PackedWeight) -> tuple[int, ...]:
    """Return the arguments. Raise RuntimeError if they do not fit: the library does not check addresses."""
    if not is_read(x) or x.shape[-1] != weight.depth:
        raise RuntimeError(f"{x.dtype} {tuple(x.shape)} on {x.device} for a layer of bfloat16 and {weight.depth}")
    return x.data_ptr(), x.numel() // weight.depth, weight.depth, weight.tiles.data_ptr(), len(weight.tiles)


def is_read(x: Tensor) -> bool:
    """Return whether the library reads such a tensor."""
    return x.device.type == "cpu" and x.dtype == torch.bfloat16 and x.is_contiguous()


class Norm(NamedTuple):
    """RMS norm.

    Attributes:
        weight: [D]
        eps: what is added to the mean square.
        offset: what is added to the weight: 1 in Gemma.
    """

    weight: Tensor
    eps: float
    offset: float = 0.0


def norm_of(module: Any) -> Norm:
    """Return one of transformers' RMS norms. Gemma's calls its epsilon by another name than all others."""
    if hasattr(module, "variance_epsilon"):
        return Norm(module.weight, module.variance_epsilon)
    return Norm(module.weight, module.eps, 1.0)


def add_norm(x: Tensor, delta: Tensor | None, norm: Norm, total: Tensor | None = None) -> Tensor:
    """Add `delta` to the residual stream `x`, in place or into `total`, and return its RMS norm.

    Args:
        x, delta, total: [..., D]
    """
    weight, eps, offset = norm
    total, out = x if total is None else total, torch.empty_like(x)
    check(x, weight, total, out, *(() if delta is None else (delta,)))
    size = x.shape[-1]
    if weight.shape != (size,) or (delta is not None and delta.shape != x.shape):
        raise RuntimeError(f"a norm of {tuple(weight.shape)} for rows of {tuple(x.shape)}")
    given = (x.data_ptr(), None if delta is None else delta.data_ptr(), weight.data_ptr())
    library.function("add_norm", x.dtype)(
        *given, total.data_ptr(), out.data_ptr(), x.numel() // size, size, eps, offset, torch.get_num_threads()
    )
    return out


def rotate(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor | None = None, *, inverse: bool = False) -> Tensor:
    """Apply rotary embedding to queries or keys, or take it back, in place or into `out`.

    Args:
        x, out: [T, H, D]; cos, sin: [T, D], D even.
    """
    out = x if out is None else out
    check(x, cos, sin, out)
    num_tokens, num_heads, size = x.shape
    if cos.shape != (num_tokens, size) or sin.shape != cos.shape or size % 2:
        raise RuntimeError(f"angles of {tuple(cos.shape)} and {tuple(sin.shape)} for heads of {tuple(x.shape)}")
    addresses = (x.data_ptr(), cos.data_ptr(), sin.data_ptr(), out.data_ptr())
    library.function("rotate", x.dtype)(*addresses, num_tokens, num_heads, size, int(inverse), torch.get_num_threads())
    return out


def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, norms: tuple[Norm, Norm] | None) -> tuple[Tensor, Tensor]:
    """Apply rotary embedding to queries [T, H, D] and keys [T, H_kv, D], after their norms if they have some.

    Args:
        cos, sin: [T, D], D even.
    """
    if norms is not None:
        q, k = (add_norm(x, None, norm) for x, norm in zip((q, k), norms, strict=True))
    return rotate(q, cos, sin), rotate(k, cos, sin)


def gated(gate: Tensor, up: Tensor, out: Tensor | None = None, *, is_gelu: bool = False) -> Tensor:
    """Return silu(gate) * up, or gelu(gate) * up (approximated with tanh), in the memory of `gate`, or in `out`."""
    out = gate if out is None else out
    check(gate, up, out)
    if gate.shape != up.shape:
        raise RuntimeError(f"a gate of {tuple(gate.shape)} for {tuple(up.shape)}")
    addresses = (gate.data_ptr(), up.data_ptr(), out.data_ptr())
    library.function("gated", gate.dtype)(*addresses, gate.numel(), int(is_gelu), torch.get_num_threads())
    return out


def choose(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return, for each row of `logits` [n, V], the likeliest token, int64 [n]; its logit and log(sum(exp)), float32
    [n].
    """
    check(logits)
    tokens = torch.empty(len(logits), dtype=torch.int64)
    scores, normalizers = torch.empty(2, len(logits), dtype=torch.float32)
    library.function("choose", logits.dtype)(
        *(logits.data_ptr(), *logits.shape, tokens.data_ptr(), scores.data_ptr(), normalizers.data_ptr()),
        torch.get_num_threads(),
    )
    return tokens, scores, normalizers


def takes(x: Tensor) -> bool:
    """Return whether the library reads such a tensor."""
    return x.device.type == "cpu" and x.dtype in library.DTYPES and x.is_contiguous()


def check(*tensors: Tensor) -> None:
    """Raise RuntimeError for tensors that the library does not read: it does not check addresses."""
    for x in tensors:
        if not takes(x) or x.dtype != tensors[0].dtype:
            raise RuntimeError(f"not a tensor that the library reads: {x.dtype} {tuple(x.shape)} by {x.stride()}")
