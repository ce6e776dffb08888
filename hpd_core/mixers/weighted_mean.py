"""RWKV over packed rows: what a token hears is a mean of values, weighted by the exponentials of keys.

The weight of a value fades, channel by channel, with each token behind the next one. A token's own has a bonus instead:

    y_t = sum over i of w_i v_i / sum over i of w_i    w_i = exp(k_i + (t - 1 - i) fade), but w_t = exp(k_t + bonus)

A trunk's sums are kept with the greatest exponent in them, as transformers keeps them. What a branch's tokens add to
them are columns, of a value and a key.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from hpd_core.mixers.convolution import tokens_before
from hpd_core.mixers.delta_rule import Ancestors, Tokens, behind, fork, since_trunk
from hpd_core.mixers.running import LayerStep
from hpd_core.mixers.states import LayerMemory
from hpd_core.mixers.step_plan import TokenGrid

VALUES = 3
"""Of a channel: both sums and the greatest exponent; of a column value, key and nothing."""

_NUMBERS = 2**24
"""Of channels of pairs of tokens at a time: 64 MiB."""

_NOTHING = -1e38
"""The greatest exponent where there is none."""


def packed_shift(step: LayerStep, _part: Any, hidden_states: Tensor) -> Tensor:
    """In place of the forward of `time_shift`: of each token the one before it, [1, T, channels]."""
    before: Tensor = step.call(tokens_before, hidden_states[0], 1)
    return before[None, :, 0]


def packed_mean(
    step: LayerStep, _original: Any, time_decay: Tensor, time_first: Tensor, key: Tensor, value: Tensor, **_: Any
) -> tuple[Tensor, None]:
    """In place of transformers' `rwkv_linear_attention`: keys and values, [1, T, channels], to the same."""
    fade, bonus = -time_decay.float().exp(), time_first.float()
    k, v = key[0].float(), value[0].float()
    out = torch.empty_like(v)[..., None]
    one = torch.ones_like(out)
    tokens = Tokens(one[:, :1], one[:, :1], torch.stack([v, k, torch.zeros_like(k)], dim=2), one, None)
    for plan in step.plans:
        memory = plan.cache.layers[step.layer]
        for grid in plan.trunk.grids if plan.trunk is not None else ():
            _go_on(fade, bonus, tokens.v, grid, memory, out)
        if plan.branches is not None:
            fork(tokens, plan.branches, memory, out, partial(_forked_means, fade, bonus))
    step.has_recurred = True
    return out[None, ..., 0].to(key.dtype), None


def _sums(state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[n, channels, 1, 3] to [n, channels] each."""
    values, weights, peak = state[:, :, 0].unbind(2)
    return values, weights, torch.where(weights > 0, peak, _NOTHING)


def _go_on(fade: Tensor, bonus: Tensor, tokens: Tensor, grid: TokenGrid, memory: LayerMemory, out: Tensor) -> None:
    """Trunks, token by token as transformers' own function; padding leaves all as it is."""
    given, states = grid.take(tokens), memory.states["state"]
    values, weights, peak = _sums(states.index_select(0, grid.prompts))
    said = torch.empty_like(given[..., 0])
    for rank in range(given.shape[1]):
        v, k, _ = given[:, rank].unbind(2)
        top = torch.maximum(peak, k + bonus)
        before, own = (peak - top).exp(), (k + bonus - top).exp()
        said[:, rank] = (before * values + own * v) / (before * weights + own)
        top = torch.maximum(peak + fade, k)
        before, own = (peak + fade - top).exp(), (k - top).exp()
        after = before * values + own * v, before * weights + own, top
        here = grid.is_token[:, rank, None]
        values, weights, peak = (
            torch.where(here, new, old) for new, old in zip(after, (values, weights, peak), strict=True)
        )
    states[grid.prompts] = torch.stack([values, weights, peak], dim=2)[:, :, None]
    grid.put(said[..., None], out)


def _forked_means(
    fade: Tensor, bonus: Tensor, tokens: Tokens, state: Tensor, ancestors: Ancestors, now: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """As `delta_rule.forked`; decays are numbers of tokens since the trunk."""
    itself = torch.eye(now.shape[1], dtype=torch.bool, device=now.device)
    depths = since_trunk(tokens.g, ancestors, now | itself)
    values, weights, peak = (each[:, None] for each in _sums(state))
    v, k, _ = tokens.v.unbind(3)
    own, of_trunk = k + bonus, peak + fade * (depths[..., 0] - 1)
    top = torch.maximum(own, of_trunk)
    columns = torch.cat([ancestors.updates, tokens.v], dim=1)
    begun = torch.cat([ancestors.decays, depths], dim=1)
    at_once = max(1, _NUMBERS // len(fade))
    before, beside = ancestors.pairs_beside(now)
    pairs = torch.split(behind(before, beside, ancestors.seen.shape[2]), at_once, dim=1)

    def exponents(prompt: Tensor, row: Tensor, column: Tensor) -> Tensor:
        distances = depths[prompt, row] - begun[prompt, column] - 1
        return columns[prompt, column][..., 1] + fade * distances[..., 0]

    for prompt, row, column in pairs:
        reached = exponents(prompt, row, column)
        rows = (prompt * now.shape[1] + row)[:, None].expand_as(reached)
        top.flatten(0, 1).scatter_reduce_(0, rows, reached, "amax")
    theirs, ours = (of_trunk - top).exp(), (own - top).exp()
    values, weights = theirs * values + ours * v, theirs * weights + ours
    for prompt, row, column in pairs:
        rows = prompt * now.shape[1] + row
        heard = (exponents(prompt, row, column) - top[prompt, row]).exp()
        values.flatten(0, 1).index_add_(0, rows, heard * columns[prompt, column][..., 0])
        weights.flatten(0, 1).index_add_(0, rows, heard)
    return (values / weights)[..., None], tokens.v, depths
