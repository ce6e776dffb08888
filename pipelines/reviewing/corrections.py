"""Corrections from people's verdicts: the right answer for each judged answer.

An undone verdict does not count. A person's last verdict counts, and of several people's the last one. If they differ,
the correction is marked as disputed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.reviewing.checked_items import plain_number
from pipelines.reviewing.log_files import read_verdicts
from pipelines.reviewing.verdicts import AnswerKey, ReviewVerdict, SeenAnswer
from pipelines.store.folders import Folder


@dataclass(frozen=True, slots=True)
class Correction:
    """Outcome of people's verdicts on an answer.

    Attributes:
        verdict: the one that counts.
        others: last verdicts of other reviewers, oldest first.
    """

    verdict: ReviewVerdict
    others: tuple[ReviewVerdict, ...] = ()

    @property
    def key(self) -> AnswerKey:
        """Key of the answer that it is about."""
        return self.verdict.key

    @property
    def status(self) -> str:
        """`value` or `absent`."""
        return self.verdict.answer.status

    @property
    def items(self) -> tuple[str, ...]:
        """Right values; empty if the text states none."""
        return self.verdict.answer.items

    @property
    def evidence(self) -> Sequence[Sequence[Mapping[str, Any]]] | None:
        """Places per item, as in the table of attributes; None if they were not looked for."""
        return self.verdict.evidence

    @property
    def is_accepted(self) -> bool:
        """Whether the model's answer was accepted unchanged."""
        return self.verdict.verdict == "accept"

    def is_of(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether an answer, given as its rows, is the one that was judged.

        If the run was redone in this folder, another model may have answered.
        """
        seen, first = self.verdict.seen, rows[0]
        items = tuple(row["value_raw"] for row in rows if row["status"] == "value" and row["value_raw"] is not None)
        return (first["status"], items) == (seen.status, seen.items)

    @property
    def is_corrected(self) -> bool:
        """Whether the right answer differs from the model's."""
        return not same_answer(self.verdict.answer, self.verdict.seen)

    @property
    def is_disputed(self) -> bool:
        """Whether the reviewers' answers differ."""
        return any(not same_answer(other.answer, self.verdict.answer) for other in self.others)


def corrections(run: Folder) -> dict[AnswerKey, Correction]:
    """Return the run's corrections, by (source_file, source_row, attribute).

    Raises `UsageError` for a damaged log, `OSError` if one cannot be read.
    """
    return settle(read_verdicts(run))


def settle(verdicts: Iterable[ReviewVerdict]) -> dict[AnswerKey, Correction]:
    """Merge verdicts, ordered as by `in_order`, into corrections."""
    found: dict[AnswerKey, Correction] = {}
    for key, by_reviewer in latest(verdicts).items():
        *others, last = by_reviewer.values()
        found[key] = Correction(last, tuple(others))
    return found


def latest(verdicts: Iterable[ReviewVerdict]) -> dict[AnswerKey, dict[str, ReviewVerdict]]:
    """Return for each answer every reviewer's last verdict that gives the right answer, in order of time.

    A later skip of an answer withdraws the reviewer's verdict.
    """
    verdicts = list(verdicts)
    undone = {verdict.undoes for verdict in verdicts if verdict.verdict == "undo"}
    found: dict[AnswerKey, dict[str, ReviewVerdict]] = {}
    for verdict in verdicts:
        if verdict.verdict == "undo" or verdict.id in undone:
            continue
        here = found.setdefault(verdict.key, {})
        here.pop(verdict.reviewer, None)  # the last one stands at the end
        if verdict.is_answer:
            here[verdict.reviewer] = verdict
    return {key: here for key, here in found.items() if here}


def same_answer(first: SeenAnswer, second: SeenAnswer) -> bool:
    """Return whether two answers are equal, ignoring case, spaces, order of items and units of numbers."""
    if first.status != second.status:
        return False
    if first.forms and second.forms and set(first.forms) == set(second.forms):
        return True
    if bool(first.forms) != bool(second.forms):
        # What one of the numbers is worth is not known: that its unit is left open makes it no other number.
        return _folded(map(_number, first.items)) == _folded(map(_number, second.items))
    return _folded(first.items) == _folded(second.items)


def _number(item: str) -> str:
    text = plain_number(item)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _folded(items: Iterable[str]) -> set[str]:
    return {" ".join(item.split()).casefold() for item in items}
