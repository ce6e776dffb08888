"""What the exactness tests share: random prompts, the oracle's answers, the comparison rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpd_core.config import EngineConfig
from hpd_core.decoding.decoder import Decoder, StepReport
from hpd_core.decoding.member_bounds import NEGLIGIBLE
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import FREE, Branch, Members, StackedObject, stacked_layout, tree_layout
from hpd_core.models.description import cache_shape
from hpd_core.models.steering import attach
from hpd_core.text.constraints import StateTable
from hpd_core.text.endings import Endings, Read
from hpd_core.text.member_tries import MemberTrie, TrieTable
from tests.core.oracle import (
    CAUSAL,
    Choices,
    ReferenceValue,
    StackedSkeleton,
    choose_member,
    decode_chain,
    decode_stacked,
)
from tests.core.token_states import token_states

from .families import BOTH_WAYS, VOCABULARY

NEAR_TIE = 1e-4
LOGPROB_TOLERANCE = 2e-3


def _random_states() -> list[dict[int, int]]:
    """A random constraint: from one allowed token to many a state."""
    rng = np.random.default_rng(5)
    widths = rng.choice([1, 2, 5, 40], size=30)
    return [
        {int(token): int(rng.integers(30)) for token in rng.choice(VOCABULARY, size=width, replace=False)}
        for width in widths
    ]


STATES = _random_states()

_CLOSING = VOCABULARY - 1
"""What ends the spellings of members, and is in none before that: so none is the beginning of another."""


def _random_vocabulary(rng: np.random.Generator, size: int) -> tuple[list[tuple[int, ...]], list[int]]:
    """So many spellings, and what each means. Few letters, so that many begin alike; some mean the same."""
    letters = rng.choice(np.arange(3, _CLOSING), 5, replace=False)
    spellings: set[tuple[int, ...]] = set()
    while len(spellings) < size:
        spellings.add((*rng.choice(letters, int(rng.integers(0, 5))).tolist(), _CLOSING))
    # The shortest one is null's, as in life.
    null = min(spellings, key=lambda spelling: (len(spelling), spelling))
    ordered = sorted(spellings)
    members = rng.integers(1, max(2, size * 2 // 3), size)
    return ordered, [0 if spelling == null else int(m) for spelling, m in zip(ordered, members, strict=True)]


VOCABULARIES = [_random_vocabulary(np.random.default_rng(size), size) for size in (2, 3, 15, 60)]
"""What values are chosen among: spellings and their members."""

TRIES = TrieTable()
ROOTS = {}
for _vocabulary in VOCABULARIES:
    _trie = MemberTrie.of(*_vocabulary)
    assert _trie is not None
    ROOTS[TRIES.add(_trie)] = _vocabulary, len(_trie)


def random_members(rng: np.random.Generator) -> Members:
    """One of the vocabularies, with room to feed all of its nodes, or only a few."""
    root: int = int(rng.choice(list(ROOTS)))
    num_nodes = ROOTS[root][1]
    return Members(root, num_nodes, min(int(rng.choice([1, 4, 1000, 1000])), num_nodes - 1))


def choices(branch: Branch) -> Choices:
    """What the branch's constraint allows, walked token by token."""

    def allowed(tokens: Sequence[int]) -> list[int] | None:
        state = branch.state
        if state == FREE:
            return None
        for token in tokens:
            if token not in STATES[state]:
                return None  # it was chosen among members, whatever the constraint
            state = STATES[state][token]
        return list(STATES[state])

    return allowed


def random_endings(rng: np.random.Generator, share: float = 0.15) -> Endings:
    """A random part of the vocabulary ends a value, and random others do by what was read before: all lengths come."""
    behind = rng.integers(len(Read), size=(len(Read), VOCABULARY))
    behind = np.where(behind == Read.ENDED, Read.STRING, behind)
    behind[rng.random(behind.shape) < share] = Read.ENDED
    behind[Read.LINE] = Read.LINE
    return Endings(rng.random(VOCABULARY) < share, behind.astype(np.uint8))


def random_ids(rng: np.random.Generator, low: int, high: int) -> list[int]:
    return rng.integers(3, VOCABULARY, size=int(rng.integers(low, high + 1))).tolist()


@dataclass
class TreeCase:
    """One record of the tree layout."""

    prefix: list[int]
    document: list[int]
    branches: list[Branch]
    both_ways: bool = False

    def prompt(self) -> Prompt:
        layout = tree_layout(self.prefix, self.document, self.branches, both_ways=self.both_ways)
        return Prompt(layout, tuple(self.prefix))

    @property
    def read_both_ways(self) -> range:
        """As the oracles have it."""
        start = len(self.prefix)
        return range(start, start + len(self.document)) if self.both_ways else CAUSAL

    def _chain(self, model: Any, endings: Endings, branch: Branch, forced: list[int] | None) -> ReferenceValue:
        ids = [*self.prefix, *self.document, *branch.tokens]
        limit = branch.max_new_tokens
        return decode_chain(model, ids, limit, endings, forced, choices(branch), self.read_both_ways)

    def expected(self, model: Any, endings: Endings) -> list[ReferenceValue]:
        return [self._chain(model, endings, branch, None) for branch in self.branches]

    def forced(self, model: Any, endings: Endings, tokens: list[list[int]]) -> list[ReferenceValue]:
        return [self._chain(model, endings, *pair) for pair in zip(self.branches, tokens, strict=True)]


@dataclass
class StackedCase:
    """One prompt of the stacked layout."""

    prefix: list[int]
    documents: list[int]
    objects: list[StackedObject]
    separator: list[int]

    def prompt(self) -> Prompt:
        layout = stacked_layout(self.prefix, self.documents, self.objects, self.separator)
        return Prompt(layout, tuple(self.prefix))

    def _oracle(self, model: Any, endings: Endings, forced: list[list[int]] | None) -> list[ReferenceValue]:
        parts: list[tuple[Sequence[int], bool]] = []
        limits: list[int] = []
        for item in self.objects:
            parts.append((item.header, False))
            for branch in item.branches:
                parts += [(branch.tokens, True), (self.separator, False)]
                limits.append(branch.max_new_tokens)
            parts.append((item.footer, False))
        skeleton = StackedSkeleton([*self.prefix, *self.documents], parts)
        constraints = [choices(branch) for item in self.objects for branch in item.branches]
        return decode_stacked(model, skeleton, limits, endings, forced, constraints)

    def expected(self, model: Any, endings: Endings) -> list[ReferenceValue]:
        return self._oracle(model, endings, None)

    def forced(self, model: Any, endings: Endings, tokens: list[list[int]]) -> list[ReferenceValue]:
        return self._oracle(model, endings, tokens)


Case = TreeCase | StackedCase


def random_branches(rng: np.random.Generator, count: int, k_max: int) -> list[Branch]:
    """Every other one is constrained, and every third one chosen among members."""
    branches = []
    for _ in range(count):
        members = random_members(rng) if rng.random() < 0.3 else None
        limit = int(rng.integers(1, k_max + 1))
        state = int(rng.integers(len(STATES))) if rng.random() < 0.5 else FREE
        branches.append(Branch(random_ids(rng, 1, 3), max(limit, 5) if members else limit, state, members))
    return branches


def random_case(
    rng: np.random.Generator, layout: str, prefixes: list[list[int]], branches: int, k_max: int, document: int = 20
) -> Case:
    prefix = prefixes[int(rng.integers(len(prefixes)))]
    if layout in ("tree", BOTH_WAYS):
        own = random_ids(rng, 0 if prefix else 1, document)
        return TreeCase(prefix, own, random_branches(rng, branches, k_max), layout == BOTH_WAYS)
    objects = [
        StackedObject(random_ids(rng, 1, 3), random_branches(rng, branches, k_max), random_ids(rng, 0, 2))
        for _ in range(int(rng.integers(1, 4)))
    ]
    return StackedCase(prefix, random_ids(rng, 1, document), objects, random_ids(rng, 0, 2))


def without_constraints(case: Case) -> Case:
    """The case with values that may be any tokens, and are decoded token by token."""

    def free(branches: Sequence[Branch]) -> list[Branch]:
        return [replace(branch, state=FREE, members=None) for branch in branches]

    if isinstance(case, TreeCase):
        return replace(case, branches=free(case.branches))
    return replace(case, objects=[replace(item, branches=free(item.branches)) for item in case.objects])


def new_decoder(model: Any, **settings: Any) -> Decoder:
    """One without work. `model` gets our attention."""
    attach(model)
    return Decoder(model, random_endings(np.random.default_rng(1)), EngineConfig(**settings), cache_shape(model))


def decoder_with_constraints(model: Any, endings: Endings, config: EngineConfig) -> Decoder:
    """One without work, that knows the states and members of random cases. `model` gets our attention."""
    attach(model)
    table = StateTable()
    assert table.add(token_states(STATES)) == 0
    return Decoder(model, endings, config, cache_shape(model), table, TRIES)


def decode(
    model: Any,
    cases: Sequence[Case],
    endings: Endings,
    config: EngineConfig,
    reports: list[StepReport] | None = None,
) -> list[Prompt]:
    """The engine's answers. `model` gets our attention; `reports` the steps'."""
    decoder = decoder_with_constraints(model, endings, config)
    prompts = [case.prompt() for case in cases]
    decoder.add(prompts)
    finished = []
    while decoder.has_work:
        report = decoder.step()
        finished += report.finished
        if reports is not None:
            reports.append(report)
    assert sorted(map(id, finished)) == sorted(map(id, prompts)), "a prompt is lost or comes twice"
    assert decoder.pool.num_used == 0, "a cache was not given back"
    return prompts


def assert_equals_oracle(
    model: Any, case: Case, prompt: Prompt, endings: Endings, threshold: float | None = None
) -> None:
    """Token for token, unless the oracle itself was at a near-tie; then teacher-forced on our tokens."""
    expected = case.expected(model, endings)
    ours = [end.branch for end in prompt.ends if end.chosen is None]
    if [expected[branch].tokens for branch in ours] != [prompt.tokens[branch] for branch in ours]:
        expected = case.forced(model, endings, prompt.tokens)
        for branch in ours:
            for index, token in enumerate(prompt.tokens[branch]):
                behind = expected[branch].behind(index, token)
                assert behind <= NEAR_TIE, f"token {index} is {token}, {behind:.2e} deviations behind the oracle's"
    for branch in ours:
        value = expected[branch]
        assert prompt.ends[branch].closed == value.closed
        if not value.closed:
            assert len(prompt.tokens[branch]) == prompt.layout.max_new_tokens[branch], "the value was cut too early"
        assert len(prompt.logprobs[branch]) == len(value.tokens)
        for index, token in enumerate(value.tokens):
            oracle = float(value.logits[index].log_softmax(-1)[token])
            assert abs(prompt.logprobs[branch][index] - oracle) < LOGPROB_TOLERANCE
    if isinstance(case, TreeCase):
        for branch, given in enumerate(case.branches):
            _assert_is_likeliest(model, case, given, prompt, branch, threshold)


def _assert_is_likeliest(
    model: Any, case: TreeCase, given: Branch, prompt: Prompt, branch: int, threshold: float | None
) -> None:
    """What was chosen among members is what a forward for each of them says."""
    end, members = prompt.ends[branch], given.members
    if members is None:
        assert end.chosen is None
        return
    had_room = members.max_fed == members.num_nodes - 1
    if end.chosen is None:
        assert not had_room
        return
    assert end.chosen == "scored" or not had_room
    spellings, meanings = ROOTS[members.root][0]
    ids = [*case.prefix, *case.document, *given.tokens]
    expected = choose_member(model, ids, spellings, meanings, case.read_both_ways, threshold)
    tokens = tuple(prompt.tokens[branch])
    member = meanings[spellings.index(tokens)]
    by_tokens = dict(expected.spellings[member])
    np.testing.assert_allclose(prompt.logprobs[branch], by_tokens[tokens], atol=LOGPROB_TOLERANCE)
    assert end.closed
    assert end.probability <= expected.shares[member] + NEGLIGIBLE + LOGPROB_TOLERANCE
    if end.margin is None:
        return
    likeliest = max(share for other, share in expected.shares.items() if other)
    distance = expected.shares[0] - 0.5 if threshold is None else likeliest - threshold
    if abs(distance) > LOGPROB_TOLERANCE:
        assert (member == 0) == (expected.member == 0)
    if member:
        assert expected.shares[member] >= (1 - LOGPROB_TOLERANCE) * likeliest
    assert sum(by_tokens[tokens]) >= sum(expected.spellings[member][0][1]) - LOGPROB_TOLERANCE
    assert abs(end.probability - expected.shares[member]) <= NEGLIGIBLE + LOGPROB_TOLERANCE
    next_share = max(share for other, share in expected.shares.items() if other != member)
    if next_share:
        assert end.margin <= np.log(expected.shares[member] / next_share) + 2 * LOGPROB_TOLERANCE + NEGLIGIBLE
