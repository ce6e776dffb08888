"""Values that are chosen among members, in a cohort: who is fed in which order, what waits, what leaves the cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpd_core.config import EngineConfig
from hpd_core.decoding.cohort import Cohort
from hpd_core.decoding.decoder import StepReport
from hpd_core.decoding.prompt import Prompt
from hpd_core.decoding.scoring import Scoring
from hpd_core.decoding.value_states import ValueIndex, ValueStates
from hpd_core.layout import Branch, IntArray, Members, tree_layout
from tests.core.families import VOCABULARY, build_model
from tests.core.helpers import (
    ROOTS,
    TRIES,
    TreeCase,
    assert_equals_oracle,
    decode,
    new_decoder,
    random_endings,
    random_ids,
)
from tests.tables import table

LARGEST = max(ROOTS)


def branch(root: int, key: int = 5, most: int | None = None) -> Branch:
    num_nodes = ROOTS[root][1]
    return Branch([key], 6, members=Members(root, num_nodes, num_nodes - 1 if most is None else most))


def prompts(count: int) -> list[Prompt]:
    """Two values each; their documents have different lengths."""
    return [Prompt(tree_layout([], [3] * (1 + row), [branch(LARGEST), branch(LARGEST, 6)]), ()) for row in range(count)]


def say(nodes: IntArray, who: list[tuple[int, int]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Log-probabilities of all ways of nodes; `who`: of each node, whose it is."""
    rows, ids = TRIES.wanted(nodes)
    found = [
        np.random.default_rng([*who[row], int(nodes[row]), int(token)]).normal(-3, 2)
        for row, token in zip(rows.tolist(), ids.tolist(), strict=True)
    ]
    return np.array(found, dtype=np.float32)


def begin(scoring: Scoring, values: ValueStates, at: ValueIndex, names: list[int]) -> None:
    who = [(names[row], number) for row, number in zip(*(each.tolist() for each in at), strict=True)]
    scoring.begin(at, values, say(values.roots[at], who))


def finish(scoring: Scoring, values: ValueStates, names: list[int], most: int) -> None:
    """Feeds until all are chosen, as a cohort does: what is heard comes in the order of the packed row."""
    while scoring.num_next:
        tokens, nodes = scoring.feed(values, most)
        assert (np.diff(tokens.prompts) >= 0).all(), "the order of the packed row"
        starts = values.scopes[tokens.prompts, :]
        branches = (tokens.scopes[:, None] >= starts).sum(axis=1) - 1
        who = [(names[row], number) for row, number in zip(tokens.prompts.tolist(), branches.tolist(), strict=True)]
        scoring.hear(values, say(nodes, who))


def answers(values: ValueStates, names: list[int]) -> dict[int, list[list[int]]]:
    found = {}
    for row, name in enumerate(names):
        found[name] = [values.tokens[row, b, : values.counts[row, b]].tolist() for b in range(values.num_branches)]
        assert not values.is_open[row].any()
    return found


@table("most", [1, 30, 10_000])
def test_values_that_change_rows_keep_what_they_have_heard(most: int) -> None:
    """They begin in two cohorts, in no order, and go on in a third one, where rows are mixed."""
    alone = ValueStates.of_prompts(prompts(6))
    plain = Scoring(TRIES)
    begin(plain, alone, (np.repeat(np.arange(6), 2), np.tile([0, 1], 6)), [*range(6)])
    finish(plain, alone, [*range(6)], most)
    expected = answers(alone, [*range(6)])

    every = prompts(6)
    parts = [every[:4], every[4:]]
    names = [[0, 1, 2, 3], [4, 5]]
    states = [ValueStates.of_prompts(part) for part in parts]
    scorings = [Scoring(TRIES), Scoring(TRIES)]
    for at in ((np.array([0, 2]), np.array([1, 0])), (np.array([1, 3]), np.array([0, 0]))):
        begin(scorings[0], states[0], at, names[0])
    begin(scorings[0], states[0], (np.array([0, 1, 2, 3]), np.array([0, 1, 1, 1])), names[0])
    begin(scorings[1], states[1], (np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])), names[1])
    order = np.array([4, 0, 5, 3, 1, 2])
    merged = ValueStates.merge(states).rows(order)
    places = np.argsort(order)
    scoring = Scoring.merge(scorings, [places[:4], places[4:]])
    mixed = [[0, 1, 2, 3, 4, 5][row] for row in order]
    finish(scoring, merged, mixed, most)
    assert answers(merged, mixed) == expected


def closed_cases(count: int, most: int | None = None) -> list[TreeCase]:
    rng = np.random.default_rng(4)
    return [
        TreeCase([], random_ids(rng, 1, 12), [branch(LARGEST, 3 + b, most) for b in range(4)] + [Branch([9], 8)])
        for _ in range(count)
    ]


def step_sizes(reports: list[StepReport]) -> list[int]:
    return [sum(count for cohort in report.cohorts for _, count in cohort) for report in reports]


def test_nodes_wait_where_a_step_would_be_too_large() -> None:
    cases, endings = closed_cases(12), random_endings(np.random.default_rng(0), 0.02)
    free: list[StepReport] = []
    bound: list[StepReport] = []
    plain = decode(build_model("llama"), cases, endings, EngineConfig(), reports=free)
    small = EngineConfig(max_tokens_per_step=100)
    found = decode(build_model("llama"), cases, endings, small, reports=bound)
    assert max(step_sizes(free)) > 300
    assert max(step_sizes(bound)) <= 100 + ROOTS[LARGEST][1], "one value's nodes are fed at once"
    assert [prompt.tokens for prompt in found] == [prompt.tokens for prompt in plain]
    assert [prompt.num_scored_tokens for prompt in found] == [prompt.num_scored_tokens for prompt in plain]


def test_nodes_leave_the_cache_with_their_value(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    accept = Cohort.accept

    def noting(cohort: Cohort, *given: Any) -> int:
        found = accept(cohort, *given)
        used.append(int(cohort._cache.used.max()))
        return found

    monkeypatch.setattr(Cohort, "accept", noting)
    (case,) = closed_cases(1)
    (prompt,) = decode(build_model("llama"), [case], random_endings(np.random.default_rng(0), 0.0), EngineConfig())
    assert prompt.num_scored_tokens > 20
    num_fed = sum(len(tokens) - 1 for tokens in prompt.tokens)
    assert used[-1] < prompt.num_own_tokens + num_fed + prompt.num_scored_tokens


def test_a_prompt_is_admitted_with_room_for_its_nodes() -> None:
    layout = tree_layout([3], [3, 4], [branch(LARGEST, most=7), Branch([6], 4)])
    assert Prompt(layout, (3,)).most_own_tokens == 2 + 2 + (6 + 7) + 4
    whole = tree_layout([3], [3, 4], [branch(LARGEST), Branch([6], 4)])
    every = ROOTS[LARGEST][1] - 1
    assert Prompt(whole, (3,)).most_own_tokens == 2 + 2 + every + 4, "where all may be fed, a member is found"
    decoder = new_decoder(build_model("llama"))
    cohort = Cohort.admit([Prompt(tree_layout([], [3, 4], [branch(LARGEST, most=7)]), ())], [None], decoder.pool)
    assert cohort.most_cached_tokens >= 3 + 6 + 7
    cohort.release()


@table("way", ["native", "eager"])
@table("most", [3, 10, None])
def test_no_prompt_takes_more_of_the_cache_than_is_kept_for_it(
    way: str, most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And with every step there is less of it that is still to come than was taken."""
    kept: dict[Prompt, list[int]] = {}
    accept = Cohort.accept

    def noting(cohort: Cohort, *given: Any) -> int:
        found = accept(cohort, *given)
        left = cohort._values.num_left + (cohort._prefill.num_left if cohort._prefill else 0)
        for prompt, columns in zip(cohort.prompts, (cohort._cache.used + left).tolist(), strict=True):
            kept.setdefault(prompt, [prompt.most_own_tokens]).append(columns)
        return found

    monkeypatch.setattr(Cohort, "accept", noting)
    cases, endings = closed_cases(12, most), random_endings(np.random.default_rng(0), 0.0)
    settings = EngineConfig(attention=way, max_prompts_per_cohort=4)
    decode(build_model("llama"), cases, endings, settings)
    assert len(kept) == len(cases)
    assert all((np.diff(columns) <= 0).all() for columns in kept.values())


@table("most", [0, 1, 2, 5])
def test_where_there_is_little_room_the_best_that_was_found_is_said(most: int) -> None:
    """Or where not one member is whole, what greedy decoding says."""
    cases, endings = closed_cases(6, most), random_endings(np.random.default_rng(0), 0.1)
    found = decode(build_model("llama"), cases, endings, EngineConfig(max_prompts_per_cohort=2))
    oracle = build_model("llama")
    for case, prompt in zip(cases, found, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)
    choices = [choice for prompt in found for choice in prompt.choices[:4]]
    if most == 0:
        assert choices.count(None) > len(choices) // 2
    assert all(prompt.num_scored_tokens <= 4 * most for prompt in found)


def test_the_scopes_of_a_branch_are_those_of_its_nodes() -> None:
    """The second picture of layout.py."""
    layout = tree_layout([3], [4], [Branch([5, 6], 4, members=Members(0, 5, 4)), Branch([7], 4)])
    assert layout.scopes.tolist() == [-1, -1, 0, 0, 5]
    assert layout.lasts[2:].tolist() == [4, 4, 5]
    assert layout.value_scopes.tolist() == [0, 5]
    assert VOCABULARY > 7
