"""The parts of a cohort, each alone: what prefill feeds, where the cache keeps it, how values' states are merged."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from hpd_core.attention.plan import PrefixCache
from hpd_core.decoding.cohort import Prefill
from hpd_core.decoding.cohort_cache import prompt_groups, ranks_within, side_by_side
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import Branch, tree_layout

lengths = st.lists(st.integers(1, 9), min_size=1, max_size=5)


def prompt(own: int, limits: list[int], prefix: int = 2) -> Prompt:
    """Its own tokens are the document and one key token per branch: `prefix`, `prefix` + 1, and so on."""
    ids = list(range(prefix + own + len(limits)))
    branches = [Branch([key], limit) for key, limit in zip(ids[prefix + own :], limits, strict=True)]
    return Prompt(tree_layout(ids[:prefix], ids[prefix : prefix + own], branches), "p")


@given(lengths, st.integers(1, 30))
def test_prefill_feeds_every_own_token_once_and_in_order(own: list[int], budget: int) -> None:
    prefill = Prefill([prompt(length, [1]) for length in own])
    fed: list[list[int]] = [[] for _ in own]
    while left := int(prefill.num_left.sum()):
        tokens = prefill.feed(budget)
        assert len(tokens.token_ids) <= max(budget, len(own)), "the budget, or one column"
        assert tokens.ranks.tolist() == ranks_within(tokens.prompts).tolist()
        assert int(prefill.num_left.sum()) == left - len(tokens.token_ids)
        for row, token in zip(tokens.prompts.tolist(), tokens.token_ids.tolist(), strict=True):
            fed[row].append(token)
    assert fed == [list(range(2, 2 + length + 1)) for length in own]


def test_prompts_of_a_prefix_stand_side_by_side_by_length() -> None:
    a, b = (PrefixCache([torch.zeros(1, 2, 2)], [torch.zeros(1, 2, 2)]) for _ in range(2))
    prefixes = [a, b, None, a, b]
    order = side_by_side(prefixes, [5, 3, 1, 4, 9])
    assert order.tolist() == [3, 0, 1, 4, 2]
    groups = prompt_groups([prefixes[row] for row in order])
    assert [(group.start, group.stop, group.prefix) for group in groups] == [(0, 2, a), (2, 4, b), (4, 5, None)]
