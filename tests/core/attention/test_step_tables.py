"""The tables of a step, over what the cohorts of a decoder really feed: who sees what, and where it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hpd_core.attention.plan import AddressedPlan
from hpd_core.attention.step_tables import (
    Cut,
    Sizes,
    StepTables,
    step_tables,
    views,
)
from hpd_core.layout import PUBLIC
from tests.core.attention.step_problems import Shape, step_problem


def tables_of(plans: Sequence[AddressedPlan], cut: Cut, room: Sizes | None = None) -> StepTables:
    ids = np.arange(plans[-1].stop) + 7
    return step_tables(plans, ids, ids[::3] - 7, cut, plans[0].slots[0].shape, 64, 128, room)


def test_a_branch_goes_past_the_branches_before_it() -> None:
    """A document of 40 and 8 branches of 5 each, in one step: the tile of the last branches reads little but them."""
    item = step_problem(np.random.default_rng(0), Shape([[80]], 0, 1, 1, 2, 2))
    scopes = np.repeat([PUBLIC, *range(8)], [40, *[5] * 8])
    positions = np.concatenate([np.arange(40), np.tile(np.arange(40, 45), 8)])
    plan = replace(
        item.plans[0],
        scopes=scopes,
        positions=positions,
        sights=positions,
        num_leading=np.array([40]),
        leading_positions=np.array([0]),
        leads_only=np.array([True]),
        is_prefill=True,
    )
    tiles = views((tables := tables_of([plan], Cut(10, 0, 1))).numbers, tables.sizes).tiles
    # prompt, first token, tokens, open columns, and where the rest begins and ends
    assert tiles[0].tolist() == [0, 0, 10, 1, 1, 10]
    assert tiles[3].tolist() == [0, 30, 10, 31, 31, 40]
    of_branches = [[0, first, 10, 40, first, first + 10] for first in (40, 50, 60, 70)]
    assert tiles[4:].tolist() == of_branches
    # Read both ways, all of the document is open to its tokens.
    both_ways = replace(plan, sights=np.where(scopes == PUBLIC, 39, positions))
    tiles = views((tables := tables_of([both_ways], Cut(10, 0, 1))).numbers, tables.sizes).tiles
    assert tiles[:4].tolist() == [[0, first, 10, 40, 40, 40] for first in (0, 10, 20, 30)]
    assert tiles[4:].tolist() == of_branches
