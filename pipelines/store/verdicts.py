"""A line of the log of reviews: a person's verdict on one answer, and what was shown.

    {"id": "5f0c...", "time": "2026-11-21T09:14:03.512000Z", "reviewer": "Ada", "source_file": "feed.jsonl",
     "source_row": 17, "product_id": "B01", "category": "Coffee", "attribute": "Roast", "verdict": "correct",
     "items": ["dark"], "seen": {"status": "value", "items": ["medium"]}, "input_hash": "87ab..."}

`undo` undoes the line that `undoes` names; nothing is ever removed from a log.

A person's answer in the form of the attribute's answers: a plain decimal, a label, `true`, an ISO date.

A number with a unit keeps the unit it was written in ("2.2 lb"), so that it is complete whatever unit is requested
later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from hpd_core import Attribute, Unit
from hpd_core.text import absence
from pipelines.errors import UsageError
from pipelines.normalising.measured_text import Normalised
from pipelines.normalising.normalise import Normaliser

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


_BARE_NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)?")
_NUMBER_IN_UNIT = re.compile(r"(-?\d+(?:\.\d+)?) [^\d\s]\S*(?: [^\d\s]\S*)?")


class ItemError(ValueError):
    """Raised for an item that the attribute cannot have; the message says why."""


def checked_items(
    attribute: Attribute,
    items: Sequence[str],
    fields: Mapping[str, str] | None = None,
    normaliser: Normaliser | None = None,
) -> tuple[str, ...]:
    """Convert the items to the table's `value_raw` form, without duplicates.

    Args:
        fields: the product's text, in which a word for nothing ("None") may be a name.
        normaliser: the attribute's, if there is one already.

    Raises `ItemError` if the attribute cannot have them.
    """
    normaliser = normaliser or Normaliser(attribute)
    texts = (item.strip() for item in items if item.strip())
    by_norm: dict[str, str] = {}
    for item, norm in (_checked(attribute, normaliser, text, fields or {}) for text in texts):
        by_norm.setdefault(norm, item)
    found = tuple(by_norm.values())
    if not found:
        raise ItemError("a value is needed; if the text states none, mark it as not stated")
    if len(found) > 1 and not attribute.multiple:
        raise ItemError("only one value is asked for")
    return found


def with_unit(text: str, unit: str | None) -> str:
    """Add the unit that the person was shown to a bare number ("12", "½", "10-12")."""
    return f"{text} {unit}" if unit is not None and _is_bare(text, unit) else text


def _is_bare(text: str, unit: str) -> bool:
    """Return whether a text is a number without a unit, and stays a number with this unit appended.

    "3 pcs" alone reads as a number, but "3 pcs cm" does not.
    """
    if _BARE_NUMBER.fullmatch(text):
        return True
    alone = _unitless().normalise(text, None)
    return (
        alone.status == "ok" and alone.unit is None and _in_unit(unit).normalise(f"{text} {unit}", None).status == "ok"
    )


@cache
def _unitless() -> Normaliser:
    return Normaliser(Attribute(name="number", type="number"))


@lru_cache(maxsize=256)
def _in_unit(unit: str) -> Normaliser:
    return Normaliser(Attribute(name="number", type="number", unit=Unit(want=unit)))


def plain_number(text: str) -> str:
    """Drop the unit of a number ("2.2 lb"), as in a model's answer; other texts stay unchanged."""
    found = _NUMBER_IN_UNIT.fullmatch(text)
    return found[1] if found is not None else text


def number_forms(attribute: Attribute, items: Sequence[str]) -> tuple[str, ...]:
    """Convert number items to the attribute's own unit, for comparison; empty if one cannot be converted."""
    if attribute.type != "number":
        return ()
    normaliser = Normaliser(attribute)
    found = [normaliser.normalise(item, None) for item in items]
    return known_forms((each.norm, each.unit if attribute.unit else None) for each in found)


def known_forms(forms: Iterable[tuple[str | None, str | None]]) -> tuple[str, ...]:
    """Join (normal form, unit) of each item to one text; empty if one has no normal form."""
    found = [f"{norm} {unit}" if unit else norm for norm, unit in forms]
    return tuple(each for each in found if each is not None) if None not in found else ()


def _checked(attribute: Attribute, normaliser: Normaliser, text: str, fields: Mapping[str, str]) -> tuple[str, str]:
    """Return the item, and a key that is equal for equal items. Raises `ItemError`."""
    if attribute.type == "string":
        if absence.read(text, attribute.name, fields) is not absence.Reading.VALUE:
            raise ItemError(f"{text!r} says that there is none: mark it as not stated")
        return text, text
    text = with_unit(text, attribute.unit.want if attribute.unit else None)
    found = normaliser.normalise(text, None)
    if found.status == "ok" and found.norm is not None:
        # A range is no plain number: it stays as it was written.
        if attribute.type == "number" and found.num is None:
            return text, found.norm
        return _as_written(attribute, normaliser, text, found) if attribute.unit else found.norm, found.norm
    raise ItemError(f"{text!r} {_problem(attribute, found.status, text)}")


def _as_written(attribute: Attribute, normaliser: Normaliser, text: str, found: Normalised) -> str:
    """Return a number in the unit it was written in, as a plain decimal."""
    own = _unitless().normalise(text, None)
    item = f"{own.norm} {own.unit}"
    is_same = own.num is not None and own.unit is not None and normaliser.normalise(item, None) == found
    return item if is_same else f"{found.norm} {found.unit}"


def as_read(text: str) -> str:
    """Return in words which number and unit a text is read as."""
    own = _unitless().normalise(text, None)
    return f"is read as {own.norm} {own.unit or ''}".rstrip() if own.norm else "cannot be read"


def _problem(attribute: Attribute, status: str, text: str) -> str:
    if status == "conflict":
        read = as_read(text)
        return f"{read}, which is not in {attribute.unit.want}" if attribute.unit else f"{read}, of another kind"
    if status == "ambiguous":
        behind = f" {attribute.unit.want}" if attribute.unit else ""
        return f"can be read in several ways; write it out: 1500{behind} or 1.5{behind}"
    needed = {
        "number": f"is no number{f' in {attribute.unit.want}' if attribute.unit else ''}",
        "boolean": "is neither true nor false",
        "date": "is no date; write it as 2026-11-21",
        "enum": "is not in the vocabulary",
    }
    return needed.get(attribute.type, "cannot be read")


def answer_items(rows: Iterable[Mapping[str, Any]], column: str = "value_raw") -> tuple[Any, ...]:
    """Return a column of the items of an answer, given as its rows; by default as the model wrote them."""
    return tuple(row[column] for row in rows if row["status"] == "value" and row["value_raw"] is not None)
