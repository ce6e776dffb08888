"""The gated delta rule of forked branches against its definition: one path from root to leaf at a time, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from hpd_core.mixers.delta_rule import Ancestors, Tokens, forked

from .trees import chain_to, random_parents

H_K, H, D, D_V = 2, 4, 5, 3


def random_tokens(rng: np.random.Generator, size: int, dtype: torch.dtype, decay_size: int) -> Tokens:
    def normal(*sizes: int) -> Tensor:
        return torch.tensor(rng.standard_normal((1, size, *sizes)), dtype=dtype)

    k_heads, decays = (H_K, (H, 1)) if decay_size == 1 else (H, (H, decay_size))
    q, k = normal(k_heads, D), normal(k_heads, D) / D**0.5
    return Tokens(q, k, normal(H, D_V), -normal(*decays).abs() / 4, normal(H).sigmoid())


def one_by_one(tokens: Tokens, state: Tensor, chain: list[int]) -> Tensor:
    """What the last token of the chain says, by the definition; [H, D_V]."""
    state = state.clone()
    group = H // tokens.q.shape[2]
    for node in chain:
        q, k, v, g, beta = (getattr(tokens, name)[0, node] for name in ("q", "k", "v", "g", "beta"))
        q, k = q.repeat_interleave(group, 0), k.repeat_interleave(group, 0)
        state *= g.exp()[:, :, None]
        wrong = v - torch.einsum("hdv,hd->hv", state, k)
        state += torch.einsum("hd,hv->hdv", k, beta[:, None] * wrong)
    return torch.einsum("hdv,hd->hv", state, q)


def descent(rows: range, columns: range, parents: list[int]) -> Tensor:
    """Bool [1, rows, columns], which columns are ancestors of which rows."""
    found = torch.zeros(1, len(rows), len(columns), dtype=torch.bool)
    for row in rows:
        for ancestor in chain_to(row, parents)[:-1]:
            if ancestor in columns:
                found[0, row - rows.start, ancestor - columns.start] = True
    return found


@pytest.mark.parametrize("decay_size", [1, D])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 2e-4)])
@given(seed=st.integers(0, 2**32 - 1), num_first=st.integers(1, 9), num_then=st.integers(1, 9))
def test_every_path_is_as_if_it_were_alone(
    dtype: torch.dtype, tolerance: float, decay_size: int, seed: int, num_first: int, num_then: int
) -> None:
    """A tree whose first nodes are fed in a step before the others."""
    rng = np.random.default_rng(seed)
    size = num_first + num_then
    parents = random_parents(rng, size)
    tokens = random_tokens(rng, size, dtype, decay_size)
    state = torch.tensor(rng.standard_normal((1, H, D, D_V)), dtype=dtype)
    first, then = range(num_first), range(num_first, size)

    nobody = torch.zeros(1, num_first, 1, dtype=torch.bool)
    keys, updates, decays = (
        torch.ones(1, 1, *sizes, dtype=dtype) for sizes in (tokens.k.shape[2:], (H, D_V), (H, decay_size))
    )
    unseen = Ancestors(keys, updates, decays, nobody, nobody[..., 0].long())
    given = tokens.each(lambda each: each[:, :num_first])
    said, updates, decays = forked(given, state, unseen, descent(first, first, parents))

    seen = descent(then, first, parents)
    nearest = (seen * torch.arange(1, num_first + 1)).argmax(2)  # who comes later is nobody's ancestor
    ancestors = Ancestors(tokens.k[:, :num_first], updates, decays, seen, nearest)
    given = tokens.each(lambda each: each[:, num_first:])
    found = torch.cat([said, forked(given, state, ancestors, descent(then, then, parents))[0]], dim=1)[0]
    for node in range(size):
        expected = one_by_one(tokens, state[0], chain_to(node, parents))
        torch.testing.assert_close(found[node], expected, atol=tolerance, rtol=tolerance)


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Numbers of the largest tensor that is made while it is entered."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor):
            self.numbers = max(self.numbers, made.numel())
        return made


def test_where_dimensions_fade_apart_columns_of_other_branches_cost_nothing() -> None:
    """Of 32 branches with 8 tokens each; a number for each head, dimension, token and column were gigabytes."""
    size, rows, columns = 16, 32, 256
    rng = np.random.default_rng(1)
    tokens, before = (random_tokens(rng, count, torch.float32, size) for count in (rows, columns))
    keys = torch.randn(1, columns, H, size)
    tokens = Tokens(torch.randn(1, rows, H, size), torch.randn(1, rows, H, size), tokens.v, tokens.g, tokens.beta)
    seen = torch.arange(columns)[None, None] // 8 == torch.arange(rows)[None, :, None]
    ancestors = Ancestors(keys, before.v, before.g, seen, 8 * torch.arange(rows)[None])
    with Largest() as largest:  # type: ignore[no-untyped-call]
        forked(tokens, torch.randn(1, H, size, D_V), ancestors, torch.zeros(1, rows, rows, dtype=torch.bool))
    assert largest.numbers < H * size * rows * columns / 4
