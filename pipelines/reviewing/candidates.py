"""Candidates for review: one pass over the run's attribute table, in memory that does not grow with the run.

with a requested precision (`accept`)       the answers whose `decision` is `review`
otherwise                                   all answers, by the model's own probability
a sample                                    all answers of products drawn uniformly at random

Queue of review candidates. It is in memory only, because it can be rebuilt from the logs of verdicts.

urgency     (1 - certainty) x worth
worth       waiting answers of the attribute / (1 + its reviews so far): a label teaches something about all answers
            of its attribute, and less with every label there is
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.store.database import temporary_database
from pipelines.store.folders import map_requests
from pipelines.store.run_tables import Parts
from pipelines.store.verdicts import AnswerKey, ReviewVerdict

Pair = tuple[str, str]
"""A category and one of its attributes."""

MAX_HELD = 50_000
"""Maximum number of answers in memory, over all attributes of all categories."""
_MIN_HELD = 20
_SHARDS_AT_ONCE = 8
_KEY = ("source_file", "source_row")
_COLUMNS = (
    *(*_KEY, "category", "attribute", "value_index", "status", "num_tokens", "logprob_mean"),
    *("probability", "confidence", "decision", "source", "carried_from"),
)


class ReviewCandidate(NamedTuple):
    """An answer that may be reviewed. `certainty`: confidence that it is right, or its substitute."""

    key: AnswerKey
    category: str
    certainty: float
    shard: int

    @property
    def pair(self) -> Pair:
        """Category and attribute."""
        return self.category, self.key.attribute


@dataclass(slots=True)
class Candidates:
    """Result of a pass.

    Attributes:
        lines: candidates in order of review. One line per attribute, least certain first; for a sample, as drawn.
        waiting: number of reviewable answers of each attribute, in memory or not.
        kind: `review`: answers that the run marks for review; `all`; or `sample`.
    """

    kind: Literal["review", "all", "sample"]
    lines: list[list[ReviewCandidate]] = field(default_factory=list)
    waiting: dict[Pair, int] = field(default_factory=dict)


def find_candidates(parts: Parts, reviewed: Mapping[Pair, int], max_held: int = MAX_HELD) -> Candidates:
    """Find the answers to review.

    Args:
        reviewed: number of reviewed answers of each attribute. They are among its least certain ones, so that many more
            are kept.
    """
    by_decision = any(_is_decided(part) for part in parts.read("attributes", ["decision", "source"]))
    with temporary_database() as database:
        columns = "category text, attribute text, file text, row bigint, certainty double, shard bigint"
        database.execute(f"create table asked ({columns})")
        for shard, part in _by_shard(parts):
            asked = _asked(part, by_decision)
            cells = [asked[name] for name in ("category", "attribute", *_KEY)]
            cells += [pa.array(_certainty(asked)), pa.array(np.full(asked.num_rows, shard, np.int64))]
            batch = pa.table(cells, names=[*"abcdef"])  # noqa: F841 - DuckDB reads it by its name
            database.execute("insert into asked from batch")
        pairs = "select category, attribute, count(*) from asked group by all order by min(rowid)"
        waiting = {(category, name): count for category, name, count in database.execute(pairs).fetchall()}
        share = max(_MIN_HELD, max_held // max(1, len(waiting)))
        most = pa.Table.from_pylist(  # noqa: F841 - likewise
            [
                {"category": pair[0], "attribute": pair[1], "place": place, "most": share + reviewed.get(pair, 0)}
                for place, pair in enumerate(waiting)
            ]
        )
        lines: list[list[ReviewCandidate]] = [[] for _ in waiting]
        if waiting:
            found = database.execute(
                "select place, file, row, attribute, category, certainty, shard "
                "from asked join most using (category, attribute) "
                "qualify row_number() over (partition by place order by certainty, asked.rowid) <= most "
                "order by place, certainty, asked.rowid"
            )
            for place, file, row, name, category, certainty, shard in found.fetchall():
                lines[place].append(ReviewCandidate(AnswerKey(file, row, name), category, certainty, shard))
    return Candidates("review" if by_decision else "all", lines, waiting)


def draw_sample(parts: Parts, num_products: int, seed: int) -> Candidates:
    """Draw products at random and return all their answers; the same seed draws the same ones."""
    places = heapq.nsmallest(num_products, _ranked(parts, seed))
    order = {(file, number): place for place, (_, file, number) in enumerate(places)}
    numbers = pa.array(sorted({number for _, number in order}), pa.int64())
    found: list[tuple[int, ReviewCandidate]] = []
    for shard, part in _by_shard(parts):
        near = part.filter(pc.and_(pc.is_in(part["source_row"], numbers), pc.equal(part["value_index"], 0)))
        certainty = _certainty(near).tolist()
        for row, number in zip(near.select([*_KEY, "category", "attribute"]).to_pylist(), certainty, strict=True):
            place = order.get((row["source_file"], row["source_row"]))
            if place is not None:
                key = AnswerKey(row["source_file"], row["source_row"], row["attribute"])
                found.append((place, ReviewCandidate(key, row["category"], number, shard)))
    # Sorting is stable: a product's attributes keep their order.
    line = [candidate for _, candidate in sorted(found, key=lambda pair: pair[0])]
    return Candidates("sample", [line], dict(Counter(candidate.pair for candidate in line)))


def _by_shard(parts: Parts) -> Iterator[tuple[int, pa.Table]]:
    """Yield the attribute table, one shard at a time."""
    for start in range(0, len(parts.shards), _SHARDS_AT_ONCE):
        here = parts.shards[start : start + _SHARDS_AT_ONCE]
        yield from zip(
            here, map_requests(lambda shard: parts.read_one("attributes", shard, _COLUMNS), here), strict=True
        )


def _ranked(parts: Parts, seed: int) -> Iterator[tuple[int, str, int]]:
    """Yield every product with a hash of its place as its rank."""
    secret = hashlib.sha256(f"review sample {seed}".encode()).hexdigest()[:16]
    for part in parts.read("products", _KEY):
        files, numbers = (part[name].to_pylist() for name in _KEY)
        texts = np.array([f"{file}\0{number}" for file, number in zip(files, numbers, strict=True)], dtype=object)
        ranks = pd.util.hash_array(texts, hash_key=secret, categorize=False)
        yield from zip(ranks.tolist(), files, numbers, strict=True)


def _is_decided(part: pa.Table) -> bool:
    """Return whether the run has decided on an answer. A person's answer is not a decision of the run."""
    is_models = pc.equal(pc.fill_null(part["source"], "model"), "model")
    return bool(pc.any(pc.and_(pc.is_valid(part["decision"]), is_models)).as_py())


def _asked(part: pa.Table, by_decision: bool) -> pa.Table:
    """Return the first rows of reviewable answers. People's answers from earlier runs are left out."""
    is_said = pc.not_equal(pc.fill_null(part["source"], "model"), "model")
    is_said_here = pc.and_(is_said, pc.is_null(part["carried_from"]))
    wanted = pc.invert(is_said)
    if by_decision:
        wanted = pc.and_(wanted, pc.equal(pc.fill_null(part["decision"], ""), "review"))
    return part.filter(pc.and_(pc.equal(part["value_index"], 0), pc.or_(wanted, is_said_here)))


def _certainty(part: pa.Table) -> npt.NDArray[np.float64]:
    """Return the confidence, else the model's own probability; 0 for a failed answer, or if nothing is known.

    Null in place of a value below `engine.answer_threshold` has 1, since there is nothing to judge.
    """
    own = pc.exp(pc.multiply(part["num_tokens"].cast(pa.float64()), part["logprob_mean"]))
    unknown = pc.if_else(pc.equal(part["status"], "absent"), 1.0, 0.0)
    known = pc.coalesce(part["confidence"], part["probability"], own, unknown)
    is_answer = pc.is_in(part["status"], pa.array(["value", "absent"]))
    numbers = pc.if_else(is_answer, known, 0.0).to_numpy()
    return np.nan_to_num(np.asarray(numbers, dtype=np.float64), nan=0.0)


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
