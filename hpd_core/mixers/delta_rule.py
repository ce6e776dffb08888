"""Gated delta rule over packed rows: each branch continues from its trunk's state, which is read and not copied.

A state S is a matrix per head, from keys to values. A token lets it decay, and then corrects its value for its key:

    S_t = exp(g_t) S_{t-1} + k_t u_t^T        u_t = beta_t (v_t - exp(g_t) S_{t-1}^T k_t)        o_t = S_t^T q_t

After a trunk with the state S_0, with G_t the sum of all g on the way to a token, that is

    S_t = exp(G_t) S_0 + sum over t's ancestors i and t itself of exp(G_t - G_i) k_i u_i^T

(A state-space model of the second kind, mixers/scans.py, is the same without the correction: u_t = v_t.)

So k, u and G of a branch's tokens are columns, seen by their descendants as keys and values are, and S_0 is not copied.
Among tokens fed together, some corrections depend on others: one triangular system.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hpd_core.mixers.running import LayerStep, Step
from hpd_core.mixers.states import LayerMemory
from hpd_core.mixers.step_plan import BranchGrid, BranchTokens, TokenGrid

_SCORES = 2**24
"""Token-to-token scores computed at a time, over all heads: 64 MiB."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Queries, keys, values, logarithms of decays and betas of tokens: [..., H_k, D], [..., H, D_v], [..., H, 1 or D]
    and [..., H].

    Without betas nothing is corrected.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    beta: Tensor | None

    def each(self, change: Callable[[Tensor], Tensor]) -> Tokens:
        """Apply `change` to each tensor."""
        q, k, v, g = (change(each) for each in (self.q, self.k, self.v, self.g))
        return Tokens(q, k, v, g, None if self.beta is None else change(self.beta))


@dataclass(frozen=True, slots=True)
class Ancestors:
    """Tokens of earlier steps that n prompts with R tokens each see.

    Attributes:
        keys, updates, decays: [n, C, H_k, D], [n, C, H, D_v], [n, C, H, 1 or D], of C columns.
        seen: bool [n, R, C].
        nearest: int64 [n, R], the deepest of them; any column if there is none.
        known_pairs: true places in `seen`, and among these tokens, if the host has computed both (`BranchGrid.pairs`).
    """

    keys: Tensor
    updates: Tensor
    decays: Tensor
    seen: Tensor
    nearest: Tensor
    known_pairs: Callable[[], Sequence[Tensor]] | None = None

    def pairs_beside(self, now: Tensor) -> Sequence[Tensor]:
        """Return the true places in `seen` and in `now`, int64 [3, k] each: prompt, row and column."""
        if self.known_pairs is not None:
            return self.known_pairs()
        return self.seen.nonzero().t(), now.nonzero().t()


def diagonal(now: Tensor) -> Tensor:
    """Pair every token of `now`, bool [n, R, R], with itself, in the format of `Ancestors.pairs_beside`."""
    num_prompts, num_rows, _ = now.shape
    number = torch.arange(num_prompts * num_rows, device=now.device)
    row = number % num_rows
    return torch.stack([number // num_rows, row, row])


def behind(before: Tensor, own: Tensor, num_columns: int) -> Tensor:
    """Concatenate both, [3, k], with the columns of `own` offset by `num_columns`."""
    prompt, row, column = own
    return torch.cat([before, torch.stack([prompt, row, num_columns + column])], dim=1)


def packed_delta_rule(
    step: Step,
    original: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    use_qk_l2norm_in_kernel: bool = False,
    **_: Any,
) -> tuple[Tensor, None]:
    """Replace transformers' `torch_chunk_gated_delta_rule`; same arguments, [1, T, ...] each.

    It also replaces `chunk_kimi_delta_attention`, where each dimension of the keys decays by itself in `g`.
    """
    tokens = Tokens(*(given[0] for given in (query, key, value, g, beta)))

    def go_on(grid: TokenGrid, state: Tensor | None) -> tuple[Tensor, Tensor]:
        padded = tokens.each(grid.take)  # padding neither decays a state nor corrects it
        found, last = original(
            *(padded.q, padded.k, padded.v),
            g=padded.g,
            beta=padded.beta,
            initial_state=state,
            output_final_state=True,
            use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        )
        return found, last

    return step.call(recurred, go_on, widened(tokens, use_qk_l2norm_in_kernel), value.dtype, forked)[None], None


def widened(tokens: Tokens, normalize: bool) -> Tokens:
    """Convert to fp32, scale the queries, and give decays a dimension of their own. Normalize queries and keys if
    asked.
    """
    wide = tokens.each(Tensor.float)
    if wide.g.dim() < wide.v.dim():
        wide = replace(wide, g=wide.g[..., None])
    q, k = wide.q, wide.k
    if normalize:
        q, k = (each * torch.rsqrt(each.square().sum(-1, keepdim=True) + 1e-6) for each in (q, k))
    return replace(wide, q=q * q.shape[-1] ** -0.5, k=k)


GoOn = Callable[[TokenGrid, Tensor | None], tuple[Tensor, Tensor]]
"""Function from tokens and the states before them, None for empty ones, to outputs, [P', R, H, D_v], and final states,
[P', H, D, D_v].
"""

Forked = Callable[[Tokens, Tensor, Ancestors, Tensor], tuple[Tensor, Tensor, Tensor]]
"""Function with the signature of `forked`."""


def recurred(step: LayerStep, go_on: GoOn, tokens: Tokens, dtype: torch.dtype, forked_by: Forked) -> Tensor:
    """Return the outputs of all tokens, [T, H, D_v] of `dtype`: trunks are advanced by `go_on`, branches computed by
    `forked_by`.

    Args:
        tokens: in fp32, queries scaled; all heads of the layer, or the next ones.
    """
    out = torch.empty(tokens.v.shape, dtype=dtype, device=tokens.v.device)
    first, size = step.num_recurred, tokens.v.shape[1]
    for plan in step.plans:
        memory = plan.cache.layers[step.layer]
        if size < plan.cache.shapes[step.layer].heads:
            memory = memory.part(first, size)
        states = memory.states["state"]
        for grid in plan.trunk.grids if plan.trunk is not None else ():
            found, last = go_on(grid, states.index_select(0, grid.prompts))
            states[grid.prompts] = last.to(states.dtype)
            grid.put(found, out)
        if plan.branches is not None:
            # Some versions of transformers have repeated keys for the heads that share them; they are kept once.
            group = tokens.k.shape[1] // memory.columns["keys"].shape[2]
            once = replace(tokens, q=tokens.q[:, ::group], k=tokens.k[:, ::group])
            fork(once, plan.branches, memory, out, forked_by)
    step.num_recurred = first + size
    return out


def fork(tokens: Tokens, branches: BranchTokens, memory: LayerMemory, out: Tensor, forked_by: Forked) -> None:
    """Compute branches: write their columns, and their outputs to `out` [T, H, D_v]."""
    for grid in branches.grids:
        _fork(tokens, grid, memory, branches.ancestors.shape[1], out, forked_by)


def _fork(tokens: Tokens, grid: BranchGrid, memory: LayerMemory, width: int, out: Tensor, forked_by: Forked) -> None:
    """Compute the branches of one grid. `width`: number of columns in front, which are the trunk's."""
    given = tokens.each(grid.tokens.take)
    num_columns = grid.before.shape[2]
    num_prompts, num_rows = given.g.shape[:2]
    at_once = max(1, _SCORES // (given.v.shape[2] * num_rows * (num_rows + num_columns)))
    state = grid.tokens.of_prompts(memory.states["state"])
    columns = [
        grid.tokens.of_prompts(memory.columns[name][:, width : width + num_columns])
        for name in ("keys", "updates", "decays")
    ]
    found = []
    for part in (slice(first, first + at_once) for first in range(0, num_prompts, at_once)):
        keys, updates, decays = (each[part] for each in columns)
        pairs = partial(grid.pairs, part.start, part.stop)
        ancestors = Ancestors(keys, updates, decays, grid.before[part], grid.nearest[part], pairs)
        own = given.each(partial(_part, part))
        found.append(forked_by(own, state[part], ancestors, grid.now[part]))
    said, updates, decays = (torch.cat(parts) for parts in zip(*found, strict=True))
    whose, stored = grid.stored
    for name, written in (("keys", given.k), ("updates", updates), ("decays", decays)):
        memory.columns[name][whose, width + stored] = grid.tokens.pick(written)
    grid.tokens.put(said, out)


def _part(part: slice, tensor: Tensor) -> Tensor:
    return tensor[part]


def forked(tokens: Tokens, state: Tensor, ancestors: Ancestors, now: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute branch tokens after trunks, n prompts with R tokens each; the order within a prompt puts ancestors first.

    Args:
        tokens: in fp32, queries scaled.
        state: [n, H, D, D_v], of the trunks.
        now: bool [n, R, R], the ancestors of each among these tokens.

    Returns:
        Their outputs and corrections, [n, R, H, D_v] each, and their decays since the trunk, [n, R, H, 1 or D].
    """
    group = state.shape[1] // tokens.k.shape[2]
    itself = torch.eye(now.shape[1], dtype=torch.bool, device=now.device)
    decays = since_trunk(tokens.g, ancestors, now | itself)
    q, k = (each.transpose(1, 2) for each in (tokens.q, tokens.k))  # [n, H_k, R, D]
    updates = tokens.v.transpose(1, 2)  # [n, H, R, D_v]

    def weights(rows: Tensor, keys: Tensor, key_decays: Tensor, seen: Tensor, pairs: Sequence[Tensor]) -> Tensor:
        """Return the weight of each column's correction in each row, [n, H, R, columns], or a multiple of R rows.
        `pairs`: true places in `seen`.
        """
        if decays.shape[-1] > 1:
            return _by_pairs(rows, decays, keys, key_decays, pairs)
        distances = decays.permute(0, 2, 1, 3) - key_decays.permute(0, 2, 3, 1)  # [n, H, R, columns]
        faded = distances.masked_fill_(~seen[:, None], -torch.inf).exp_()
        faded = faded.repeat(1, 1, rows.shape[2] // decays.shape[1], 1)
        return (rows @ keys.permute(0, 2, 3, 1)).repeat_interleave(group, dim=1) * faded

    before: list[Tensor] = []
    beside: list[Tensor] = []
    own: list[Tensor] = []
    if decays.shape[-1] > 1:
        before, beside = ([each] for each in ancestors.pairs_beside(now))
        own = [diagonal(now)]
    # What is asked of the state and of columns is asked of them once.
    rows = q if tokens.beta is None else torch.cat([q, k], dim=2)
    faded = decays.exp().transpose(1, 2).repeat(1, 1, rows.shape[2] // decays.shape[1], 1)
    heard = weights(rows, ancestors.keys, ancestors.decays, ancestors.seen, before) @ ancestors.updates.transpose(1, 2)
    rows = rows.repeat_interleave(group, dim=1) * faded
    heard = torch.baddbmm(*(each.flatten(0, 1) for each in (heard, rows, state)))
    heard = heard.view(*state.shape[:2], *heard.shape[1:])
    said, known = heard[:, :, : decays.shape[1]], heard[:, :, decays.shape[1] :]
    if tokens.beta is not None:
        beta = tokens.beta.transpose(1, 2)[..., None]
        system = beta * weights(k, tokens.k, decays, now, beside) + itself
        wrong = beta * (updates - known)
        updates = torch.linalg.solve_triangular(system, wrong, upper=False, unitriangular=True)
    said = said + weights(q, tokens.k, decays, now | itself, [*beside, *own]) @ updates
    return said.transpose(1, 2), updates.transpose(1, 2), decays


def _by_pairs(rows: Tensor, decays: Tensor, keys: Tensor, key_decays: Tensor, pairs: Sequence[Tensor]) -> Tensor:
    """Compute `weights` of `forked` where each dimension of a head's keys decays by itself, so that it is not a matrix
    product. Most columns belong to other branches: only pairs that see each other are computed.

    Args:
        rows: [n, H, R, D], or a multiple of R rows; decays: [n, R, H, D]; keys, key_decays: [n, columns, H, D].
        pairs: int64 [3, ...] each: prompt, row and column.
    """
    num_prompts, num_heads, num_all, size = rows.shape
    found = rows.new_zeros(num_prompts, num_all, keys.shape[1], num_heads)
    for some in torch.split(torch.cat([*pairs], dim=1), max(1, _SCORES // (num_heads * size)), dim=1):
        prompt, row, column = some
        faded = keys[prompt, column] * (decays[prompt, row] - key_decays[prompt, column]).exp()
        for again in range(0, num_all, decays.shape[1]):
            found[prompt, again + row, column] = (rows[prompt, :, again + row] * faded).sum(-1)
    return found.permute(0, 3, 1, 2)


def since_trunk(g: Tensor, ancestors: Ancestors, now: Tensor) -> Tensor:
    """Return each token's sum of `g` over itself and all of its ancestors since the trunk, [n, R, H, 1 or D].

    `now`: bool [n, R, R], the ancestors of each among these tokens, and itself.
    """
    nearest = ancestors.nearest[..., None, None].expand(-1, -1, *ancestors.decays.shape[2:])
    before = torch.gather(ancestors.decays, 1, nearest)
    sums = torch.einsum("nij,njhd->nihd", now.to(g.dtype), g)
    return sums + torch.where(ancestors.seen.any(dim=2)[..., None, None], before, 0)
