"""The tables of a step, over what the cohorts of a decoder really feed: who sees what, and where it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core.attention.plan import AddressedPlan
from hpd_core.attention.step_tables import (
    PROMPT_FIELDS,
    TILE_FIELDS,
    TOKEN_FIELDS,
    Cut,
    Sizes,
    StepTables,
    packed_scopes,
    step_tables,
    views,
)
from hpd_core.config import EngineConfig
from hpd_core.decoding import decoder as decoder_module
from hpd_core.decoding.cohort_cache import UNSEEN
from hpd_core.decoding.cohort_input import CohortInput
from hpd_core.decoding.model_runner import ModelRunner
from hpd_core.decoding.next_token import Chosen
from hpd_core.layout import FREE, PUBLIC, IntArray, visible
from tests.core.attention.step_problems import ORDER, Shape, step_problem, unpacked
from tests.core.families import BOTH_WAYS, VOCABULARY, build_model
from tests.core.helpers import decoder_with_constraints, random_case, random_endings, random_ids, without_constraints
from tests.examples import examples
from tests.tables import table

CUTS = [Cut(rows, few, group) for rows, few, group in ((128, 64, 4), (16, 16, 1), (8, 4, 3), (4, 0, 9))]


def tables_of(plans: Sequence[AddressedPlan], cut: Cut, room: Sizes | None = None) -> StepTables:
    ids = np.arange(plans[-1].stop) + 7
    return step_tables(plans, ids, ids[::3] - 7, cut, plans[0].slots[0].shape, 64, 128, room)


@dataclass
class Checker:
    """Checks the tables of one step after the other.

    Attributes:
        seen: how often something happened that a test has to have seen.
    """

    cut: Cut
    seen: Counter[str]

    def check(self, plans: Sequence[AddressedPlan]) -> None:
        """All that the tables say of these cohorts."""
        tables = tables_of(plans, self.cut)
        parts = views(tables.numbers, tables.sizes)
        owners = [(plan, row) for plan in plans for row in np.nonzero(plan.counts)[0].tolist()]
        assert len(parts.prompts) == len(owners)
        self._note(plans, parts.hidden)
        for place, (plan, row) in zip(parts.prompts, owners, strict=True):
            self._check_addresses(dict(zip(PROMPT_FIELDS, place.tolist(), strict=True)), plan, row)
        self._check_tokens(dict(zip(TOKEN_FIELDS, parts.tokens, strict=True)), plans, owners)
        assert parts.rows.tolist() == list(range(0, plans[-1].stop, 3))
        assert tables.last_position == max(int(plan.positions.max()) for plan in plans)
        self._check_tiles(parts.tiles, plans, owners)
        self._check_room(plans, tables)
        self.seen["cohorts"] = max(self.seen["cohorts"], len(plans))

    def _note(self, plans: Sequence[AddressedPlan], hidden: IntArray) -> None:
        """As the kernel does."""
        there = [
            plan.slots[prompt].seen[1, column]
            for plan in plans
            for prompt, column in zip(plan.hidden_prompts.tolist(), plan.hidden_columns.tolist(), strict=True)
        ]
        assert [128 + 8 * place for place in hidden.tolist()] == [place.data_ptr() for place in there]
        for place in there:
            place.fill_(UNSEEN)
        self.seen["hidden columns"] += len(there)
        for plan in plans:
            seen = torch.from_numpy(np.stack([packed_scopes(plan.scopes, plan.lasts), plan.positions]))
            for prompt, slot in enumerate(plan.slots):
                own = plan.prompts == prompt
                slot.seen[:, plan.columns[own]] = seen[:, own]

    def _check_addresses(self, found: dict[str, int], plan: AddressedPlan, row: int) -> None:
        """Number by number, of every layer and head."""
        slot, prefix = plan.slots[row], plan.prefixes[row]
        size = slot.keys.itemsize
        for layer in range(len(slot.keys)):
            for head in range(slot.keys.shape[1]):
                for name, tensor in (("keys", slot.keys[layer, head]), ("values", slot.values[layer, head])):
                    number = found[name] + layer * found[f"{name}_layer"] + head * found[f"{name}_head"]
                    assert 64 + size * number == tensor.data_ptr()
                if prefix is None:
                    continue
                for name, tensor in (("keys", prefix.keys[layer][head]), ("values", prefix.values[layer][head])):
                    field = f"prefix_{name}"
                    number = found[field] + layer * found[f"{field}_layer"] + head * found[f"{field}_head"]
                    assert 64 + size * number == tensor.data_ptr()
        assert 128 + 8 * found["scopes"] == slot.seen[0].data_ptr()
        assert 128 + 8 * found["positions"] == slot.seen[1].data_ptr()
        assert found["prefix_length"] == (prefix.num_tokens if prefix else 0)
        self.seen["prefixes"] += prefix is not None

    def _check_tokens(
        self, found: dict[str, IntArray], plans: Sequence[AddressedPlan], owners: list[tuple[AddressedPlan, int]]
    ) -> None:
        assert found["id"].tolist() == list(range(7, plans[-1].stop + 7))
        number_of = {(id(plan), row): number for number, (plan, row) in enumerate(owners)}
        for plan in plans:
            here = slice(plan.start, plan.stop)
            assert found["position"][here].tolist() == plan.positions.tolist()
            scopes, lasts = unpacked(found["scope"][here])
            assert scopes.tolist() == plan.scopes.tolist()
            assert lasts.tolist() == plan.lasts.tolist()
            assert found["column"][here].tolist() == plan.columns.tolist()
            assert found["prompt"][here].tolist() == [number_of[id(plan), row] for row in plan.prompts.tolist()]

    def _check_tiles(
        self, tiles: IntArray, plans: Sequence[AddressedPlan], owners: list[tuple[AddressedPlan, int]]
    ) -> None:
        times = np.zeros(plans[-1].stop, dtype=int)
        is_small = []
        for tile in tiles:
            of = dict(zip(TILE_FIELDS, tile.tolist(), strict=True))
            plan, row = owners[of["prompt"]]
            times[of["first_token"] : of["first_token"] + of["num_tokens"]] += 1
            assert 0 < of["num_tokens"] <= self.cut.tokens
            is_small.append(of["num_tokens"] * self.cut.group <= self.cut.few_rows)
            self._check_tile(of, plan, row)
        assert (times == 1).all(), "every token is in one tile"
        assert is_small == sorted(is_small), "large ones begin first"

    def _check_tile(self, tile: dict[str, int], plan: AddressedPlan, row: int) -> None:
        first = tile["first_token"] - plan.start
        here = slice(first, first + tile["num_tokens"])
        assert (plan.prompts[here] == row).all()
        # Behind what is in use there may be anything.
        k_scopes, k_positions = plan.slots[row].seen[:, : plan.used[row]].numpy()
        columns = (*unpacked(k_scopes), k_positions)
        sees = visible(plan.scopes[here, None], plan.sights[here, None], *columns)
        column = np.arange(len(k_scopes))
        own = plan.columns[here, None]
        assert np.take_along_axis(sees, own, axis=1).all(), "every token sees itself"
        is_open = column < tile["num_open"]
        assert not (sees & (column > own) & ~is_open).any(), "no token sees a column behind its own that is not open"
        by_position = visible(plan.scopes[here, None], plan.positions[here, None], *columns)
        assert ((sees == by_position) | is_open).all(), "behind open columns kernels know positions alone"
        assert tile["end"] <= plan.used[row]
        assert sees[:, is_open].all(), "all see what is open"
        is_read = is_open | ((column >= tile["begin"]) & (column < tile["end"]))
        assert not sees[:, ~is_read].any(), "what is not read is seen by nobody"
        self.seen["open columns"] += tile["num_open"]
        self.seen["columns that are gone past"] += tile["begin"] - tile["num_open"]

    def _check_room(self, plans: Sequence[AddressedPlan], tables: StepTables) -> None:
        """Tables of a fixed size begin with the same, and the rest has no effect."""
        needed = tables.sizes
        room = Sizes(needed.tiles + 2, needed.prompts + 1, needed.tokens + 3, needed.rows + 5, needed.hidden + 2)
        found, wanted = views(tables_of(plans, self.cut, room).numbers, room), views(tables.numbers, needed)
        for part, whole, own in (
            (found.tiles, room.tiles, wanted.tiles),
            (found.prompts, room.prompts, wanted.prompts),
            (found.rows, room.rows, wanted.rows),
        ):
            assert len(part) == whole
            assert np.array_equal(part[: len(own)], own)
        assert not found.tiles[needed.tiles :, TILE_FIELDS.index("num_tokens")].any()
        assert np.array_equal(found.tokens[:, : needed.tokens], wanted.tokens)
        assert (found.tokens[TOKEN_FIELDS.index("prompt"), needed.tokens :] == -1).all()
        assert not found.rows[needed.rows :].any()
        assert np.array_equal(found.hidden[: needed.hidden], wanted.hidden)
        assert (found.hidden[needed.hidden :] == np.iinfo(np.int64).min).all()
        for field in ("tiles", "prompts", "tokens", "rows", "hidden"):
            if not getattr(needed, field):
                continue
            with pytest.raises(ValueError, match="does not fit"):
                tables_of(plans, self.cut, replace(room, **{field: getattr(needed, field) - 1}))


def run_decoder(rng: np.random.Generator, layout: str, changes: dict[str, Any], checker: Checker) -> None:
    """Decodes random prompts to random tokens; no model computes anything."""
    endings = random_endings(rng, share=0.08)
    prefixes = [[], random_ids(rng, 9, 15), random_ids(rng, 3, 5)]
    cases = [
        without_constraints(random_case(rng, layout, prefixes, branches=int(rng.integers(1, 5)), k_max=6, document=40))
        for _ in range(int(rng.integers(3, 14)))
    ]

    scatter = decoder_module.Decoder._scatter

    def scatter_and_reject(self: Any, cohorts: list[Any], inputs: list[CohortInput], chosen: Chosen) -> None:
        """Hide some columns, as nodes of tries are hidden that come to nothing."""
        scatter(self, cohorts, inputs, chosen)
        for cohort, fed in zip(cohorts, inputs, strict=True):
            if layout != "stacked" and isinstance(fed.plan, AddressedPlan) and not fed.plan.is_prefill:
                wrong = rng.random(len(fed.token_ids)) < 0.3
                cohort._cache.reject(fed.plan, wrong)
                checker.seen["rejected columns"] += int(wrong.sum())

    def run(_: ModelRunner, inputs: Sequence[CohortInput]) -> Any:
        checker.check([item.plan for item in inputs if isinstance(item.plan, AddressedPlan)])
        count = sum(len(item.logit_rows) for item in inputs)
        chosen = Chosen(rng.integers(0, VOCABULARY, count), np.zeros(count, dtype=np.float32), np.full(count, FREE))
        return SimpleNamespace(fetch=lambda: chosen)

    config = EngineConfig(attention="eager", **changes)
    with (
        patch.object(decoder_module, "cache_order", lambda *_: ORDER),
        patch.object(ModelRunner, "run", run),
        patch.object(decoder_module.Decoder, "_scatter", scatter_and_reject),
    ):
        decoder = decoder_with_constraints(build_model("llama"), endings, config)
        prompts = [case.prompt() for case in cases]
        decoder.add(prompts)
        while decoder.has_work:
            report = decoder.step()
            checker.seen["shared prefixes"] += len(report.computed_prefixes)
    assert all(prompt.is_finished for prompt in prompts)


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    layout=st.sampled_from(["tree", "stacked", BOTH_WAYS]),
    cut=st.sampled_from(CUTS),
    changes=st.fixed_dictionaries(
        {
            "max_tokens_per_step": st.sampled_from([7, 30, 200]),
            "max_prompts_per_cohort": st.integers(1, 6),
            "overlap_steps": st.booleans(),
        }
    ),
)
def test_tables_say_what_cohorts_feed(seed: int, layout: str, cut: Cut, changes: dict[str, Any]) -> None:
    run_decoder(np.random.default_rng(seed), layout, changes, Checker(cut, Counter()))


@table("layout", ["tree", "stacked", BOTH_WAYS])
def test_that_is_seen_of_all_that_happens(layout: str) -> None:
    """Else the property above might hold for want of cases."""
    seen: Counter[str] = Counter()
    for seed in range(3):
        changes = {"max_tokens_per_step": 60, "max_prompts_per_cohort": 3}
        run_decoder(np.random.default_rng(seed), layout, changes, Checker(CUTS[2], seen))
    assert seen["cohorts"] > 1
    assert all(seen[name] for name in ("open columns", "prefixes", "shared prefixes"))
    for name in ("rejected columns", "hidden columns", "columns that are gone past"):
        assert (seen[name] > 0) == (layout != "stacked"), name  # in stacked prompts all is public


@settings(max_examples=examples(100), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    cohorts=st.lists(
        st.lists(st.one_of(st.just(0), st.integers(1, 90)), min_size=1, max_size=4).filter(any),
        min_size=1,
        max_size=3,
    ),
    earlier=st.sampled_from([0, 3, 90]),
    cut=st.sampled_from(CUTS),
)
def test_tables_say_what_plans_say(seed: int, cohorts: list[list[int]], earlier: int, cut: Cut) -> None:
    """Also what no cohort of today feeds; and the problems that the kernel is given are of the kind that it takes."""
    shape = Shape(cohorts, earlier, 2, 1, 2, 3, prefix_lengths=(4,))
    Checker(cut, Counter()).check(step_problem(np.random.default_rng(seed), shape).plans)


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


def test_a_step_that_only_fills_up_does_nothing() -> None:
    sizes = Sizes(3, 3, 4, 4, 2)
    shape = step_problem(np.random.default_rng(0), Shape([[1]], 0)).cache_shape
    tables = step_tables([], np.zeros(0, np.int64), np.zeros(0, np.int64), CUTS[0], shape, 0, 0, sizes)
    parts = views(tables.numbers, sizes)
    assert not parts.tiles.any()
    assert (parts.tokens[TOKEN_FIELDS.index("prompt")] == -1).all()
    assert (parts.hidden == np.iinfo(np.int64).min).all()
