"""The search for closed answers against scoring all of them, on random tries and made-up log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core.decoding.member_bounds import NEGLIGIBLE
from hpd_core.decoding.member_search import MemberSearch
from hpd_core.text.member_tries import TrieTable
from tests.core.member_vocabularies import CLOSING, MadeUpModel, Spellings, trie_of, vocabularies
from tests.examples import examples
from tests.tables import table

PLENTY = 10**6


@dataclass
class Found:
    """What is found of one value."""

    spelling: int
    is_sure: bool
    share: float
    margin: float
    num_fed: int
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()


def search(
    model: MadeUpModel,
    table: TrieTable,
    roots: list[int],
    budgets: list[int],
    rng: np.random.Generator | None = None,
    threshold: float | None = None,
    rate: float | None = None,
) -> tuple[list[Found], int]:
    """Of each value; and in how many rounds. With `rng` some values wait while others are fed, and change places."""
    numbers, starts = np.arange(len(roots)), np.array(roots)
    found: dict[int, Found] = {}
    heard, own_rates = model.to_nodes(table, numbers, starts), np.full(len(roots), np.nan if rate is None else rate)
    running = MemberSearch(table, starts, np.array(budgets), own_rates, heard, threshold)
    num_rounds = 0
    while True:
        verdicts = running.decide()
        known = verdicts[verdicts.spellings >= 0]
        written = dict(zip(known.values.tolist(), running.written(known), strict=True))
        for place, value in enumerate(verdicts.values.tolist()):
            tokens, logprobs = written.get(value, ((), ()))
            found[int(numbers[value])] = Found(
                int(verdicts.spellings[place]),
                bool(verdicts.is_sure[place]),
                float(verdicts.shares[place]),
                float(verdicts.margins[place]),
                int(running.num_fed[value]),
                tuple(map(int, tokens)),
                tuple(map(float, logprobs)),
            )
        kept = np.setdiff1d(np.arange(len(numbers)), verdicts.values)
        if rng is not None:
            kept = rng.permutation(kept)
        running.keep(kept)
        numbers = numbers[kept]
        if not len(kept):
            return [found[number] for number in range(len(roots))], num_rounds
        fed = running.next
        assert set(fed.values.tolist()) == set(range(len(kept))), "whatever is open goes on"
        assert (np.diff(fed.keys) > 0).all()
        if rng is not None:
            fed = fed[np.isin(fed.values, rng.choice(len(kept), int(rng.integers(1, len(kept) + 1))))]
        running.hear(fed, model.to_nodes(table, numbers[fed.values], fed.nodes))
        num_rounds += 1


@dataclass
class Truth:
    """What scoring everything says."""

    answer: int
    shares: dict[int, float]
    best: dict[int, tuple[int, ...]]


def truth(
    model: MadeUpModel, value: int, spellings: Spellings, threshold: float | None = None, rate: float | None = None
) -> Truth:
    masses: dict[int, float] = {}
    best: dict[int, tuple[float, tuple[int, ...]]] = {}
    for tokens, member in spellings:
        total = sum(model.of(value, tokens))
        masses[member] = masses.get(member, 0.0) + float(np.exp(total))
        best[member] = max(best.get(member, (-np.inf, ())), (total, tokens))
    can_be_null, null = 0 in masses, masses.pop(0, 0.0)
    total = sum(masses.values())
    if rate is not None:
        null /= null + rate * total
    shares = {0: null} | {member: (1 - null) * mass / total for member, mass in masses.items()}
    answer = max(masses, key=lambda member: masses[member])
    is_null = null >= 0.5 if threshold is None else can_be_null and shares[answer] < threshold
    return Truth(0 if is_null else answer, shares, {member: tokens for member, (_, tokens) in best.items()})


with_members = vocabularies().filter(lambda spellings: any(member for _, member in spellings))
models = st.builds(MadeUpModel, st.integers(0, 2**32 - 1), st.sampled_from([0.3, 1.0, 3.0, 8.0]))
thresholds = st.none() | st.sampled_from([0.01, 0.1, 0.25, 0.4, 0.6, 0.99])
rates = st.none() | st.sampled_from([0.2, 1.0, 1.3, 20.0, 1e6])


@settings(max_examples=examples(300), deadline=None)
@given(
    models,
    st.lists(with_members, min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=1, max_size=5),
    st.integers(0, 2**32 - 1),
    thresholds,
    rates,
)
def test_the_answer_is_that_of_scoring_all(
    model: MadeUpModel,
    several: list[Spellings],
    picked: list[int],
    seed: int,
    threshold: float | None,
    rate: float | None,
) -> None:
    table = TrieTable()
    roots = [table.add(trie_of(spellings)) for spellings in several]
    of_value = [number % len(roots) for number in picked]
    of_roots = [roots[number] for number in of_value]
    plenty = [PLENTY] * len(picked)
    together, _ = search(model, table, of_roots, plenty, np.random.default_rng(seed), threshold, rate)
    plain, _ = search(model, table, of_roots, plenty, threshold=threshold, rate=rate)
    assert together == plain, "company, order and waiting change nothing"
    for value, (number, found) in enumerate(zip(of_value, plain, strict=True)):
        expected = truth(model, value, several[number], threshold, rate)
        member = int(table.members[found.spelling])
        assert found.is_sure
        assert member == expected.answer
        np.testing.assert_allclose(found.logprobs, model.of(value, found.tokens), atol=1e-9)
        assert dict(several[number])[found.tokens] == member
        assert found.share <= expected.shares[member] + NEGLIGIBLE
        if member or sum(not other for _, other in several[number]) == 1:
            assert found.tokens == expected.best[member]
            assert found.share >= expected.shares[member] - NEGLIGIBLE
        others = max(share for other, share in expected.shares.items() if other != member)
        if others:
            assert found.margin <= np.log(expected.shares[member] / others) + NEGLIGIBLE
        assert found.num_fed < len(trie_of(several[number]))


@settings(max_examples=examples(200), deadline=None)
@given(models, with_members, st.integers(0, 12), thresholds, rates)
def test_a_budget_is_kept_and_the_best_of_what_is_known_is_said(
    model: MadeUpModel, spellings: Spellings, budget: int, threshold: float | None, rate: float | None
) -> None:
    table = TrieTable()
    root = table.add(trie_of(spellings))
    (found,), _ = search(model, table, [root], [budget], threshold=threshold, rate=rate)
    assert found.num_fed <= budget
    expected = truth(model, 0, spellings, threshold, rate)
    if found.spelling < 0:
        assert not found.is_sure
        return
    member = int(table.members[found.spelling])
    np.testing.assert_allclose(found.logprobs, model.of(0, found.tokens), atol=1e-9)
    if found.is_sure:
        assert member == expected.answer
        return
    assert found.num_fed == budget
    if not member:
        assert (threshold, rate) != (None, None), "null would be sure"
        assert expected.answer == 0 or expected.shares[0] >= 0.5, "as without a threshold"
        return
    assert expected.shares[0] < 0.5 or (threshold, rate) != (None, None)
    assert found.share <= expected.shares[member] + NEGLIGIBLE
    # What greedy decoding would say is no likelier.
    greedy = greedy_spelling(model, spellings)
    mass = sum(np.exp(sum(model.of(0, tokens))) for tokens, of_member in spellings if of_member == member)
    if dict(spellings)[greedy]:
        assert mass >= np.exp(sum(model.of(0, greedy))) * (1 - 1e-9)


def greedy_spelling(model: MadeUpModel, spellings: Spellings) -> tuple[int, ...]:
    """What goes on with the likeliest token that some spelling goes on with."""
    left = [tokens for tokens, _ in spellings]
    for place in range(max(map(len, left))):
        text = left[0][:place]
        if text in left:
            break
        said = model.logprobs(0, text)
        likeliest = max((tokens[place] for tokens in left), key=lambda token: said[token])
        left = [tokens for tokens in left if tokens[place] == likeliest]
    (found,) = left
    return found


class DoubtfulModel(MadeUpModel):
    """Of 400 first letters of brands it takes one for the likeliest, and the rest is spread over the others."""

    first, second, null = 10, 1_000, 2

    def __init__(self, top: float) -> None:
        super().__init__(0, 0.0)
        self._top = top

    def logprobs(self, value: int, text: list[int]) -> npt.NDArray[np.float64]:  # type: ignore[override]
        found = np.full(1_010, 0.01)
        if len(text) == 0:
            found[[1, self.null]] = 0.97, 0.03
        elif len(text) == 1:
            found[10:410] = (1 - self._top) / 399
            found[[CLOSING, self.first]] = 1.0, self._top
        elif len(text) == 2:
            found[self.second] = 0.8
        else:
            found[CLOSING] = 0.95
        np.log(found, out=found)
        return found


BRANDS: Spellings = [
    ((2, CLOSING), 0),
    *(((1, 10 + n // 7, 1_000 + n % 7, CLOSING), n + 1) for n in range(2_800)),
]


@table("top", [0.9, 0.5, 0.3])
@table("budget", [1, 2, 8, 16, 64, 256])
def test_of_thousands_of_members_the_budget_is_for_the_likeliest(top: float, budget: int) -> None:
    """Hundreds of first tokens matter to the share, each by little: they are not fed before the best one is whole."""
    table = TrieTable()
    root = table.add(trie_of(BRANDS))
    (found,), num_rounds = search(DoubtfulModel(top), table, [root], [budget])
    if budget < 8:
        assert (found.spelling, found.is_sure) == (-1, False)
        return
    assert (found.tokens, found.is_sure) == ((1, 10, 1_000, CLOSING), False)
    assert num_rounds <= 12


class BrokenModel(MadeUpModel):
    """Its numbers are none behind some texts, and not one is above 0 behind others."""

    def logprobs(self, value: int, text: list[int]) -> npt.NDArray[np.float64]:  # type: ignore[override]
        found = super().logprobs(value, text)
        broken = int(np.random.default_rng([self._seed, 1, *text]).integers(4))
        return np.full_like(found, (np.nan, -np.inf)[broken]) if broken < 2 else found


@settings(max_examples=examples(200), deadline=None)
@given(st.builds(BrokenModel, st.integers(0, 2**32 - 1), st.just(2.0)), with_members, st.sampled_from([2, 10, PLENTY]))
@pytest.mark.filterwarnings("error")
def test_numbers_that_are_none_are_never_said(model: BrokenModel, spellings: Spellings, budget: int) -> None:
    table = TrieTable()
    root = table.add(trie_of(spellings))
    (found,), _ = search(model, table, [root], [budget])
    if found.spelling < 0:
        assert not found.is_sure
        return
    assert np.isfinite([found.share, found.margin, *found.logprobs]).all()
    assert found.share > 0
    if found.is_sure and table.members[found.spelling]:
        assert np.isfinite(model.of(0, found.tokens)).all()
