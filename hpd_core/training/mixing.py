"""Layers beside attention in training: each branch of an example continues from the state of its trunk.

The prefix of a packed row is one text. Its state continues in each example. The state of an example's trunk continues
in each of its branches, where it is read and not copied (mixers/delta_rule.py). So the gradient of a trunk's state is
the sum over its branches, that of the prefix's over its examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hpd_core.errors import ModelError
from hpd_core.families.table import mixers_of
from hpd_core.layout import PUBLIC, IntArray
from hpd_core.mixers.convolution import convolved, tokens_before
from hpd_core.mixers.delta_rule import Ancestors, Forked, GoOn, Tokens, recurred
from hpd_core.mixers.running import PackedFunction
from hpd_core.mixers.scans import packed_channel_scan, packed_scan
from hpd_core.mixers.step_plan import TokenGrid
from hpd_core.system.device import to_device


def trained_convolution(order: TextOrder, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Replace `convolved` of mixers/convolution.py: [T, channels] to the same."""
    wide = torch.promote_types(x.dtype, torch.float32)
    taps = weight.to(wide).flip(1).t()  # [kernel, channels]: of the token itself, of the one before it, ...
    out = x.to(wide) * taps[0]
    if bias is not None:
        out = out + bias
    source = F.pad(x, (0, 0, 0, 1))  # the last row: before a text there is nothing
    for tap, before in zip(taps[1:], order.windows(len(taps) - 1).unbind(1), strict=True):
        out = out + source.index_select(0, before).to(wide) * tap
    return out


def trained_recurrence(order: TextOrder, go_on: GoOn, tokens: Tokens, dtype: torch.dtype, forked_by: Forked) -> Tensor:
    """Replace `recurred` of mixers/delta_rule.py: [T, H, D_v]; 0 for padding."""
    out = torch.zeros_like(tokens.v)
    states = None
    if order.prefix is not None:
        found, last = go_on(order.prefix, None)
        order.prefix.put(found, out)
        states = last.expand(order.num_examples, -1, -1, -1)
    if order.trunks is not None:
        whose = order.trunks.prompts
        found, last = go_on(order.trunks, None if states is None else states.index_select(0, whose))
        order.trunks.put(found, out)
        if states is None:
            states = last.new_zeros(order.num_examples, *last.shape[1:])
        states = states.index_copy(0, whose, last.to(states.dtype))
    if order.branches is not None:
        assert states is not None, "a layout has a trunk"
        grid = order.branches
        behind = states.index_select(0, grid.prompts)
        said, _, _ = forked_by(tokens.each(grid.take), behind, _nothing(grid, tokens), order.before)
        grid.put(said, out)
    return out.to(dtype)


def _nothing(grid: TokenGrid, tokens: Tokens) -> Ancestors:
    """Return ancestors for a first step: one column that nothing sees."""
    num_prompts, num_rows = grid.rows.shape
    keys, updates, decays = (each.new_zeros(num_prompts, 1, *each.shape[1:]) for each in (tokens.k, tokens.v, tokens.g))
    unseen = torch.zeros(num_prompts, num_rows, 1, dtype=torch.bool, device=keys.device)
    return Ancestors(keys, updates, decays, unseen, torch.zeros_like(unseen[..., 0], dtype=torch.int64))


def trained_windows(order: TextOrder, x: Tensor, count: int) -> Tensor:
    """Replace `tokens_before` of mixers/convolution.py: [T, count, channels]."""
    return F.pad(x, (0, 0, 0, 1))[order.windows(count)]


TRAINED: Mapping[PackedFunction, Callable[..., Any]] = {
    convolved: trained_convolution,
    recurred: trained_recurrence,
    tokens_before: trained_windows,
}
"""Functions for training, by those of the engine that they replace: all that have memory of their own."""


def calls_of(model: Any) -> int:
    """Return how often a forward of the model calls functions of ours at least: 0 if it is all attention."""
    mixers = mixers_of(model)
    return 0 if mixers is None else mixers.num_calls


def num_attending(model_config: Any) -> int:
    """Return the number of layers with attention, in a model that has others."""
    config = model_config.get_text_config()
    kinds = (getattr(config, "layer_types", None) or ())[: config.num_hidden_layers]
    return sum(kind == "hybrid" or (kind.endswith("_attention") and kind != "linear_attention") for kind in kinds)


def bypassed_linears(model: Any) -> list[str]:
    """Return the names of linear layers that get no adapter. Mamba's modules or their fused kernels take the weights
    out of them and multiply by themselves, bypassing anything put around the layer.
    """
    mixers = mixers_of(model)
    functions = mixers.functions if mixers is not None else ()
    of_scan = ["out_proj"] if packed_scan in functions else []
    return ["dt_proj", "out_proj"] if packed_channel_scan in functions else of_scan


class TextOrder:
    """Packed row of `tree`: a prefix, examples after it, branches after each example's trunk; computed on demand.

    Attributes:
        num_examples: P.
    """

    def __init__(
        self,
        size: int,
        lengths: Sequence[int],
        scopes: IntArray,
        positions: IntArray,
        num_padding: int,
        device: torch.device | str,
    ) -> None:
        """Take a prefix of `size` tokens and examples of these lengths. `scopes`, `positions`: int64 [T], of all of
        them; padding comes after them.
        """
        self.num_examples = len(lengths)
        self._size, self._scopes, self._positions, self._num_padding = size, scopes, positions, num_padding
        self._device = torch.device(device)
        self._examples = np.repeat(np.arange(len(lengths)), lengths)  # of each token behind the prefix
        self._windows: dict[int, Tensor] = {}

    @cached_property
    def prefix(self) -> TokenGrid | None:
        """Prefix in one row; None if there is none."""
        rows = np.arange(self._size)
        return TokenGrid.of(rows, np.zeros_like(rows), self._device) if self._size else None

    @cached_property
    def trunks(self) -> TokenGrid | None:
        """Tokens of each example between the prefix and its branches; None if there are none."""
        rows = self._own[self._scopes[self._own] == PUBLIC]
        return TokenGrid.of(rows, self._examples[rows - self._size], self._device) if len(rows) else None

    @cached_property
    def branches(self) -> TokenGrid | None:
        """Tokens of each example's branches, each after those of its branch that it follows; None if there are none."""
        rows = self._of_branches
        return TokenGrid.of(rows, self._examples[rows - self._size], self._device) if len(rows) else None

    @cached_property
    def before(self) -> Tensor:
        """Ancestors of each of an example's tokens within `branches`, bool [P', R, R]."""
        assert self.branches is not None
        grid = self.branches
        scopes = to_device(self._scopes, self._device)[grid.rows]
        is_alike = (scopes[:, :, None] == scopes[:, None, :]) & grid.is_token[:, None, :]
        return is_alike.tril(-1)

    def windows(self, width: int) -> Tensor:
        """Return the tokens before each token, nearest first, int64 [T, width]; T where there are none."""
        if width not in self._windows:
            parents = self._parents
            found = [parents]
            while len(found) < width:
                found.append(parents[found[-1]])
            self._windows[width] = to_device(np.stack(found, axis=1)[:-1], self._device)
        return self._windows[width]

    @cached_property
    def _own(self) -> IntArray:
        """Rows after the prefix."""
        return np.arange(self._size, len(self._scopes))

    @cached_property
    def _of_branches(self) -> IntArray:
        """Rows of branches, by example, branch and position."""
        rows = self._own[self._scopes[self._own] != PUBLIC]
        keys = self._positions[rows], self._scopes[rows], self._examples[rows - self._size]
        ordered: IntArray = rows[np.lexsort(keys)]
        return ordered

    @cached_property
    def _parents(self) -> IntArray:
        """Predecessor of each token, int64 [T + 1]; T if it has none, and for T itself.

        Raises:
            ModelError: the texts are stacked.
        """
        nobody = len(self._scopes) + self._num_padding
        parents = np.full(nobody + 1, nobody)
        parents[1 : self._size] = np.arange(self._size - 1)
        ends = np.full(self.num_examples, self._size - 1 if self._size else nobody)
        trunk = self._own[self._scopes[self._own] == PUBLIC]
        for rows in (trunk, self._of_branches):
            owners, scopes = self._examples[rows - self._size], self._scopes[rows]
            is_next = (owners[1:] == owners[:-1]) & (scopes[1:] == scopes[:-1])
            parents[rows] = ends[owners]
            parents[rows[1:][is_next]] = rows[:-1][is_next]
            ends[owners] = rows  # the last one of each stays
        positions = np.append(self._positions, np.full(self._num_padding + 1, -1))
        if (self._positions != positions[parents[: len(self._positions)]] + 1).any():
            raise ModelError(
                "layers whose tokens hear of others in the order of the text are trained in the layouts 'tree' and "
                "'ar' alone: in 'stacked', values stand between keys that are fed before them"
            )
        return parents
