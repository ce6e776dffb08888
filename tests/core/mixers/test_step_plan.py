"""A step's tokens as rectangles: each token is in one of them, and padding stays within bounds."""

from __future__ import annotations

import tracemalloc

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpd_core.layout import IntArray
from hpd_core.mixers.seen_columns import AncestorPairs
from hpd_core.mixers.states import MixerCache, MixerShape
from hpd_core.mixers.step_plan import TokenGrid, alike, branch_grids, trunk_tokens

CPU = torch.device("cpu")
COUNTS = st.lists(st.one_of(st.integers(1, 9), st.integers(1, 300), st.integers(1, 3000)), min_size=1, max_size=20)


def of_prompts(counts: list[int]) -> tuple[IntArray, IntArray]:
    """Where in the packed row the tokens of prompts are, and whose; every other prompt has none."""
    prompts = np.repeat(2 * np.arange(len(counts)), counts)
    return 5 + np.arange(len(prompts)), prompts


def padded(grids: list[TokenGrid]) -> int:
    return sum(grid.rows.numel() for grid in grids)


@given(counts=COUNTS, unit=st.sampled_from([1, 16, 64]))
def test_each_prompt_is_in_one_group_that_is_not_much_longer(counts: list[int], unit: int) -> None:
    own = np.array(counts)
    groups = alike(own, unit)
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(counts)))
    for group in groups:
        assert np.all(own[group].max() <= np.maximum(1.5 * own[group], own[group] + unit - 1))
    # A group more for each half again of the length, and no more.
    assert len(groups) <= 2 + np.log(max(counts)) / np.log(1.5)


@given(counts=COUNTS)
def test_trunks_are_padded_within_bounds(counts: list[int]) -> None:
    """One long text among many short ones, too: padding does not grow with it."""
    rows, prompts = of_prompts(counts)
    grids = list(trunk_tokens(rows, prompts, 3, CPU).grids)
    assert padded(grids) <= 1.5 * sum(counts) + 63 * len(counts)
    found = torch.zeros(int(rows[-1]) + 1, dtype=torch.long)
    for grid in grids:
        taken = grid.take(torch.arange(len(found)))
        grid.put(taken, found)
        for prompt, row, is_token in zip(grid.prompts, taken, grid.is_token, strict=True):
            assert row[is_token].tolist() == rows[prompts == prompt.item()].tolist()
            assert not row[~is_token].any()
    assert found.tolist() == [0] * 5 + rows.tolist()


@given(counts=COUNTS.map(lambda counts: [min(count, 400) for count in counts]))
def test_branches_are_padded_within_bounds(counts: list[int]) -> None:
    rows, prompts = of_prompts(counts)
    columns = np.concatenate([np.arange(count) for count in counts])
    nobody = AncestorPairs(*(np.zeros(0, dtype=np.int64) for _ in range(3)))
    grids = branch_grids(rows, prompts, columns, np.zeros_like(rows), nobody, CPU)
    assert padded([grid.tokens for grid in grids]) <= 1.5 * sum(counts) + 15 * len(counts)
    stored = [torch.stack(grid.stored, dim=1) for grid in grids]
    assert sorted(torch.cat(stored).tolist()) == np.stack([prompts, columns], axis=1).tolist()


def test_the_host_keeps_no_matrix_of_all_tokens_and_columns() -> None:
    """Of 32 values of 20 tokens: it was most of a step of a GPU's, which had nothing to do meanwhile."""
    num_prompts, num_values, num_steps = 16, 32, 20
    cache = MixerCache.for_prompts([MixerShape(1, 4, torch.float32, CPU)], [None] * num_prompts, 640)
    prompts, scopes = np.repeat(np.arange(num_prompts), num_values), np.tile(1 + np.arange(num_values), num_prompts)
    for step in range(num_steps):
        tracemalloc.start()
        branches = cache.append(prompts, scopes, scopes, np.full(len(prompts), 9 + step), 0).branches
        assert branches is not None
        (grid,) = branches.grids
        assert grid.nearest.shape == grid.before.shape[:2] == grid.now.shape[:2] == (num_prompts, num_values)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert (grid.before.sum(dim=2) == num_steps - 1).all()
    assert most < 8 * len(prompts) * (num_values * num_steps)


@given(data=st.data())
def test_pairs_are_what_the_masks_say_each_once(data: st.DataObject) -> None:
    """Of several prompts that are fed trees of tokens, in steps of several tokens at a time."""
    num_prompts = data.draw(st.integers(1, 4))
    cache = MixerCache.for_prompts([MixerShape(1, 4, torch.float32, CPU)], [None] * num_prompts, 64)
    for step in range(data.draw(st.integers(1, 3))):
        # Scopes in each other: of each prompt a branch that all its tokens are of, and in it two of their own.
        counts = np.array(data.draw(st.lists(st.integers(1, 4), min_size=num_prompts, max_size=num_prompts)))
        prompts = np.repeat(np.arange(num_prompts), counts)
        scopes = np.array(data.draw(st.lists(st.sampled_from([1, 2, 3]), min_size=len(prompts), max_size=len(prompts))))
        lasts = np.where(scopes == 1, 3, scopes)
        sights = 9 + 8 * step + np.concatenate([np.arange(count) for count in counts])
        branches = cache.append(prompts, scopes, lasts, sights, 0).branches
        assert branches is not None
        for grid in branches.grids:
            height = len(grid.now)
            first = data.draw(st.integers(0, height - 1))
            stop = data.draw(st.integers(first + 1, height + 2))
            for mask, pairs in zip((grid.before, grid.now), grid.pairs(first, stop), strict=True):
                assert sorted(pairs.t().tolist()) == mask[first:stop].nonzero().tolist()
