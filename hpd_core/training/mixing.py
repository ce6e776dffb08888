"""Layers beside attention in training: each branch of an example continues from the state of its trunk.

The prefix of a packed row is one text. Its state continues in each example. The state of an example's trunk continues
in each of its branches, where it is read and not copied (mixers/delta_rule.py). So the gradient of a trunk's state is
the sum over its branches, that of the prefix's over its examples.

What cannot be trained so is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.activations import ACT2FN

from hpd_core.errors import ModelError
from hpd_core.families.table import family_of, mixers_of
from hpd_core.layout import PUBLIC, IntArray
from hpd_core.mixers.convolution import (
    packed_convolution,
    packed_gaps,
    packed_ngrams,
    tokens_before,
)
from hpd_core.mixers.delta_rule import Ancestors, Forked, Tokens, forked, packed_delta_rule, widened
from hpd_core.mixers.running import PackedFunction
from hpd_core.mixers.scans import (
    forked_channels,
    packed_channel_scan,
    packed_lightning,
    packed_scan,
    scanned_channels,
    scanned_tokens,
    step_lengths,
)
from hpd_core.mixers.step_plan import TokenGrid
from hpd_core.system.device import to_device

GoOn = Callable[[TokenGrid, Tensor | None], tuple[Tensor, Tensor]]
"""Function from tokens and the states before them to outputs, [P', R, H, D_v], and final states, [P', H, D, D_v]."""


def trained_convolution(
    order: TextOrder,
    _original: Any,
    hidden_states: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    **_: Any,
) -> Tensor:
    """Replace transformers' `causal_conv1d_fn`, as mixers/convolution.py: [1, channels, T] to the same."""
    x = hidden_states[0].transpose(0, 1)  # [T, channels]
    wide = torch.promote_types(x.dtype, torch.float32)
    taps = weight.to(wide).flip(1).t()  # [kernel, channels]: of the token itself, of the one before it, ...
    out = x.to(wide) * taps[0]
    if bias is not None:
        out = out + bias
    source = F.pad(x, (0, 0, 0, 1))  # the last row: before a text there is nothing
    for tap, before in zip(taps[1:], order.windows(len(taps) - 1).unbind(1), strict=True):
        out = out + source.index_select(0, before).to(wide) * tap
    if activation is not None:
        out = ACT2FN[activation](out)
    return out.to(hidden_states.dtype).transpose(0, 1)[None]


def trained_delta_rule(
    order: TextOrder,
    original: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    use_qk_l2norm_in_kernel: bool = False,
    **_: Any,
) -> tuple[Tensor, None]:
    """Replace `torch_chunk_gated_delta_rule` and `chunk_kimi_delta_attention`, as mixers/delta_rule.py."""
    tokens = Tokens(*(given[0] for given in (query, key, value, g, beta)))

    def go_on(grid: TokenGrid, state: Tensor | None) -> tuple[Tensor, Tensor]:
        padded = tokens.each(grid.take)
        found, last = original(
            *(padded.q, padded.k, padded.v),
            g=padded.g,
            beta=padded.beta,
            initial_state=state,
            output_final_state=True,
            use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        )
        return found, last

    wide = widened(tokens, use_qk_l2norm_in_kernel)
    return _recurred(order, go_on, wide).to(value.dtype)[None], None


def trained_scan(
    order: TextOrder,
    original: Any,
    hidden_states: Tensor,
    dt: Tensor,
    decay: Tensor,
    into_state: Tensor,
    out_of_state: Tensor,
    chunk_size: int,
    D: Tensor | None = None,  # noqa: N803 (transformers' name)
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    **_: Any,
) -> Tensor:
    """Replace `mamba2_chunk_scan`, as mixers/scans.py."""
    x, b, c = hidden_states[0], into_state[0], out_of_state[0]
    steps = step_lengths(dt[0], dt_bias, dt_softplus, dt_limit)

    def go_on(grid: TokenGrid, state: Tensor | None) -> tuple[Tensor, Tensor]:
        found, last = original(
            *(grid.take(x), grid.take(steps), decay, grid.take(b), grid.take(c)),
            chunk_size=chunk_size,
            initial_states=None if state is None else state.transpose(2, 3),
            return_final_states=True,
        )
        return found, last.transpose(2, 3)

    wide = x.float()
    out = _recurred(order, go_on, scanned_tokens(wide, steps, decay, b, c))
    return (out if D is None else out + D.float()[:, None] * wide)[None]


def _recurred(order: TextOrder, go_on: GoOn, tokens: Tokens, forked_by: Forked = forked) -> Tensor:
    """Return the outputs of all tokens of the row, [T, H, D_v] as wide as `tokens`, which are in fp32 and scaled; 0 for
    padding.
    """
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
    return out


def _nothing(grid: TokenGrid, tokens: Tokens) -> Ancestors:
    """Return ancestors for a first step: one column that nothing sees."""
    num_prompts, num_rows = grid.rows.shape
    keys, updates, decays = (each.new_zeros(num_prompts, 1, *each.shape[1:]) for each in (tokens.k, tokens.v, tokens.g))
    unseen = torch.zeros(num_prompts, num_rows, 1, dtype=torch.bool, device=keys.device)
    return Ancestors(keys, updates, decays, unseen, torch.zeros_like(unseen[..., 0], dtype=torch.int64))


def trained_channels(order: TextOrder, tokens: Tokens, decay: Tensor) -> Tensor:
    """Replace `scanned_channels` of mixers/scans.py: [T, channels]."""

    def go_on(grid: TokenGrid, state: Tensor | None) -> tuple[Tensor, Tensor]:
        given = tokens.each(grid.take)
        now = decay.new_zeros(len(grid.rows), *decay.shape) if state is None else state[..., 0]
        said = []
        for rank in range(given.v.shape[1]):
            now = now * (given.g[:, rank] * decay).exp() + given.v[:, rank] * given.k[:, rank]
            said.append(now @ given.q[:, rank].transpose(1, 2))
        return torch.stack(said, dim=1), now[..., None]

    return _recurred(order, go_on, tokens, partial(forked_channels, decay))[..., 0]


def trained_windows(order: TextOrder, x: Tensor, count: int) -> Tensor:
    """Replace `tokens_before` of mixers/convolution.py: [T, count, channels]."""
    return F.pad(x, (0, 0, 0, 1))[order.windows(count)]


TRAINED: Mapping[PackedFunction, Callable[..., Any]] = {
    packed_convolution: trained_convolution,
    packed_delta_rule: trained_delta_rule,
    packed_scan: trained_scan,
    scanned_channels: trained_channels,
    tokens_before: trained_windows,
}
"""Functions for training, by the engine's functions that they replace."""

MADE_OF_OTHERS: Collection[PackedFunction] = frozenset(
    {
        packed_channel_scan,
        packed_gaps,
        packed_lightning,
        packed_ngrams,
    }
)
"""Functions of the engine without memory of their own: they call those above."""


def calls_of(model: Any) -> int:
    """Return how often a forward of the model calls functions of ours at least: 0 if it is all attention.

    Raises:
        ModelError: the engine runs such layers, and training does not.
    """
    mixers = mixers_of(model)
    if mixers is None:
        return 0
    if not TRAINED.keys() | MADE_OF_OTHERS >= set(mixers.functions):
        raise ModelError(
            f"{model.config.model_type} has layers of type {', '.join(sorted(family_of(model.config).mixed))}, through "
            f"which no gradient is computed here. Fine-tune a model of another family"
        )
    return mixers.num_calls


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
