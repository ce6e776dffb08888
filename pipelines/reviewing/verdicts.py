"""A line of the log of reviews: a person's verdict on one answer, and what was shown.

    {"id": "5f0c...", "time": "2026-11-21T09:14:03.512000Z", "reviewer": "Ada", "source_file": "feed.jsonl",
     "source_row": 17, "product_id": "B01", "category": "Coffee", "attribute": "Roast", "verdict": "correct",
     "items": ["dark"], "seen": {"status": "value", "items": ["medium"]}, "input_hash": "87ab..."}

`undo` undoes the line that `undoes` names; nothing is ever removed from a log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from pipelines.errors import UsageError

VerdictName = Literal["accept", "correct", "absent", "skip", "undo"]
MAX_ITEMS = 100
MAX_ITEM_CHARACTERS = 2000
MAX_NAME_CHARACTERS = 80

ReviewerName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME_CHARACTERS)]
ItemText = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ITEM_CHARACTERS)]


class AnswerKey(NamedTuple):
    """Identity of a run's answer: a row of its catalog, and an attribute."""

    source_file: str
    source_row: int
    attribute: str


class SeenAnswer(BaseModel):
    """The model's answer, as the person saw it.

    Attributes:
        forms: items of a number, each in the attribute's unit; empty if unknown.
    """

    model_config = ConfigDict(frozen=True)

    status: str
    items: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()


class ReviewVerdict(BaseModel):
    """A line of the log.

    Attributes:
        id: made by the sender, so that a verdict sent twice is counted once.
        items: right values of a `correct` verdict; else empty. Numbers have the unit of the text ("2.2 lb").
        forms: forms of the items, as in `SeenAnswer`.
        unit: unit of the attribute as it was shown; bare numbers are in it.
        evidence: per item, its places as in the table of attributes; None if it was not looked for.
        input_hash: hash of the text that the model read, as in the table.
        undoes: id of the line that an `undo` undoes.
    """

    model_config = ConfigDict(frozen=True)

    id: str = Field(min_length=8, max_length=64)
    time: AwareDatetime
    reviewer: ReviewerName
    source_file: str
    source_row: int
    product_id: str | None = None
    category: str
    attribute: str
    verdict: VerdictName
    items: tuple[ItemText, ...] = Field(default=(), max_length=MAX_ITEMS)
    forms: tuple[str, ...] = ()
    unit: str | None = None
    evidence: tuple[tuple[Mapping[str, Any], ...], ...] | None = None
    seen: SeenAnswer
    input_hash: str
    undoes: str | None = None

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if (self.verdict == "correct") != bool(self.items):
            raise ValueError("a correction has items, and no other verdict has any")
        if (self.verdict == "undo") != (self.undoes is not None):
            raise ValueError("an undo names the line that it takes back, and no other verdict does")
        return self

    @property
    def key(self) -> AnswerKey:
        """Key of the answer that it is about."""
        return AnswerKey(self.source_file, self.source_row, self.attribute)

    @property
    def is_answer(self) -> bool:
        """Whether it gives the right answer."""
        return self.verdict in ("accept", "correct", "absent")

    @property
    def answer(self) -> SeenAnswer:
        """The right answer by this verdict; valid only if `is_answer`."""
        if self.verdict == "correct":
            return SeenAnswer(status="value", items=self.items, forms=self.forms)
        return self.seen if self.verdict == "accept" else SeenAnswer(status="absent")

    def line(self) -> bytes:
        """Encode the log line, including the newline."""
        return json.dumps(self.model_dump(mode="json", exclude_none=True), ensure_ascii=True).encode() + b"\n"


def parse_log(data: bytes, place: str) -> Iterator[ReviewVerdict]:
    """Yield the verdicts of a log, in its order.

    An incomplete last line was never acknowledged, because its writer was killed. It is skipped.

    Args:
        place: path of the log, for messages.

    Raises `UsageError` for any other line that is not a verdict.
    """
    *lines, last = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _read(line, f"{place}, line {number}")
    if last.strip():
        try:
            yield ReviewVerdict.model_validate_json(last)
        except ValidationError:
            return


def _read(line: bytes, place: str) -> ReviewVerdict:
    try:
        return ReviewVerdict.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"{place}: no line of a review ({f'{where}: ' if where else ''}{first['msg']}); mend or remove the line"
        ) from error
