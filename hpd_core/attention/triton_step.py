"""Attention of one step by the kernels in Triton: its tables on the device, and the launches that read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hpd_core.attention.kv_cache import CacheShape
from hpd_core.attention.plan import AddressedPlan
from hpd_core.attention.step_tables import Sizes, StepTables, step_tables, views
from hpd_core.attention.triton import Blocks, attend, blocks_for, cut_of
from hpd_core.attention.triton_kv import empty_origin, note, rotate_and_store, store
from hpd_core.layout import IntArray
from hpd_core.native.pointwise import Norm
from hpd_core.system.device import to_device


@dataclass(frozen=True, slots=True, eq=False)
class TritonStep:
    """Data that all layers of one step read.

    Attributes:
        tiles, prompts, tokens, logit_rows, hidden: the tables of step_tables.py, on the device.
        last_position: the highest of all tokens, on the host.
        origin, seen_origin: tensors that their addresses are counted from.
    """

    tiles: Tensor
    prompts: Tensor
    tokens: Tensor
    logit_rows: Tensor
    hidden: Tensor
    last_position: int
    origin: Tensor
    seen_origin: Tensor
    num_kv_heads: int
    blocks: Blocks

    @property
    def token_ids(self) -> Tensor:
        """Token ids, int64 [T]."""
        return self.tokens[0]

    @property
    def positions(self) -> Tensor:
        """Positions, int64 [T]."""
        return self.tokens[1]

    def note(self) -> None:
        """Store who may see the new columns; call it once, before the first layer."""
        note(self.seen_origin, self.prompts, self.tokens, self.hidden)

    def store(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> None:
        """Store keys [T, H_kv, D] and values [T, H_kv, D_v] of a layer."""
        k, v = (x if x.stride(2) == 1 else x.contiguous() for x in (k, v))
        store(q, k, v, self.origin, self.prompts, self.tokens, layer)

    def rotate_and_store(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, norms: tuple[Norm, Norm] | None
    ) -> None:
        """Store them after norms and rotary embedding; queries [T, H, D] are rotated in place."""
        rotate_and_store(q, k, v, cos, sin, norms, self.origin, self.prompts, self.tokens, layer)

    def attend(self, layer: int, q: Tensor, out: Tensor, *, window: int | None = None, **options: Any) -> None:
        """Attend in a layer whose keys and values are stored. Arguments as in `triton.attend`."""
        q = q if q.stride(2) == 1 else q.contiguous()
        attend(
            q,
            out,
            self.origin,
            self.seen_origin,
            self.tiles,
            self.prompts,
            self.tokens[2],
            self.tokens[1],
            layer,
            self.num_kv_heads,
            self.blocks,
            # A window that covers everything is none.
            window=window if window is not None and abs(window) <= self.last_position else None,
            **options,
        )


class TritonAttention:
    """Factory of the steps of one decoder."""

    def __init__(
        self, shape: CacheShape, group: int, *, small_steps: bool = False, blocks: Blocks | None = None
    ) -> None:
        """Prepare for steps of one decoder.

        Args:
            group: number of query heads that share a KV head.
            small_steps: whether steps have few tokens of each prompt.
            blocks: block sizes; None: those that suit the GPU.
        """
        self._shape = shape
        is_gpu = shape.device.type == "cuda"
        capability = torch.cuda.get_device_capability(shape.device) if is_gpu else (9, 0)
        self._blocks = blocks or blocks_for(
            capability, shape.layer.key_size, shape.layer.value_size, shape.dtype, small_steps=small_steps
        )
        self._cut = cut_of(self._blocks, group)
        self._origin = empty_origin(shape.dtype, shape.device)
        self._seen_origin = empty_origin(torch.int64, shape.device)

    def tables(
        self,
        plans: Sequence[AddressedPlan],
        token_ids: IntArray,
        logit_rows: IntArray,
        room: Sizes | None = None,
    ) -> StepTables:
        """Build a step's tables. Arguments as in `step_tables`."""
        origins = self._origin.data_ptr(), self._seen_origin.data_ptr()
        return step_tables(plans, token_ids, logit_rows, self._cut, self._shape, *origins, room)

    def step(self, tables: StepTables) -> TritonStep:
        """Copy the tables to the device and return the step."""
        return self.at(to_device(tables.numbers, self._shape.device), tables.sizes, tables.last_position)

    def at(self, numbers: Tensor, sizes: Sizes, last_position: int) -> TritonStep:
        """Return a step whose tables are, or will be, `numbers` on the device."""
        parts = views(numbers, sizes)
        return TritonStep(
            parts.tiles,
            parts.prompts,
            parts.tokens,
            parts.rows,
            parts.hidden,
            last_position,
            self._origin,
            self._seen_origin,
            self._shape.layer.num_kv_heads,
            self._blocks,
        )
