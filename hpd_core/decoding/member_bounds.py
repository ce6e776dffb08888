"""Bounds on the answers of values while their members are searched (decoding/member_search.py): the best so far, and
how much the unknown ones may still have."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from hpd_core.layout import IntArray
from hpd_core.text.member_tries import NULL_MEMBER, TrieTable

NODE_BITS = 40

NEGLIGIBLE = 0.01
"""Share of the probability of all members that may stay unknown: a share is wrong by no more than that. A smaller one
gains little and costs more fed nodes."""

_LEAST = 1e-300
_HALF = 0.5

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BoundNodes:
    """Nodes of the tries of values, [n] each: the value's number, the node's, and the log-probability up to it."""

    values: IntArray
    nodes: IntArray
    logprobs: FloatArray

    @classmethod
    def none(cls) -> BoundNodes:
        """Return an empty collection."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))

    def __getitem__(self, picked: IntArray | npt.NDArray[np.bool_]) -> BoundNodes:
        return BoundNodes(self.values[picked], self.nodes[picked], self.logprobs[picked])

    def __add__(self, other: BoundNodes) -> BoundNodes:
        return BoundNodes(
            *(np.concatenate([getattr(self, field.name), getattr(other, field.name)]) for field in fields(self))
        )

    def __len__(self) -> int:
        return len(self.values)

    @property
    def keys(self) -> IntArray:
        """Unique keys, in the order of values and then of nodes: int64 [n]."""
        return self.values << NODE_BITS | self.nodes

    def in_order(self) -> BoundNodes:
        """Sort by keys."""
        return self[np.argsort(self.keys)]

    def numbered(self, numbers: IntArray) -> BoundNodes:
        """Renumber values by `numbers`, and drop those whose new number is negative."""
        own = self[numbers[self.values] >= 0]
        return BoundNodes(numbers[own.values], own.nodes, own.logprobs)

    def without(self, others: BoundNodes) -> BoundNodes:
        """Remove those that are among `others`."""
        return self[~np.isin(self.keys, others.keys)]


@dataclass(frozen=True, slots=True)
class MemberBounds:
    """Bounds of v values. Masses are probabilities, in units of the likeliest spelling or node of each value.

    Attributes:
        values: int64 [v], their numbers.
        scales: float64 [v], the logarithm of that unit.
        is_lost: bool [v], whether there is no such unit: a log-probability is NaN, or no probability is above 0.
        spellings: int64 [v], the answer's likeliest spelling; -1 if the budget did not suffice to find it, or the
            model's numbers are NaN.
        is_sure: bool [v], whether scoring all members would give the same answer, and its share is known; else the
            budget was spent.
        shares: float64 [v], the answer's share of all probability, wrong by `NEGLIGIBLE` at most. It is too low if not
            sure, and for a null with several spellings by those that were not searched.
        margins: float64 [v], its log-probability above any other's, or somewhat less. Below 0 if null is likelier than
            this member, but has not half of all; with a threshold, if null is the answer and less likely.
        limits: float64 [v], the mass of nodes that need not be fed any more.
        wants_null: bool [v], whether the answer is null, but none of its spellings is known yet.
    """

    values: IntArray
    scales: FloatArray
    is_lost: npt.NDArray[np.bool_]
    spellings: IntArray
    is_sure: npt.NDArray[np.bool_]
    shares: FloatArray
    margins: FloatArray
    limits: FloatArray
    wants_null: npt.NDArray[np.bool_]

    def __getitem__(self, picked: npt.NDArray[np.bool_]) -> MemberBounds:
        return MemberBounds(*(getattr(self, field.name)[picked] for field in fields(self)))

    @classmethod
    def of(
        cls,
        spelled: BoundNodes,
        waiting: BoundNodes,
        table: TrieTable,
        roots: IntArray,
        rates: FloatArray,
        threshold: float | None,
    ) -> MemberBounds:
        """Compute the bounds of v values.

        Args:
            spelled: `nodes` are spellings.
            waiting: nodes that are known, but not fed.
            roots: int64 [v]
            rates: float64 [v], as in `MemberSearch`.
            threshold: decides when answers are null, see `_judged`.
        """
        num_values, members = len(roots), table.members
        scales, is_lost = np.full(num_values, -np.inf), np.zeros(num_values, dtype=bool)
        for known in (spelled, waiting):
            is_lost[known.values[np.isnan(known.logprobs)]] = True
        spelled, waiting = (known[~is_lost[known.values]] for known in (spelled, waiting))
        for known in (spelled, waiting):
            np.maximum.at(scales, known.values, known.logprobs)
        is_lost |= np.isinf(scales)
        scales[is_lost] = 0

        open_mass, likeliest_open = _totals(waiting, scales), np.zeros(num_values)
        np.maximum.at(likeliest_open, waiting.values, _masses(waiting, scales))
        is_null = members[spelled.nodes] == NULL_MEMBER
        nulls, spelled = spelled[is_null], spelled[~is_null]
        units = np.exp(scales)
        null = units * _totals(nulls, scales)
        all_mass = _totals(spelled, scales) + open_mass
        spellings, best, second = _best_members(spelled, members, scales)
        spellings = np.where((best > 0) & (best >= likeliest_open), spellings, -1)

        is_enough = open_mass <= NEGLIGIBLE * (all_mass - open_mass)
        ahead = best - second
        null, same_null, most_null = _of_what_is_left(null, rates, units, all_mass, open_mass)
        unit_share = (1 - null) / np.maximum(all_mass, _LEAST)
        can_be_null = table.nulls[roots] >= 0
        is_null_now, is_value, room = _judged(threshold, can_be_null, null, most_null, best, all_mass, open_mass, units)
        null_spellings = _likeliest(nulls, num_values)
        said = is_null_now & (null_spellings >= 0)
        wants_null = is_null_now & ~said
        # Null's share: its other spellings have little, so it is sure without them; the members' mass may matter.
        is_sure = said & (same_null - null <= NEGLIGIBLE)
        is_sure |= is_enough & (ahead >= open_mass) & is_value & (spellings >= 0)
        is_null = said | ((null >= _HALF) & ~is_value)  # if the budget is spent, with a threshold, too
        shares, others = best * unit_share, np.maximum(null, (second + open_mass) * unit_share)
        shares, others = np.where(is_null, null, shares), np.where(is_null, (best + open_mass) * unit_share, others)
        to_tell = np.minimum(room, np.where(is_enough, ahead, np.inf))
        limits = np.minimum(NEGLIGIBLE * all_mass, np.where(said, np.inf, to_tell))
        return cls(
            values=np.arange(num_values),
            scales=scales,
            is_lost=is_lost,
            spellings=np.where(is_null, null_spellings, spellings),
            is_sure=is_sure,
            shares=shares,
            margins=np.log(np.maximum(shares, _LEAST)) - np.log(np.maximum(others, _LEAST)),
            limits=np.where(wants_null, all_mass, limits),
            wants_null=wants_null,
        )


def _masses(known: BoundNodes, scales: FloatArray) -> FloatArray:
    found: FloatArray = np.exp(known.logprobs - scales[known.values])
    return found


def _totals(known: BoundNodes, scales: FloatArray) -> FloatArray:
    found: FloatArray = np.bincount(known.values, _masses(known, scales), len(scales)).astype(np.float64)
    return found


def _best_members(
    spelled: BoundNodes, members: IntArray, scales: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return for v values: the best member's likeliest spelling, or -1; its mass, and that of the second best."""
    # The spellings of each member, the likeliest first; then members by their mass, of each value the best first.
    spelled = spelled[np.lexsort((spelled.nodes, -spelled.logprobs, members[spelled.nodes], spelled.values))]
    keys = spelled.values << NODE_BITS | members[spelled.nodes]
    first, groups = np.unique(keys, return_index=True, return_inverse=True)[1:]
    values, mass = spelled.values[first], np.bincount(groups, _masses(spelled, scales), len(first))
    order = np.lexsort((-mass, values))
    values, mass, first = values[order], mass[order], first[order]
    ranks = np.arange(len(values)) - np.searchsorted(values, values)
    spellings = np.full(len(scales), -1, dtype=np.int64)
    best, second = np.zeros(len(scales)), np.zeros(len(scales))
    spellings[values[ranks == 0]] = spelled.nodes[first[ranks == 0]]
    best[values[ranks == 0]], second[values[ranks == 1]] = mass[ranks == 0], mass[ranks == 1]
    return spellings, best, second


def _likeliest(spelled: BoundNodes, num_values: int) -> IntArray:
    """Return the likeliest spelling of each of v values, int64 [v]; -1 if there is none."""
    spelled = spelled[np.lexsort((-spelled.logprobs, spelled.values))]
    values, first = np.unique(spelled.values, return_index=True)
    found = np.full(num_values, -1, dtype=np.int64)
    found[values] = spelled.nodes[first]
    return found


def _of_what_is_left(
    null: FloatArray, rates: FloatArray, units: FloatArray, every: FloatArray, waiting: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return null's probability, float64 [v]: its minimum, its maximum if no waiting mass is null's, and its maximum.

    Values with a rate relate it to the sum of what is left, null included."""
    most_null = null + units * waiting
    is_rated = ~np.isnan(rates)
    least, most = (rates * units * mass for mass in (every - waiting, every))

    def of_all(mass: FloatArray, of_others: FloatArray) -> FloatArray:
        return np.where(is_rated, mass / np.maximum(mass + of_others, _LEAST), mass)

    return of_all(null, most), of_all(null, least), of_all(most_null, least)


def _judged(
    threshold: float | None,
    can_be_null: npt.NDArray[np.bool_],
    null: FloatArray,
    most_null: FloatArray,
    best: FloatArray,
    every: FloatArray,
    waiting: FloatArray,
    units: FloatArray,
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], FloatArray]:
    """Judge v values. It is not known yet which member the waiting mass belongs to, if any.

    Args:
        threshold: `EngineConfig.answer_threshold`: an answer is null if no member's share, best (1 - null) / every,
            reaches it. None: if null has at least half of the probability.
        can_be_null: bool [v], whether null is among the possible answers.
        null, most_null: probabilities, the second if all waiting mass is null's.
        best, every, waiting: in `units` of probability, the best member's mass, that of all members with all waiting
            mass, and the waiting mass alone.

    Returns:
        Whether each is certainly null, and whether it is certainly a value, bool [v] each; and about how much of the
        waiting mass may stay unknown for a certain verdict.
    """
    if threshold is None:
        return null >= _HALF, most_null < _HALF, np.maximum(0, _HALF - null) / units
    # The share is least if the waiting mass is null's and another member's at once, and most if it is its own. Another
    # member's share cannot exceed that.
    is_value = best * (1 - most_null) >= threshold * every
    is_null = ((best + waiting) * (1 - null) < threshold * every) | (every <= 0)
    # Distance of the share from the threshold with nothing waiting, and how much of it a unit of waiting mass takes.
    ahead = best * (1 - null) - threshold * (every - waiting)
    to_value, to_null = threshold + units * best, np.maximum(1 - null - threshold, _LEAST)
    room = np.where(ahead >= 0, ahead / to_value, -ahead / to_null)
    return is_null & can_be_null, is_value | ~can_be_null, np.where(can_be_null, room, np.inf)
