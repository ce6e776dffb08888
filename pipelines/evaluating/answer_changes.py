"""Agreement of two runs: kinds of change, counts and intervals; pure functions.

An answer is compared with the other run's for the same attribute of the same row. They are the same if they have the
same status and, for a value, the same set of items. Only attributes that both runs asked for are counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from pipelines.quality.scoring import Estimate
from pipelines.store.totals import sum_of_known

# As in the tables, and: the row was dead-lettered; the run's schema does not have the attribute.
Status = Literal["value", "absent", "truncated", "invalid", "error", "dead_letter", "not_asked"]
STATUSES: tuple[Status, ...] = get_args(Status)
WRITTEN_STATUSES = STATUSES[:5]  # in the tables
_ANSWERS = ("value", "absent")

Kind = Literal[
    "same_value",
    "both_absent",
    "both_failed",  # in the same way: both truncated, both invalid or both error
    "other_value",
    "value_to_absent",
    "absent_to_value",
    "to_failure",  # truncated, invalid, error, dead letter
    "from_failure",
    "other_failure",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
SAME_KINDS: tuple[Kind, ...] = KINDS[:3]

_Z = 1.959964  # of a 95% interval of the normal distribution


class ChangeCell(NamedTuple):
    """Number of answers of one attribute that are equal in all counted properties.

    Attributes:
        text_changed: whether the two runs read different texts.
        same_decode: whether both answers are one decode: one run carried it over from the other, or both from an
            earlier one.
        ungrounded_a, ungrounded_b: number of them whose value stands nowhere in the text; None: not looked for.
    """

    category: str
    attribute: str
    text_changed: bool
    status_a: Status
    status_b: Status
    is_same: bool
    same_decode: bool
    num_answers: int
    ungrounded_a: int | None
    ungrounded_b: int | None


class TrustChange(NamedTuple):
    """Answers of one attribute with another decision or source in B than in A.

    Attributes:
        now_accepted, now_to_review: decided differently; only if both runs decided.
        now_reviewed, no_longer_reviewed: given by a person in B alone, in A alone.
    """

    category: str
    attribute: str
    now_accepted: int
    now_to_review: int
    now_reviewed: int
    no_longer_reviewed: int


class Moments(NamedTuple):
    """Sums over the rows of a category: number of answers n, number of same answers x, and their products."""

    num_rows: int
    n: int
    x: int
    nn: int
    xn: int
    xx: int

    def __add__(self, other: object) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        return Moments(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class AnswerAgreement:
    """Agreement of the two runs' answers.

    Attributes:
        num_answers: number of attributes of rows that both were asked for.
        share: share of same answers, with its 95% interval; None without answers.
        kinds: number of answers by kind of change from A to B.
        statuses: number of answers by both statuses, "value > absent"; only those that occur.
        num_same_decode: number of answers of which one was carried over; they are in all counts.
        num_kept: number of them that are the same; a person may have corrected the others since.
    """

    num_answers: int
    num_same: int
    share: Estimate | None
    kinds: dict[Kind, int]
    statuses: dict[str, int]
    num_same_decode: int
    num_kept: int


@dataclass(frozen=True, slots=True)
class CategoryAgreement:
    """Agreement on all attributes of a category."""

    category: str
    num_rows: int
    agreement: AnswerAgreement


@dataclass(frozen=True, slots=True)
class AttributeAgreement:
    """Agreement on one attribute of a category.

    Attributes:
        only_a, only_b: rows for which only this run asked for the attribute.
        ungrounded_a, ungrounded_b: number of values that stand nowhere in the text; None if no value was looked for.
    """

    category: str
    attribute: str
    agreement: AnswerAgreement
    only_a: int
    only_b: int
    ungrounded_a: int | None
    ungrounded_b: int | None


def kind(status_a: Status, status_b: Status, is_same: bool) -> Kind:
    """Classify the change of an answer from A to B."""
    if status_a in _ANSWERS and status_b in _ANSWERS:
        if status_a == status_b:
            return "both_absent" if status_a == "absent" else "same_value" if is_same else "other_value"
        return "value_to_absent" if status_a == "value" else "absent_to_value"
    if status_a in _ANSWERS:
        return "to_failure"
    if status_b in _ANSWERS:
        return "from_failure"
    return "both_failed" if is_same else "other_failure"


def wilson(share: float, number: float) -> Estimate:
    """Return the share of `number` independent trials with its Wilson interval."""
    center = share + _Z**2 / (2 * number)
    spread = _Z * math.sqrt(share * (1 - share) / number + _Z**2 / (4 * number**2))
    scale = 1 + _Z**2 / number
    # Rounding must not put the share itself outside.
    return Estimate(share, min(share, max(0.0, (center - spread) / scale)), max(share, (center + spread) / scale))


def clustered(moments: Moments) -> Estimate | None:
    """Return the share of same answers with an interval that allows for dependent answers within a row.

    The variance of a ratio over rows (linearised) gives the effective number of independent answers. It is at most the
    number of answers, and at least that for one answer per row (Kish). A Wilson interval then uses that number.
    """
    _, n, x, nn, xn, xx = moments
    if not n:
        return None
    share = x / n
    variance = max(0.0, xx - 2 * share * xn + share**2 * nn) / n**2
    least = n**2 / nn
    worth = share * (1 - share) / variance if variance else least
    return wilson(share, min(max(worth, least), float(n)))


def summarise(cells: Iterable[ChangeCell], share: Estimate | None) -> AnswerAgreement:
    """Sum the counts of `cells`, without answers that only one run was asked for."""
    cells = [cell for cell in cells if "not_asked" not in (cell.status_a, cell.status_b)]
    kinds: Counter[Kind] = Counter()
    statuses: Counter[str] = Counter()
    for cell in cells:
        kinds[kind(cell.status_a, cell.status_b, cell.is_same)] += cell.num_answers
        statuses[f"{cell.status_a} > {cell.status_b}"] += cell.num_answers
    return AnswerAgreement(
        num_answers=kinds.total(),
        num_same=sum(kinds[each] for each in SAME_KINDS),
        share=share,
        kinds={each: kinds[each] for each in KINDS},
        statuses=dict(statuses.most_common()),
        num_same_decode=sum(cell.num_answers for cell in cells if cell.same_decode),
        num_kept=sum(cell.num_answers for cell in cells if cell.same_decode and cell.is_same),
    )


def by_attribute(cells: Iterable[ChangeCell]) -> list[AttributeAgreement]:
    """Return the agreement on every attribute, least first; attributes that only one run asked for come last."""
    groups: dict[tuple[str, str], list[ChangeCell]] = {}
    for cell in cells:
        groups.setdefault((cell.category, cell.attribute), []).append(cell)
    found = [_attribute(category, attribute, group) for (category, attribute), group in groups.items()]
    return sorted(
        found,
        key=lambda each: (
            2.0 if each.agreement.share is None else each.agreement.share.value,
            -each.agreement.num_answers,
            each.category,
            each.attribute,
        ),
    )


def _attribute(category: str, attribute: str, cells: list[ChangeCell]) -> AttributeAgreement:
    number = sum(cell.num_answers for cell in cells if "not_asked" not in (cell.status_a, cell.status_b))
    # A row has one answer for an attribute, so answers are independent here.
    same = sum(cell.num_answers for cell in cells if cell.is_same)
    return AttributeAgreement(
        category,
        attribute,
        summarise(cells, wilson(same / number, number) if number else None),
        only_a=sum(cell.num_answers for cell in cells if cell.status_b == "not_asked"),
        only_b=sum(cell.num_answers for cell in cells if cell.status_a == "not_asked"),
        ungrounded_a=sum_of_known(cell.ungrounded_a for cell in cells),
        ungrounded_b=sum_of_known(cell.ungrounded_b for cell in cells),
    )


def by_category(cells: Iterable[ChangeCell], moments: dict[str, Moments]) -> list[CategoryAgreement]:
    """Return the agreement on every category, least first."""
    groups: dict[str, list[ChangeCell]] = {}
    for cell in cells:
        groups.setdefault(cell.category, []).append(cell)
    found = [
        CategoryAgreement(
            category, moments[category].num_rows, summarise(groups[category], clustered(moments[category]))
        )
        for category in moments
    ]
    return sorted(found, key=lambda each: (each.agreement.share.value if each.agreement.share else 2.0, each.category))
