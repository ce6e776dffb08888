"""Queue of review candidates. It is in memory only, because it can be rebuilt from the logs of verdicts.

urgency     (1 - certainty) x worth
worth       waiting answers of the attribute / (1 + its reviews so far): a label teaches something about all answers
            of its attribute, and less with every label there is
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from pipelines.review_desk.candidates import Candidates, Pair, ReviewCandidate
from pipelines.reviewing.verdicts import AnswerKey, ReviewVerdict

LEASE_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Wish:
    """Filter of the answers that a reviewer wants to see; None: any."""

    category: str | None = None
    attribute: str | None = None

    def fits(self, candidate: ReviewCandidate) -> bool:
        """Return whether an answer passes the filter."""
        return self.fits_pair(candidate.pair)

    def fits_pair(self, pair: Pair) -> bool:
        """Return whether answers of an attribute pass the filter."""
        return self.category in (None, pair[0]) and self.attribute in (None, pair[1])


@dataclass(slots=True)
class _Said:
    """Names of the reviewers who answered or skipped an answer."""

    answered: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)


class Queue:
    """Answers in the order of their urgency; each is leased to one reviewer at a time."""

    def __init__(
        self, candidates: Candidates, verdicts: Iterable[ReviewVerdict], overlap: float, clock: Callable[[], float]
    ) -> None:
        """Fill the queue. `overlap`: share of the answers that two reviewers judge. `clock`: monotonic seconds."""
        self._overlap, self._clock = overlap, clock
        self._verdicts: defaultdict[AnswerKey, list[ReviewVerdict]] = defaultdict(list)
        self._said: defaultdict[AnswerKey, _Said] = defaultdict(_Said)
        self._reviews: Counter[Pair] = Counter()
        self._leases: dict[AnswerKey, dict[str, float]] = {}
        self.fill(candidates)
        for verdict in verdicts:
            self.record(verdict)

    @property
    def reviews(self) -> Counter[Pair]:
        """Number of judged answers of each attribute."""
        return self._reviews

    @property
    def waiting(self) -> dict[Pair, int]:
        """Number of answers of each attribute that are not judged."""
        return {pair: max(0, count - self._reviews[pair]) for pair, count in self._waiting.items()}

    @property
    def touched(self) -> Counter[Pair]:
        """Number of judged or skipped answers of each attribute."""
        said = (key for key, each in self._said.items() if each.answered or each.skipped)
        return Counter((self._verdicts[key][0].category, key.attribute) for key in said)

    def has_more(self, wish: Wish) -> bool:
        """Return whether more answers wait than are in memory."""
        waiting = sum(count for pair, count in self._waiting.items() if wish.fits_pair(pair))
        return waiting > sum(wish.fits_pair(each.pair) for each in self._by_key.values())

    def fill(self, candidates: Candidates) -> None:
        """Replace the candidates."""
        self._lines, self._waiting = candidates.lines, candidates.waiting
        self._by_key = {each.key: each for line in self._lines for each in line}
        self._starts = [0] * len(self._lines)

    def record(self, verdict: ReviewVerdict) -> None:
        """Count a verdict, and end the lease of its answer."""
        here = self._verdicts[verdict.key]
        here.append(verdict)
        undone = {each.undoes for each in here}
        # A person's last verdict counts.
        last = {each.reviewer: each for each in here if each.verdict != "undo" and each.id not in undone}
        said = _Said(
            {name for name, each in last.items() if each.is_answer},
            {name for name, each in last.items() if each.verdict == "skip"},
        )
        if verdict.verdict in ("undo", "skip"):
            self._starts = [0] * len(self._lines)
        pair = verdict.category, verdict.attribute
        self._reviews[pair] += bool(said.answered) - bool(self._said[verdict.key].answered)
        self._said[verdict.key] = said
        self.give_back(verdict.key, verdict.reviewer)

    def next(self, reviewer: str, wish: Wish) -> ReviewCandidate | None:
        """Return the most urgent answer that the reviewer has not been shown, leased to them from now on."""
        for held in (frozenset(), self._held_by(reviewer)):
            # Answers that they left open come again only if there is nothing else.
            found = max(self._heads(reviewer, wish, held), key=self._urgency, default=None)
            if found is not None:
                self.lend(found.key, reviewer)
                return found
        return None

    def upcoming(self, reviewer: str, wish: Wish, count: int) -> list[ReviewCandidate]:
        """Return roughly the reviewer's next answers, most urgent first."""
        return sorted(self._heads(reviewer, wish, frozenset()), key=self._urgency, reverse=True)[:count]

    def find(self, key: AnswerKey) -> ReviewCandidate | None:
        """Return the candidate of an answer; None if it is not in memory."""
        return self._by_key.get(key)

    def lend(self, key: AnswerKey, reviewer: str) -> None:
        """Lease an answer to a reviewer for a while."""
        self._leases.setdefault(key, {})[reviewer] = self._clock() + LEASE_SECONDS

    def give_back(self, key: AnswerKey, reviewer: str) -> None:
        """End a lease, if there is one."""
        leases = self._leases.get(key, {})
        leases.pop(reviewer, None)
        if not leases:
            self._leases.pop(key, None)

    def _heads(self, reviewer: str, wish: Wish, held: Collection[AnswerKey]) -> Iterator[ReviewCandidate]:
        """Yield the first answer of each line that the reviewer may be shown; those in `held` may be shown again."""
        for index, line in enumerate(self._lines):
            while self._starts[index] < len(line) and self._is_done(line[self._starts[index]].key):
                self._starts[index] += 1
            for candidate in islice(line, self._starts[index], None):
                if wish.fits(candidate) and self._is_open(candidate.key, reviewer, held):
                    yield candidate
                    break

    def _is_open(self, key: AnswerKey, reviewer: str, held: Collection[AnswerKey]) -> bool:
        said, holders = self._said.get(key) or _Said(), self._holders(key)
        if reviewer in said.answered | said.skipped or (reviewer in holders and key not in held):
            return False
        return len(said.answered | (holders - {reviewer})) < self._wanted(key)

    def _is_done(self, key: AnswerKey) -> bool:
        said = self._said.get(key)
        return said is not None and len(said.answered) >= self._wanted(key)

    def _holders(self, key: AnswerKey) -> set[str]:
        leases, now = self._leases.get(key, {}), self._clock()
        return {reviewer for reviewer, end in leases.items() if end > now}

    def _held_by(self, reviewer: str) -> frozenset[AnswerKey]:
        return frozenset(key for key in self._leases if reviewer in self._holders(key))

    def _wanted(self, key: AnswerKey) -> int:
        """Return how many reviewers an answer needs, hashed from its place, so that every start agrees."""
        if not self._overlap:
            return 1
        digest = hashlib.sha256("\0".join(map(str, key)).encode()).digest()
        return 2 if int.from_bytes(digest[:8], "big") < self._overlap * 2**64 else 1

    def _urgency(self, candidate: ReviewCandidate) -> float:
        worth = self._waiting.get(candidate.pair, 0) / (1 + self._reviews[candidate.pair])
        return (1 - candidate.certainty) * worth
