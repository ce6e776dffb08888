"""Chooses closed answers, by branch and bound over the tries of what they can be (text/member_tries.py).

An answer is null where the model gives that a half of its probability or more, else the likeliest member: what it would
say instead of null stands for some member. So null's share is its own probability, and the members share the rest as
their likelihoods are to each other. (By plain likelihoods null would win wherever the model would put a value in words
that are no member's, or cannot decide between some: docs/log.md has what that costs.) With a
threshold an answer is the likeliest member where its share comes up to that, else null (decoding/null_rule.py). Where
members have been taken away since their shares were known, what these had is nobody's, and null and the others have as
much more of what is left (`rates`).

A node's log-probability is that of the tokens up to it, so all below it is less likely. What the model says behind the
key gives those of all first tokens. Then, round by round, of each value those nodes are fed that can matter, likeliest
first; what the model says to a node gives those of all behind it. A value is done when the nodes that wait (known, and
not fed) can hold no likelier member than the best, nor decide about null, and all of them together have no more than
`NEGLIGIBLE` of what the members have. So the answer is exactly that of scoring all of them, mostly by little more than
its own tokens.

Of thousands of members not all that matters can be fed. So where the budget may not do for all that waits, a round
takes half of what is left, and none of what the likeliest node needs to come to the ends of its spellings: towards the
end of the budget the likeliest node is fed, and no other. When it is spent, the best member is the answer if no node
that waits is likelier. So it is at least as likely as what greedy decoding writes: that has been found, too, or stands
behind a node that waits. Else there is no verdict.

What is fed of a value depends on what the model says to this value, and on nothing else. There is no model in here:
log-probabilities come in, nodes go out.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from hpd_core.decoding.member_bounds import NODE_BITS, BoundNodes, MemberBounds
from hpd_core.decoding.null_rule import BY_HALF, FloatArray, NullRule
from hpd_core.layout import IntArray
from hpd_core.text.member_tries import TrieTable

Logprobs = npt.NDArray[np.float32] | FloatArray

_MASS_BITS = 36


@dataclass(frozen=True, slots=True)
class MemberVerdicts:
    """Of m values that are done, in order of their numbers.

    Attributes:
        values: int64 [m], which.
        spellings: int64 [m], the likeliest one of the answer; -1 where there was no room to find it, or the model's
            numbers are none.
        is_sure: bool [m], whether it is the answer that all of them would give, and its share is known; else there was
            no room to look further.
        shares: float64 [m], the answer's of the probability of all, wrong by `NEGLIGIBLE` at most; too low where it is
            not sure, and of a null with several spellings by those that were not looked for.
        margins: float64 [m], how much likelier it is than any other, as a logarithm, or somewhat less. Below 0 where
            null is likelier than this member, but not than all; with a threshold, where null is the less likely one.
    """

    values: IntArray
    spellings: IntArray
    is_sure: npt.NDArray[np.bool_]
    shares: FloatArray
    margins: FloatArray

    def __getitem__(self, picked: npt.NDArray[np.bool_]) -> MemberVerdicts:
        return MemberVerdicts(*(getattr(self, field.name)[picked] for field in fields(self)))


class MemberSearch:
    """The search for the members of some values, which are numbered from 0.

    Attributes:
        budgets: int64 [v], nodes that may still be fed for each.
        num_fed: int64 [v], nodes that were.
        next: what is to be fed next, in the order of the keys; nothing of values that are done.
    """

    def __init__(
        self,
        table: TrieTable,
        roots: IntArray,
        budgets: IntArray,
        rates: FloatArray,
        logprobs: Logprobs,
        rule: NullRule = BY_HALF,
    ) -> None:
        """Of values with these roots.

        Args:
            roots, budgets: int64 [v]
            rates: float64 [v], what share a member has for a likelihood of 1, as it was when there were more members;
                NaN: they share all that null has not.
            logprobs: float [m], what the model says to the roots, of all their ways (`TrieTable.wanted`).
            rule: when they are null.
        """
        self._table, self._roots, self._rates, self._rule = table, roots, rates, rule
        self.budgets = budgets
        self.num_fed = np.zeros_like(budgets)
        self._heard = self._waiting = self._spelled = self.next = (
            BoundNodes.none()
        )  # of _spelled, `nodes` are spellings
        self._hear(BoundNodes(np.arange(len(roots)), roots, np.zeros(len(roots))), logprobs)

    def add(self, others: MemberSearch) -> None:
        """Takes the values of another search, behind its own."""
        first = len(self.budgets)
        for name in ("_heard", "_waiting", "_spelled", "next"):
            own: BoundNodes = getattr(others, name)
            setattr(self, name, getattr(self, name) + BoundNodes(own.values + first, own.nodes, own.logprobs))
        self._roots = np.concatenate([self._roots, others._roots])
        self._rates = np.concatenate([self._rates, others._rates])
        self.budgets = np.concatenate([self.budgets, others.budgets])
        self.num_fed = np.concatenate([self.num_fed, others.num_fed])

    def keep(self, values: IntArray) -> None:
        """Forgets all values but these, which are numbered anew, in this order."""
        numbers = np.full(len(self.budgets), -1, dtype=np.int64)
        numbers[values] = np.arange(len(values))
        for name in ("_heard", "_waiting", "_spelled", "next"):
            setattr(self, name, getattr(self, name).numbered(numbers).in_order())
        self._roots, self._rates = self._roots[values], self._rates[values]
        self.budgets, self.num_fed = self.budgets[values], self.num_fed[values]

    def hear(self, fed: BoundNodes, logprobs: Logprobs) -> None:
        """Takes what the model says to nodes that were fed.

        Args:
            fed: a part of `next`: all of some values.
            logprobs: float [m], of all their ways, as `TrieTable.wanted` has them: of a token behind its node.
        """
        counts = np.bincount(fed.values, minlength=len(self.budgets))
        self.num_fed, self.budgets = self.num_fed + counts, self.budgets - counts
        self._hear(fed, logprobs)

    def _hear(self, fed: BoundNodes, logprobs: Logprobs) -> None:
        table = self._table
        ways, rows = table.ways(fed.nodes)
        fed = self._followed(fed, np.searchsorted(rows, np.arange(len(fed))), logprobs)
        found = BoundNodes(fed.values[rows], table.behind[ways], fed.logprobs[rows] + logprobs)
        is_end = found.nodes < 0
        ends = found[is_end]
        self._heard = self._heard + fed
        self._spelled = self._spelled + BoundNodes(ends.values, ~ends.nodes, ends.logprobs)
        self._waiting = (self._waiting + found[~is_end]).without(fed)

    def _followed(self, fed: BoundNodes, firsts: IntArray, logprobs: Logprobs) -> BoundNodes:
        """With their log-probabilities: those of nodes that were fed with the ones above them follow from these.

        Args:
            firsts: int64 [n], where each node's first way is in `logprobs`.
        """
        table, keys, found = self._table, fed.keys, fed.logprobs.copy()
        depths = table.depths[fed.nodes]
        is_new = np.isnan(found)
        for depth in np.unique(depths[is_new]).tolist():
            here = np.nonzero(is_new & (depths == depth))[0]
            way = table.way_of[fed.nodes[here]]
            above = table.above[fed.nodes[here]]
            rows = np.searchsorted(keys, fed.values[here] << NODE_BITS | above)
            found[here] = found[rows] + logprobs[firsts[rows] + way - table.offsets[above]]
        return BoundNodes(fed.values, fed.nodes, found)

    def decide(self) -> MemberVerdicts:
        """Finds out which values are done, and what is to be fed of the others. Call it once behind `hear`, and `keep`
        the others then."""
        found = MemberBounds.of(self._spelled, self._waiting, self._table, self._roots, self._rates, self._rule)
        num_waiting = np.bincount(self._waiting.values, minlength=len(self.budgets))
        is_done = found.is_sure | found.is_lost | (self.budgets <= 0) | (num_waiting == 0)
        self.next = self._wanted(found, is_done)
        every = MemberVerdicts(np.arange(len(is_done)), found.spellings, found.is_sure, found.shares, found.margins)
        return every[is_done]

    def _wanted(self, found: MemberBounds, is_done: npt.NDArray[np.bool_]) -> BoundNodes:
        """Of each open value, the likeliest nodes that wait, until the others do not matter or the budget is spent.
        First of all those that lead to a null which is the answer, whatever the others are."""
        waiting = self._waiting[~is_done[self._waiting.values]]
        is_later = ~(found.wants_null[waiting.values] & self._leads_to_null(waiting))
        waiting = waiting[np.lexsort((waiting.nodes, -waiting.logprobs, is_later, waiting.values))]
        # Whole numbers, whose sums are the same among whatever others: its mass and that of those behind it.
        masses = _whole(np.exp(waiting.logprobs - found.scales[waiting.values]))
        until = np.searchsorted(waiting.values, waiting.values, side="right")
        sums = np.cumsum(masses)
        rest = sums[until - 1] - sums + masses
        is_first = np.diff(waiting.values, prepend=-1) != 0
        waiting = waiting[(rest > _whole(found.limits)[waiting.values]) | is_first]

        sizes = self._table.runs[waiting.nodes]
        before = np.cumsum(sizes) - sizes
        before -= before[np.searchsorted(waiting.values, waiting.values)]
        sizes = np.clip(self._room(waiting)[waiting.values] - before, 0, sizes)
        ranks = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows = np.repeat(np.arange(len(sizes)), sizes)
        # Of those that are fed with the ones above them nobody has said anything yet.
        logprobs = np.where(ranks == 0, waiting.logprobs[rows], np.nan)
        return BoundNodes(waiting.values[rows], waiting.nodes[rows] + ranks, logprobs).in_order()

    def _leads_to_null(self, nodes: BoundNodes) -> npt.NDArray[np.bool_]:
        end = self._table.ends[self._table.nulls[self._roots[nodes.values]]]
        found: npt.NDArray[np.bool_] = (nodes.nodes <= end) & (end <= self._table.lasts[nodes.nodes])
        return found

    def _room(self, wanted: BoundNodes) -> IntArray:
        """int64 [v], how many nodes of each value are fed in this round.

        Args:
            wanted: those that matter, of each value the likeliest one first.
        """
        table, values = self._table, np.unique(wanted.values, return_index=True)
        first = np.zeros(len(self.budgets), dtype=np.int64)
        first[values[0]] = wanted.nodes[values[1]]
        below = np.zeros_like(self.budgets)
        np.add.at(below, wanted.values, table.lasts[wanted.nodes] - wanted.nodes + 1)
        shared = np.maximum((self.budgets - table.heights[first]) // 2, table.runs[first])
        return np.where(below <= self.budgets, self.budgets, np.minimum(self.budgets, shared))

    def written(self, verdicts: MemberVerdicts) -> list[tuple[IntArray, FloatArray]]:
        """Of verdicts with spellings: the tokens of each, and the log-probability of each token."""
        table, heard, spelled = self._table, self._heard.in_order(), self._spelled.in_order()
        lasts = spelled.logprobs[np.searchsorted(spelled.keys, verdicts.values << NODE_BITS | verdicts.spellings)]
        found = []
        for value, spelling, last in zip(verdicts.values.tolist(), verdicts.spellings.tolist(), lasts, strict=True):
            tokens, path = table.spelling(spelling)
            places = np.searchsorted(heard.keys, value << NODE_BITS | path)
            found.append((tokens, np.diff(heard.logprobs[places], append=last)))
        return found


def _whole(masses: FloatArray) -> IntArray:
    return (masses * 2.0**_MASS_BITS).astype(np.int64)
