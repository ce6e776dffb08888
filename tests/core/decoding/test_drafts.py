"""Drafts: where they come from, what is fed of them, what is taken. No answer depends on them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core.attention import kv_cache
from hpd_core.config import EngineConfig
from hpd_core.decoding.decoder import StepReport
from hpd_core.decoding.drafts import LONGEST_DRAFT, Drafter, DraftSource, OpenValue, count_accepted, prompt_lookup
from hpd_core.layout import FREE, Branch, IntArray
from hpd_core.text.constraints import StateTable
from hpd_core.text.endings import Endings, Read
from tests.core.families import FAMILIES, VOCABULARY, build_model
from tests.core.helpers import Prompter, TreeCase, assert_equals_oracle, decode, random_case, random_endings, random_ids
from tests.core.native import WAYS
from tests.core.token_states import token_states
from tests.examples import examples
from tests.tables import table

NEVER = Endings.none(VOCABULARY)
NOTHING = np.zeros(0, dtype=np.int64)
ids = st.lists(st.integers(0, 3), max_size=14)


def array(tokens: Sequence[int]) -> IntArray:
    return np.array(tokens, dtype=np.int64)


# Where they come from.


@table(
    ("document", "written", "expected"),
    [
        ([5, 6, 7, 8, 9], [6], [7, 8]),
        ([5, 6, 7, 8, 9], [1, 2, 8], [9]),
        ([5, 6, 7, 8, 9], [9], []),
        ([5, 6, 7, 8, 9], [4], []),
        ([1, 2, 3, 9, 2, 3, 8, 7], [9, 2, 3], [8, 7]),
        ([1, 2, 5, 1, 3], [1], []),
        ([1, 2, 5, 1, 2], [1], [2, 5]),
        ([1, 2, 5, 0, 1, 2, 6], [1, 2], [5, 0]),
        ([], [1], []),
        ([1], [1], []),
    ],
)
def test_what_stands_behind_the_last_tokens_is_drafted(
    document: list[int], written: list[int], expected: list[int]
) -> None:
    assert list(prompt_lookup(array(document), array(written), 2)) == expected


@given(ids, ids.filter(bool), st.integers(0, 5))
def test_lookup_is_as_said(document: list[int], written: list[int], most: int) -> None:
    expected: list[int] = []
    for size in (3, 2, 1):
        places = [n for n in range(len(document) - size) if document[n : n + size] == written[-size:]]
        if places and len(written) >= size:
            if size > 1 or len({document[n + 1] for n in places}) == 1:
                expected = document[places[0] + size :][:most]
            break
    assert list(prompt_lookup(array(document), array(written), most)) == expected


# What is fed.


def drafter(*drafts: Sequence[int], endings: Sequence[int] = (), table: StateTable | None = None) -> Drafter:
    return Drafter(64, NEVER.also(endings), table, lambda document, written, most: drafts[int(written[0])])


def values(count: int, most: int = 9, state: int = FREE) -> list[OpenValue]:
    return [OpenValue(NOTHING, array([number]), state, Read.NOTHING, most) for number in range(count)]


def test_room_is_shared_evenly() -> None:
    made = drafter([1, 2, 3], [], [4], [5, 6, 7, 8]).propose(values(4), 5)
    assert made.tokens.tolist() == [1, 2, 4, 5, 6]
    assert made.owners.tolist() == [0, 0, 2, 3, 3]
    assert made.states.tolist() == [FREE] * 5


@table("draft", [[7, 9, 7], [7, VOCABULARY, 7], [7, -1, 7], [7]])
def test_a_draft_ends_before_what_closes_or_is_no_token(draft: list[int]) -> None:
    assert drafter(draft, endings=[9]).propose(values(1), 9).tokens.tolist() == [7]


def test_a_draft_is_not_longer_than_its_value_may_be() -> None:
    assert drafter([1, 2, 3]).propose(values(1, most=2), 9).tokens.tolist() == [1, 2]
    assert drafter([1, 2, 3]).propose(values(1, most=0), 9).tokens.tolist() == []


def test_a_draft_ends_where_the_constraint_does_not_allow_it() -> None:
    table = StateTable()
    table.add(token_states([{1: 0}]))
    first = table.add(token_states([{3: 1, 8: 0}, {5: 1}]))
    made = drafter([8, 3, 5, 3], table=table).propose(values(1, state=first), 9)
    assert made.tokens.tolist() == [8, 3, 5]
    assert made.states.tolist() == [first, first + 1, first + 1]
    assert drafter([5], table=table).propose(values(1, state=first), 9).tokens.tolist() == []


def test_drafts_fill_small_steps_only() -> None:
    assert [drafter([1]).room(count) for count in (0, 10, 63, 64, 4000)] == [64, 54, 1, 0, 0]


def test_drafts_pause_while_they_are_wrong() -> None:
    wrong, right = drafter([1]), drafter([1])
    for _ in range(100):
        wrong.learn(10, 0)
        right.learn(10, 5)
        wrong.learn(0, 0)
    assert [wrong.room(10), right.room(10)] == [0, 54]
    rooms = [wrong.room(10) for _ in range(100)]
    assert rooms == sorted(rooms)
    assert rooms[-1] == 54, "a pause ends"
    wrong.learn(10, 5)
    assert wrong.room(10) == 54, "what was learned before the pause is forgotten"


# What is taken.


@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=6), max_size=5))
def test_accepted_rows_are_those_up_to_the_first_wrong_one(rows: list[list[tuple[int, int]]]) -> None:
    expected = []
    for value in rows:
        count = 1
        while count < len(value) and value[count][0] == value[count - 1][1]:
            count += 1
        expected.append(count)
    flat = array([pair for value in rows for pair in value]).reshape(-1, 2)  # type: ignore[misc]
    owners = np.repeat(np.arange(len(rows)), [len(value) for value in rows]).astype(np.int64)
    assert count_accepted(flat[:, 0], owners, flat[:, 1], len(rows)).tolist() == expected


# In the decoder.


@settings(max_examples=examples(40), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    family=st.sampled_from(FAMILIES),
    branches=st.sampled_from([1, 4, 12]),
    k_max=st.sampled_from([1, 2, 9]),
    room=st.sampled_from([2, 9, 33, 500]),
    spoilt=st.sampled_from([0.0, 0.2, 1.0]),
    attention=st.sampled_from(WAYS),
)
def test_whatever_is_drafted_the_answers_are_the_oracles(
    seed: int, family: str, branches: int, k_max: int, room: int, spoilt: float, attention: str
) -> None:
    """Constraints on every other value; drafts too long, with closing tokens and with ids that are none."""
    rng = np.random.default_rng(seed)
    endings = random_endings(rng, share=float(rng.choice([0.0, 0.1, 0.5])))
    prefixes = [random_ids(rng, 0, 8) for _ in range(2)]
    cases = [random_case(rng, "tree", prefixes, branches, k_max) for _ in range(4)]
    options = {"attention": attention, "max_prompts_per_cohort": 3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_cache, "UNUSED_FILL", 1e4)
        plain = decode(build_model(family), cases, endings, EngineConfig(**options))
        source = Prompter(plain, rng, spoilt)
        config = EngineConfig(**options, max_draft_tokens_per_step=room)
        reports: list[StepReport] = []
        prompts = decode(build_model(family), cases, endings, config, source, reports)
    for report in reports:
        num_fed = sum(count for cohort in report.cohorts for _, count in cohort)
        assert report.draft_tokens == 0 or num_fed <= room, "drafts fill a step up to what was said"
    oracle = build_model(family)
    for case, prompt in list(zip(cases, prompts, strict=True))[:2]:
        assert_equals_oracle(oracle, case, prompt, endings)
        assert 0 <= prompt.num_rejected_tokens <= prompt.num_draft_tokens


def one_value_each(count: int, limit: int) -> list[TreeCase]:
    rng = np.random.default_rng(3)
    return [TreeCase([], random_ids(rng, 5, 9), [Branch(random_ids(rng, 2, 2), limit)]) for _ in range(count)]


def run(
    cases: Sequence[TreeCase], room: int, source: DraftSource | None, max_prompts_per_cohort: int = 32
) -> tuple[list[list[int]], list[list[int]]]:
    """The answers, and per step: tokens fed, drafted, rejected."""
    reports: list[StepReport] = []
    config = EngineConfig(max_draft_tokens_per_step=room, max_prompts_per_cohort=max_prompts_per_cohort)
    prompts = decode(build_model("llama"), cases, NEVER, config, source, reports)
    steps = [
        [sum(n for c in report.cohorts for _, n in c), report.draft_tokens, report.rejected_tokens]
        for report in reports
    ]
    assert sum(step[1] for step in steps) == sum(prompt.num_draft_tokens for prompt in prompts)
    assert sum(step[2] for step in steps) == sum(prompt.num_rejected_tokens for prompt in prompts)
    return [prompt.tokens[0] for prompt in prompts], steps


def test_right_drafts_spare_steps() -> None:
    cases = one_value_each(3, limit=12)
    plain, steps = run(cases, 0, None)
    assert [step[1:] for step in steps] == [[0, 0]] * 12
    told = {tuple(tokens[:size]): tokens[size:] for tokens in plain for size in range(1, 12)}
    answers, steps = run(cases, 100, lambda document, written, most: told[tuple(written.tolist())])
    assert answers == plain
    assert LONGEST_DRAFT == 4
    assert steps[1:] == [[15, 12, 0], [15, 12, 0], [3, 0, 0]], "the first one of the prompt, five, five, the last one"


def test_cohorts_share_the_room() -> None:
    cases = one_value_each(4, limit=12)
    plain, _ = run(cases, 0, None)
    told = {tuple(tokens[:size]): tokens[size:] for tokens in plain for size in range(1, 12)}
    answers, steps = run(cases, 9, lambda document, written, most: told[tuple(written.tolist())], 3)
    assert answers == plain
    # While the second cohort's prompt is fed, there is no room.
    assert steps[1][1:] == [0, 0]
    assert steps[2] == [9, 5, 0], "four last tokens, and five of what follows"
    assert max(step[0] for step in steps[2:]) == 9


def test_wrong_drafts_cost_rows_but_no_steps() -> None:
    cases = one_value_each(2, limit=6)
    plain, steps = run(cases, 0, None)
    told = {tuple(tokens[:size]): (tokens[size] + 1) % VOCABULARY for tokens in plain for size in range(1, 6)}
    answers, drafted = run(cases, 7, lambda document, written, most: [told[tuple(written.tolist())]] * most)
    assert answers == plain
    assert len(drafted) == len(steps)
    # Room for five; the last token of a value is not fed.
    assert drafted[1:] == [[7, 5, 5], [7, 5, 5], [6, 4, 4], [4, 2, 2], [2, 0, 0]]


def test_values_that_others_see_get_no_drafts() -> None:
    rng = np.random.default_rng(2)
    cases = [random_case(rng, "stacked", [random_ids(rng, 3, 6)], branches=4, k_max=6) for _ in range(3)]
    reports: list[StepReport] = []
    config = EngineConfig(max_draft_tokens_per_step=500)
    decode(build_model("llama"), cases, NEVER, config, lambda *_: range(VOCABULARY), reports)
    assert [report.draft_tokens for report in reports] == [0] * len(reports)


def test_a_decoder_ceases_to_draft_what_is_always_wrong() -> None:
    cases = one_value_each(8, limit=60)
    plain, _ = run(cases, 0, None)
    told = {tuple(tokens[:size]): (tokens[size] + 1) % VOCABULARY for tokens in plain for size in range(1, 60)}
    answers, steps = run(cases, 100, lambda document, written, most: [told[tuple(written.tolist())]] * most)
    assert answers == plain
    drafted = [step[1] for step in steps[1:]]
    assert drafted[:3] == [32] * 3
    assert drafted[40:] == [0] * len(drafted[40:])
