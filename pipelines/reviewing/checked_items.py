"""A person's answer in the form that the attribute's answers have: a plain decimal, a label, `true`, an ISO date."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hpd_core import Attribute
from hpd_core.text import absence
from pipelines.normalising.normalise import Normaliser

_BARE_NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)?")


class ItemError(ValueError):
    """An item that the attribute cannot have; the message says why."""


def checked_items(
    attribute: Attribute, items: Sequence[str], fields: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """The items as the table's `value_raw` has them, each once.

    Args:
        fields: the product's text, in which a word for nothing ("None") may be a name.

    Raises `ItemError` if the attribute cannot have them.
    """
    normaliser = Normaliser(attribute)
    texts = (item.strip() for item in items if item.strip())
    found = tuple(dict.fromkeys(_checked(attribute, normaliser, text, fields or {}) for text in texts))
    if not found:
        raise ItemError("a value is needed")
    if len(found) > 1 and not attribute.multiple:
        raise ItemError("only one value is asked for")
    return found


def with_unit(text: str, unit: str | None) -> str:
    """What a person wrote who was shown the unit: a bare number is in it."""
    return f"{text} {unit}" if unit is not None and _BARE_NUMBER.fullmatch(text) else text


def _checked(attribute: Attribute, normaliser: Normaliser, text: str, fields: Mapping[str, str]) -> str:
    if attribute.type == "string":
        if absence.read(text, attribute.name, fields) is not absence.Reading.VALUE:
            raise ItemError(f"{text!r} says that there is none: mark it as not stated")
        return text
    found = normaliser.normalise(with_unit(text, attribute.unit.want if attribute.unit else None), None)
    if found.status == "ok" and found.norm is not None:
        # A range is no plain number: it stays as it was written.
        return text if attribute.type == "number" and found.num is None else found.norm
    raise ItemError(f"{text!r} {_problem(attribute, found.status)}")


def _problem(attribute: Attribute, status: str) -> str:
    if status == "conflict":
        return f"has another unit than {attribute.unit.want}" if attribute.unit else "is of another kind"
    if status == "ambiguous":
        return "can be read in several ways; write it out: 1500 or 1.5"
    needed = {
        "number": f"is no number{f' in {attribute.unit.want}' if attribute.unit else ''}",
        "boolean": "is neither true nor false",
        "date": "is no date; write it as 2026-11-21",
        "enum": "is not in the vocabulary",
    }
    return needed.get(attribute.type, "cannot be read")
