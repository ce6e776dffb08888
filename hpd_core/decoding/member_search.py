"""Choice of closed answers, by branch and bound over the tries of their members (text/member_tries.py).

An answer is null if the model gives null at least half of its probability, else the likeliest member: anything else
that the model would say stands for some member. So null's share is its own probability, and the members share the rest
in proportion to their likelihoods. (By plain likelihoods null would win wherever the model would use words that are no
member's, or cannot decide between some: docs/log.md has the cost.) With a threshold an answer is the likeliest member
if its share reaches that, else null (decoding/member_bounds.py). If members were removed after their shares were known,
their shares are dropped: null and the others get proportionally more (`rates`).

A node's log-probability is that of the tokens up to it, so all below it is less likely. The logits after the key give
those of all first tokens. Then each round feeds, for each value, the nodes that can matter, likeliest first; their
logits give the log-probabilities of all nodes after them. A value is done when the waiting nodes (known, but not fed)
can hold no likelier member than the best, and cannot decide about null. All of them together must also have no more
than `NEGLIGIBLE` of the members' mass. So the answer is exactly that of scoring all members, mostly at the cost of
little more than its own tokens.

With thousands of members not all that matters can be fed. So if the budget may not suffice for all waiting nodes, a
round spends half of what is left. It first reserves what the likeliest node needs to reach the ends of its spellings.
Towards the end of the budget only the likeliest node is fed. When the budget is spent, the best member is the answer if
no waiting node is likelier. So it is at least as likely as the result of greedy decoding: that has been found, too, or
is below a waiting node. Else there is no verdict.

Which nodes of a value are fed depends only on the model's output for this value. There is no model in here:
log-probabilities come in, nodes go out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpd_core.decoding.member_bounds import NODE_BITS, BoundNodes, FloatArray, MemberBounds
from hpd_core.layout import IntArray
from hpd_core.text.member_tries import TrieTable

Logprobs = npt.NDArray[np.float32] | FloatArray

_MASS_BITS = 36


class MemberSearch:
    """Search for the members of some values, which are numbered from 0.

    Attributes:
        budgets: int64 [v], the most nodes that may still be fed for each.
        num_fed: int64 [v], the number of nodes fed.
        next: nodes to feed next, in the order of the keys; none of values that are done.
    """

    def __init__(
        self,
        table: TrieTable,
        roots: IntArray,
        budgets: IntArray,
        rates: FloatArray,
        logprobs: Logprobs,
        threshold: float | None = None,
    ) -> None:
        """Begin the search of v values.

        Args:
            roots, budgets: int64 [v]
            rates: float64 [v], the share of a member for a likelihood of 1, from when there were more members. NaN: the
                members share all that null does not have.
            logprobs: float [m], log-probabilities of all ways of the roots (`TrieTable.wanted`).
            threshold: share that a member needs; None: null needs a half.
        """
        self._table, self._roots, self._rates, self._threshold = table, roots, rates, threshold
        self.budgets = budgets
        self.num_fed = np.zeros_like(budgets)
        self._heard = self._waiting = self._spelled = self.next = (
            BoundNodes.none()
        )  # of _spelled, `nodes` are spellings
        self._hear(BoundNodes(np.arange(len(roots)), roots, np.zeros(len(roots))), logprobs)

    def add(self, others: MemberSearch) -> None:
        """Append the values of another search."""
        first = len(self.budgets)
        for name in ("_heard", "_waiting", "_spelled", "next"):
            own: BoundNodes = getattr(others, name)
            setattr(self, name, getattr(self, name) + BoundNodes(own.values + first, own.nodes, own.logprobs))
        self._roots = np.concatenate([self._roots, others._roots])
        self._rates = np.concatenate([self._rates, others._rates])
        self.budgets = np.concatenate([self.budgets, others.budgets])
        self.num_fed = np.concatenate([self.num_fed, others.num_fed])

    def keep(self, values: IntArray) -> None:
        """Drop all values but these, which are renumbered in this order."""
        numbers = np.full(len(self.budgets), -1, dtype=np.int64)
        numbers[values] = np.arange(len(values))
        for name in ("_heard", "_waiting", "_spelled", "next"):
            setattr(self, name, getattr(self, name).numbered(numbers).in_order())
        self._roots, self._rates = self._roots[values], self._rates[values]
        self.budgets, self.num_fed = self.budgets[values], self.num_fed[values]

    def hear(self, fed: BoundNodes, logprobs: Logprobs) -> None:
        """Take the model's output for nodes that were fed.

        Args:
            fed: a part of `next`: all nodes of some values.
            logprobs: float [m], log-probabilities of all their ways, as `TrieTable.wanted` orders them.
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
        """Fill in missing log-probabilities: nodes fed together with the ones above them follow from these.

        Args:
            firsts: int64 [n], the index of each node's first way in `logprobs`.
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

    def decide(self) -> MemberBounds:
        """Find out which values are done, and what to feed next for the others. Call it once after `hear`, then `keep`
        the others."""
        found = MemberBounds.of(self._spelled, self._waiting, self._table, self._roots, self._rates, self._threshold)
        num_waiting = np.bincount(self._waiting.values, minlength=len(self.budgets))
        is_done = found.is_sure | found.is_lost | (self.budgets <= 0) | (num_waiting == 0)
        self.next = self._wanted(found, is_done)
        return found[is_done]

    def _wanted(self, found: MemberBounds, is_done: npt.NDArray[np.bool_]) -> BoundNodes:
        """Return each open value's likeliest waiting nodes, until the others do not matter or the budget is spent.

        Those that lead to a null come first if null is the answer."""
        waiting = self._waiting[~is_done[self._waiting.values]]
        is_later = ~(found.wants_null[waiting.values] & self._leads_to_null(waiting))
        waiting = waiting[np.lexsort((waiting.nodes, -waiting.logprobs, is_later, waiting.values))]
        # Integers, whose sums do not depend on the other values: the mass of each node plus that of less likely ones.
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
        # Nodes that are fed together with the ones above them have no log-probability yet.
        logprobs = np.where(ranks == 0, waiting.logprobs[rows], np.nan)
        return BoundNodes(waiting.values[rows], waiting.nodes[rows] + ranks, logprobs).in_order()

    def _leads_to_null(self, nodes: BoundNodes) -> npt.NDArray[np.bool_]:
        end = self._table.ends[self._table.nulls[self._roots[nodes.values]]]
        found: npt.NDArray[np.bool_] = (nodes.nodes <= end) & (end <= self._table.lasts[nodes.nodes])
        return found

    def _room(self, wanted: BoundNodes) -> IntArray:
        """Return how many nodes of each value to feed in this round, int64 [v].

        Args:
            wanted: nodes that matter, the likeliest one of each value first.
        """
        table, values = self._table, np.unique(wanted.values, return_index=True)
        first = np.zeros(len(self.budgets), dtype=np.int64)
        first[values[0]] = wanted.nodes[values[1]]
        below = np.zeros_like(self.budgets)
        np.add.at(below, wanted.values, table.lasts[wanted.nodes] - wanted.nodes + 1)
        shared = np.maximum((self.budgets - table.heights[first]) // 2, table.runs[first])
        return np.where(below <= self.budgets, self.budgets, np.minimum(self.budgets, shared))

    def written(self, verdicts: MemberBounds) -> list[tuple[IntArray, FloatArray]]:
        """Return the tokens of each verdict's spelling, and the log-probability of each token."""
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
