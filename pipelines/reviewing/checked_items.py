"""A person's answer in the form of the attribute's answers: a plain decimal, a label, `true`, an ISO date.

A number with a unit keeps the unit it was written in ("2.2 lb"), so that it is complete whatever unit is requested
later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache

from hpd_core import Attribute, Unit
from hpd_core.text import absence
from pipelines.normalising.normalise import Normaliser
from pipelines.normalising.normalised import Normalised

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
