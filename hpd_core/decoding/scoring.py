"""Values of a cohort that are chosen among members: which nodes of their tries are fed, and their results.

Such a value is in a `MemberSearch` from the logits after its key until its member is known, mostly one to three steps.
It is then complete: none of its tokens is fed any more. If the budget does not suffice to find a member, it is decoded
token by token (decoding/value_states.py has its first token).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hpd_core.decoding.cohort_cache import TokensInAnyOrder
from hpd_core.decoding.member_bounds import BoundNodes
from hpd_core.decoding.member_search import MemberSearch
from hpd_core.decoding.value_states import NO_VALUES, ValueIndex, ValueStates
from hpd_core.layout import NO_NODE, IntArray
from hpd_core.text.member_tries import TrieTable


class Scoring:
    """Open values of one cohort that are chosen among members, numbered from 0 in the order of rows and branches.

    So the nodes fed for them, and their results, come in the order of the packed row."""

    def __init__(self, table: TrieTable, threshold: float | None = None) -> None:
        """Start without values. `threshold`: share that a member needs; None: null needs a half."""
        self._table, self._threshold = table, threshold
        self._at = NO_VALUES
        nothing = np.zeros(0, dtype=np.int64)
        self._search = MemberSearch(table, nothing, nothing, np.zeros(0), np.zeros(0), threshold)
        self._fed = BoundNodes.none()

    @classmethod
    def merge(cls, parts: Sequence[Scoring], numbers: Sequence[IntArray]) -> Scoring:
        """Merge values of several cohorts; `numbers`: for each cohort, the new row of each row with open values."""
        merged = cls(parts[0]._table, parts[0]._threshold)
        for part, rows in zip(parts, numbers, strict=True):
            part.move(rows)
            merged._add(part._at, part._search)
        return merged

    def move(self, numbers: IntArray) -> None:
        """Renumber rows: row r of the cohort has become row `numbers[r]`."""
        rows, branches = self._at
        self._at = numbers[rows], branches
        self._sort()

    def _add(self, at: ValueIndex, search: MemberSearch) -> None:
        (rows, branches), (more_rows, more_branches) = self._at, at
        self._at = np.concatenate([rows, more_rows]), np.concatenate([branches, more_branches])
        self._search.add(search)
        self._sort()

    def _sort(self) -> None:
        rows, branches = self._at
        order = np.lexsort((branches, rows))
        if (np.diff(order) < 0).any():
            self._keep(order)

    def drop(self, rows: IntArray) -> None:
        """Drop the values of some rows, between steps."""
        self._keep(np.nonzero(~np.isin(self._at[0], rows))[0])

    def _keep(self, kept: IntArray) -> None:
        rows, branches = self._at
        self._at = rows[kept], branches[kept]
        self._search.keep(kept)

    @property
    def num_next(self) -> int:
        """Number of nodes to feed next."""
        return len(self._search.next)

    def num_next_of(self, num_prompts: int) -> IntArray:
        """Return the number of nodes to feed next for each row, int64 [P]."""
        return np.bincount(self._at[0][self._search.next.values], minlength=num_prompts)

    def begin(self, at: ValueIndex, values: ValueStates, logprobs: npt.NDArray[np.floating]) -> None:
        """Take those of the values that are chosen among members, once there are logits after their keys.

        Args:
            logprobs: log-probabilities of all ways of their roots (`TrieTable.wanted`).
        """
        rows, branches = at
        is_ours = values.roots[at] != NO_NODE
        ours = rows[is_ours], branches[is_ours]
        if not len(ours[0]):
            return
        values.is_scored[ours] = True
        roots, budgets, rates = values.roots[ours], values.budgets[ours], values.rates[ours]
        self._add(ours, MemberSearch(self._table, roots, budgets, rates, logprobs, self._threshold))
        self._decide(values)

    def feed(self, values: ValueStates, most: int) -> tuple[TokensInAnyOrder, IntArray]:
        """Feed the next nodes of the first values, and all of them for each.

        Args:
            most: the most nodes; but at least those of one value.

        Returns:
            The tokens, and the node of each.
        """
        following, table = self._search.next, self._table
        # Whole values only, so that the results of each do not depend on what else is fed.
        stops = np.nonzero(np.diff(following.values, append=-1))[0] + 1
        count = int(stops[max(0, int(np.searchsorted(stops, most, side="right")) - 1)])
        self._fed = fed = following[np.arange(count)]
        rows, branches = (indices[fed.values] for indices in self._at)
        at = rows, branches
        shift = values.scopes[at] - values.roots[at]
        tokens = TokensInAnyOrder(
            table.tokens[fed.nodes],
            values.end_positions[at] + table.depths[fed.nodes],
            fed.nodes + shift,
            table.lasts[fed.nodes] + shift,
            rows,
        )
        return tokens, fed.nodes

    def hear(self, values: ValueStates, logprobs: npt.NDArray[np.floating]) -> npt.NDArray[np.bool_]:
        """Take the model's output for the fed nodes.

        Args:
            logprobs: log-probabilities of all ways of these nodes (`TrieTable.wanted`).

        Returns:
            bool, for each node that was fed, whether it is not needed any more.
        """
        fed, self._fed = self._fed, BoundNodes.none()
        self._search.hear(fed, logprobs)
        is_done = self._decide(values)
        return is_done[fed.values]

    def _decide(self, values: ValueStates) -> npt.NDArray[np.bool_]:
        """Give done values their members, and keep the others. Return which were done, bool by number."""
        search, (rows, branches) = self._search, self._at
        values.budgets[rows, branches] = search.budgets
        verdicts = search.decide()
        found = verdicts[verdicts.spellings >= 0]
        written = search.written(found)
        values.settle((rows[found.values], branches[found.values]), written, found)
        # The fed nodes that are part of an answer are all of its tokens but the last.
        num_others = search.num_fed.copy()
        num_others[found.values] -= np.array([len(tokens) - 1 for tokens, _ in written], dtype=np.int64)
        done = rows[verdicts.values], branches[verdicts.values]
        values.end_scoring(done, num_others[verdicts.values])
        is_done = np.zeros(len(rows), dtype=bool)
        is_done[verdicts.values] = True
        self._keep(np.nonzero(~is_done)[0])
        return is_done
