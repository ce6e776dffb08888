"""Check that reviews still apply: to the texts, and for accepted answers to the answers, that the run now has.

A folder's reviews outlive its tables. A run may be removed and redone, on an edited or re-sorted catalog, or by another
model. A verdict on a row's former text is then ignored until the row has that text again. An acceptance of a former
answer is ignored until the row has that answer again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hpd_core import CategorySchema
from pipelines.store.corrections import latest, settle
from pipelines.store.folders import Folder, map_requests
from pipelines.store.tables import read_columns
from pipelines.store.verdicts import AnswerKey, ReviewVerdict

Place = tuple[str, int]
"""Row of the catalog: `source_file` and `source_row`."""

_PLACE = ["source_file", "source_row"]
_OTHER_ANSWER = "the run has another answer now than the one that was called right"


@dataclass(frozen=True, slots=True)
class TextsInRun:
    """Reviewed rows, as the run has them.

    Attributes:
        hashes: the text's `input_hash` by row; None if the run has no such row.
        asked: attributes of each category; None if the run did not record them.
        parts: part of the tables that holds each row; only for rows that the run has.
    """

    hashes: Mapping[Place, str | None]
    asked: Mapping[str, Collection[str]] | None
    parts: Mapping[Place, str]

    @classmethod
    def read(cls, run: Folder, places: Collection[Place], schemas: Mapping[str, CategorySchema] | None) -> TextsInRun:
        """Read three columns of the products. Raises `RunError` or `OSError` if they cannot be read."""
        names = [name for name in run.list("products") if name.endswith(".parquet")] if places else []
        numbers = pa.array(sorted({number for _, number in places}), pa.int64())
        found: dict[Place, str | None] = dict.fromkeys(places)
        parts: dict[Place, str] = {}
        read = map_requests(lambda name: _rows(run, name, numbers), names)
        for name, part in zip(names, read, strict=True):
            here = {place: text for place, text in part.items() if place in found}
            found |= here
            parts |= dict.fromkeys(here, name)
        asked = {name: {each.name for each in schema.attributes} for name, schema in (schemas or {}).items()}
        return cls(found, asked or None, parts)

    def has(self, key: AnswerKey, text: str) -> bool:
        """Return whether the run's row has this text; True for a row that was not looked up."""
        return self.hashes.get((key.source_file, key.source_row), text) == text

    def refusal(self, verdict: ReviewVerdict) -> str | None:
        """Return why the verdict does not apply to this run; None if it applies."""
        text = self.hashes[verdict.source_file, verdict.source_row]
        if text is None:
            return "the run has no such row"
        if text != verdict.input_hash:
            return "the row has another text now"
        if self.asked is not None and verdict.attribute not in self.asked.get(verdict.category, ()):
            return "the run does not ask for it"
        return None


@dataclass(frozen=True, slots=True)
class LeftOutReviews:
    """A verdict that does not apply to this run; it stays in `reviews/`."""

    verdict: ReviewVerdict
    reason: str

    def describe(self) -> str:
        """Describe it for the user, in one line."""
        said = self.verdict
        what = {"accept": "right", "absent": "not stated"}.get(said.verdict) or "; ".join(said.items)
        return f"{said.source_file}:{said.source_row} > {said.attribute} ({said.reviewer}: {what}): {self.reason}"


def divided(
    verdicts: Iterable[ReviewVerdict], texts: TextsInRun, answers: Mapping[AnswerKey, Sequence[Mapping[str, Any]]]
) -> tuple[list[ReviewVerdict], list[LeftOutReviews]]:
    """Split verdicts into those that apply (with undos and skips) and each person's last one that does not; in order.

    Nothing is left out for an answer that somebody has judged again.

    Args:
        answers: current rows of the model's answers that were accepted.
    """
    verdicts = list(verdicts)
    refused = {verdict.id: reason for verdict in verdicts if (reason := texts.refusal(verdict)) is not None}
    # What was said before an answer was called right was overruled by that, and does not come back.
    other = {
        key
        for key, correction in settle(each for each in verdicts if each.id not in refused).items()
        if correction.is_accepted and key in answers and not correction.is_of(answers[key])
    }
    refused |= {each.id: _OTHER_ANSWER for each in verdicts if each.key in other and each.id not in refused}
    standing = [verdict for verdict in verdicts if verdict.id not in refused]
    judged = latest(standing).keys()
    left = latest(verdict for verdict in verdicts if verdict.id in refused)
    last = (each for key, here in left.items() if key not in judged for each in here.values())
    return standing, [LeftOutReviews(verdict, refused[verdict.id]) for verdict in last]


def left_out_note(left_out: Sequence[LeftOutReviews], uri: str) -> list[str]:
    """Return a note for commands that show the run's answers; empty if nothing is left out."""
    if not left_out:
        return []
    number = "1 verdict is" if len(left_out) == 1 else f"{len(left_out):,} verdicts are"
    return [
        f"of what people said of this run's answers {number} left out: of another text or answer, or of a row that the "
        f"run does not have (`hpd review {uri} --write` lists up to 20)"
    ]


def _rows(run: Folder, name: str, numbers: pa.Array) -> dict[Place, str]:
    part = read_columns(run, "products", name, [*_PLACE, "input_hash"])
    near = part.filter(pc.is_in(part["source_row"], numbers))
    return dict(
        zip(zip(*(near[each].to_pylist() for each in _PLACE), strict=True), near["input_hash"].to_pylist(), strict=True)
    )
