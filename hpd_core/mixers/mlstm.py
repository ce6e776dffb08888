"""The mLSTM of xLSTM over packed rows: a state as the delta rule's without corrections, entered by the exponential of
a gate, and divided by how much has entered.

With S and n the sums of entries k v^T and k, each times exp(i) and faded since (delta_rule.py), a token says

    S^T q / (max(|n . q|, 1) + eps exp(m))        m_t = max(m_{t-1} + log f_t, i_t), of an empty text 0

So n is one more column of values, and m, the peak, is found beside them. Transformers keeps S and n times exp(-m);
gates are capped, so that they need not be.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hpd_core.mixers.delta_rule import Ancestors, Tokens, fork, forked
from hpd_core.mixers.running import LayerStep
from hpd_core.mixers.states import LayerMemory
from hpd_core.mixers.step_plan import TokenGrid

EXTRA_VALUES = 2
"""Beside a token's values: how much has entered, and in its own column the peak, which a state has in its first row."""

_NEVER = 1e4
"""A gate that is open, or with the other sign closed, whatever the others are."""


def packed_mlstm(
    step: LayerStep, module: Any, query: Tensor, key: Tensor, value: Tensor, igate: Tensor, fgate: Tensor, **_: Any
) -> tuple[Tensor, None]:
    """In place of the forward of `xLSTMBackend`.

    Args:
        query, key, value: [1, H, T, D], and D_v of values; igate, fgate: [1, H, T].

    Returns:
        As `value`.
    """
    q, k, v = (each[0].transpose(0, 1) for each in (query, key, value))
    i, f = igate[0].t().float(), fgate[0].t().float()
    entry = i.exp()[..., None]
    values = torch.cat([v.float() * entry, entry, torch.zeros_like(entry)], dim=2)
    tokens = Tokens(q.float() * q.shape[-1] ** -0.5, k.float(), values, F.logsigmoid(f)[..., None], None)
    out, sums = torch.empty_like(v, memory_format=torch.contiguous_format), torch.empty_like(values)
    for plan in step.plans:
        memory = plan.cache.layers[step.layer]
        for grid in plan.trunk.grids if plan.trunk is not None else ():
            _go_on(module, (q, k, v, i, f), grid, memory, out)
        if plan.branches is not None:
            fork(tokens, plan.branches, memory, sums, _forked_with_peaks)
            rows = plan.branches.rows
            entered, amount, peak = torch.split(sums.index_select(0, rows), [v.shape[2], 1, 1], dim=2)
            out[rows] = (entered / (amount.abs().clamp_min(1) + module.config.eps * peak.exp())).to(out.dtype)
    step.has_recurred = True
    return out.transpose(0, 1)[None], None


def _go_on(module: Any, tokens: tuple[Tensor, ...], grid: TokenGrid, memory: LayerMemory, out: Tensor) -> None:
    """Trunks, by transformers' own functions, which take no half precision: padding neither enters nor fades."""
    q, k, v, i, f = (grid.take(each).transpose(1, 2).float() for each in tokens)  # [P', H, R, ...]
    is_token, states = grid.is_token[:, None], memory.states["state"]
    state = states.index_select(0, grid.prompts)
    peak = state[:, :, 0, -1:]  # [P', H, 1]
    sums = state[..., :-1] * (-peak[..., None]).exp()
    found, (sums_v, sums_k, peak) = type(module).forward(
        module,
        *(q, k, v),
        igate=i.masked_fill(~is_token, -_NEVER),
        fgate=f.masked_fill(~is_token, _NEVER),
        c_initial=sums[..., :-1],
        n_initial=sums[..., -1],
        m_initial=peak,
        mode="inference",
    )
    after = torch.zeros_like(state)
    after[..., :-1] = torch.cat([sums_v, sums_k[..., None]], dim=3) * peak[..., None].exp()
    after[:, :, 0, -1:] = peak
    states[grid.prompts] = after
    grid.put(found.transpose(1, 2), out)


def _forked_with_peaks(
    tokens: Tokens, state: Tensor, ancestors: Ancestors, now: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """As `delta_rule.forked`, the peaks in the last column of what tokens say."""
    said, updates, decays = forked(tokens, state, ancestors, now)
    itself = torch.eye(now.shape[1], dtype=torch.bool, device=now.device)
    seen = torch.cat([ancestors.seen, now | itself], dim=2)[..., None]
    entries = torch.cat([ancestors.updates, updates], dim=1)[..., -2]
    gates = entries.log() - torch.cat([ancestors.decays, decays], dim=1)[..., 0]  # [n, C + R, H]
    entered = torch.where(seen, gates[:, None], -torch.inf).amax(dim=2)
    peaks = decays[..., 0] + torch.maximum(entered, state[:, None, :, 0, -1])
    return torch.cat([said[..., :-1], peaks[..., None]], dim=3), updates, decays
