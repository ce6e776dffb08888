"""Normalisation of a value to its attribute's own unit, vocabulary and form. Pure: equal inputs give equal results.

Dates as ISO 8601: a day, a month or a year, as the text states it.

12.05.2024, 2024/5/12, 12 May 2024, le 12 mai 2024, 2024年5月12日   2024-05-12
05/2024, May 2024                                                2024-05
05/06/2024, 12.05.24                                             ambiguous: month or day first; which century
"""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from babel import Locale

from hpd_core import Attribute, CategorySchema
from pipelines.normalising.asked import Asked, EvidencePlace, places_of
from pipelines.normalising.measured_text import (
    AMBIGUOUS,
    NO_RULE,
    NORMALISED_COLUMNS,
    Normalised,
    may_be_measure,
    normalise_measured,
    normalise_number,
    with_measure,
)
from pipelines.normalising.member_names import member_names, normalise_boolean

_NUMBERS = re.compile(r"(?<![^\s≥≤-])-?\d+(?:\.\d+)?(?!\S)")
_REMEMBERED = 4096  # values of an attribute; a catalog has the same ones again and again


class Normaliser:
    """Normaliser of one attribute's values, with a cache of results."""

    def __init__(self, attribute: Attribute) -> None:
        self._attribute = attribute
        self._asked = Asked.of(attribute)
        self._members = member_names(attribute.values or ())
        self._is_plain_text = attribute.type == "string" and attribute.unit is None
        # The text around a value is used only if it may have a unit.
        self._needs_places = attribute.type == "number" or attribute.unit is not None
        self._look_up = lru_cache(maxsize=_REMEMBERED)(self._compute)

    def normalise(self, raw: str, evidence: Sequence[Mapping[str, Any]] | None = None) -> Normalised:
        """Normalise a value to the attribute's own form.

        Args:
            raw: one item, as in the table's `value_raw`.
            evidence: its places, as in the table's `evidence`.
        """
        if self._is_plain_text:
            # It may end within a number; then it does so in all its places.
            is_cut = bool(evidence) and evidence is not None and evidence[0]["match"] == "ambiguous"
            return AMBIGUOUS if is_cut else self._plain_text(raw)
        found = self._look_up(raw, places_of(evidence) if evidence and self._needs_places else ())
        return found if self._is_plausible(found) else AMBIGUOUS

    def _is_plausible(self, found: Normalised) -> bool:
        if self._attribute.plausible is None or found.norm is None:
            return True
        least, most = self._attribute.plausible
        return all(least <= float(number) <= most for number in _NUMBERS.findall(found.norm))

    def columns(self, raw: str, evidence: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
        """Return the columns of the attribute table that a value fills; columns left out are null."""
        found = self.normalise(raw, evidence)
        if found.num is None and found.unit is None and found.id is None and found.min is None and found.max is None:
            return {"norm_status": found.status, "value_norm": found.norm}
        return dict(zip(NORMALISED_COLUMNS, found, strict=True))

    def _plain_text(self, raw: str) -> Normalised:
        text = tidy_text(raw)
        if not text:
            return NO_RULE
        return with_measure(self._asked, text) if may_be_measure(text) else Normalised("ok", text)

    def _compute(self, raw: str, places: tuple[EvidencePlace, ...]) -> Normalised:
        match self._attribute.type:
            case "enum":
                return self._members.find(raw)
            case "boolean":
                return normalise_boolean(raw)
            case "date":
                return normalise_date(raw)
            case "number":
                number = normalise_number(self._asked, raw, places)
                return normalise_measured(self._asked, raw, places, with_unit=False) if number is None else number
            case "string":
                return normalise_measured(self._asked, raw, places, with_unit=True)


@lru_cache(maxsize=256)
def normalisers(schema: CategorySchema) -> dict[str, Normaliser]:
    """Return the normalisers of a category's attributes, by name."""
    return {attribute.name: Normaliser(attribute) for attribute in schema.attributes}


# Soft hyphens and characters without width, except joiners, which some scripts and emoji need.
_UNSEEN = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def tidy_text(text: str) -> str:
    """Return the text in Unicode NFC, with single spaces, none at the ends, and without invisible characters."""
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    shown = _UNSEEN.sub("", _CONTROL.sub(" ", text))
    return " ".join(unicodedata.normalize("NFC", shown).split())


# Locales whose names of months are known.
_LOCALES = "en de fr es it pt nl sv da nb fi pl cs sk hu ro tr ru uk el he ar hr sl bg"
_YEARS = range(1000, 10_000)
_YEAR_FIRST = re.compile(
    r"(\d{4})\s?([-/.年])\s?(\d{1,2})(?:\s?[-/.月]\s?(\d{1,2})\s?日?|月)?(?:[T ]\d{1,2}:\d{2}\S*)?"
)
_YEAR_LAST = re.compile(r"(\d{1,2})\s?([-/.])\s?(\d{1,2})\s?[-/.]\s?(\d{4}|\d{2})")
_MONTH_YEAR = re.compile(r"(\d{1,2})\s?[-/.]\s?(\d{4})")
_COMPACT = re.compile(r"(\d{4})(\d{2})(\d{2})")
_YEAR = re.compile(r"(\d{4})年?")
_WORDS = re.compile(r"[^\W\d_]+|\d+")
# Between the parts of a date in words: "12th of May", "le 1er mai", "12 de mayo de 2024".
_FILLERS = "of de del the le el il den der d st nd rd th er re do г года in"


def normalise_date(raw: str) -> Normalised:
    """Normalise the date that the whole text is."""
    text = unicodedata.normalize("NFKC", raw).strip()
    if match := _YEAR_FIRST.fullmatch(text) or _COMPACT.fullmatch(text):
        parts = [part for part in match.groups() if part is not None and part.isdecimal()]
        return _iso(*map(int, parts))
    if match := _YEAR_LAST.fullmatch(text):
        first, sign, second, year = match.groups()
        if len(year) == 2:
            return AMBIGUOUS
        return _day_and_month(int(first), int(second), int(year), is_day_first=sign == ".")
    if match := _MONTH_YEAR.fullmatch(text):
        return _iso(int(match[2]), int(match[1]))
    if match := _YEAR.fullmatch(text):
        return _iso(int(match[1]))
    return _in_words(text)


def _day_and_month(first: int, second: int, year: int, *, is_day_first: bool) -> Normalised:
    """Normalise a date with the year last: dots put the day first, slashes and dashes may be ambiguous."""
    if is_day_first or second == first:
        return _iso(year, second, first)
    readings = {each for each in (_iso(year, second, first), _iso(year, first, second)) if each.status == "ok"}
    return AMBIGUOUS if len(readings) > 1 else next(iter(readings), NO_RULE)


def _in_words(text: str) -> Normalised:
    words = [word for word in _WORDS.findall(text.casefold()) if word not in _FILLERS.split()]
    months = [number for word in words if (number := _months().get(_folded(word))) is not None]
    numbers = [int(word) for word in words if word.isdecimal() and len(word) <= 4]
    if len(months) != 1 or len(numbers) + 1 != len(words) or not 1 <= len(numbers) <= 2:
        return NO_RULE
    years = [number for number in numbers if number in _YEARS]
    if len(years) != 1:
        return NO_RULE
    return _iso(years[0], months[0], *(number for number in numbers if number not in _YEARS))


def _iso(year: int, month: int | None = None, day: int | None = None) -> Normalised:
    if year not in _YEARS:
        return NO_RULE
    if month is None:
        return Normalised("ok", f"{year:04d}")
    try:
        date = datetime.date(year, month, day or 1)
    except ValueError:
        return NO_RULE
    return Normalised("ok", date.isoformat() if day is not None else date.isoformat()[:7])


@cache
def _months() -> dict[str, int]:
    """Return numbers of months by their names, whole and short, in many languages; without names of two months."""
    found: dict[str, set[int]] = {}
    for locale in map(Locale.parse, _LOCALES.split()):
        for context in ("format", "stand-alone"):
            for width in ("wide", "abbreviated"):
                for number, name in locale.months[context][width].items():
                    if not name.isdecimal():
                        found.setdefault(_folded(name), set()).add(number)
    return {name: numbers.copy().pop() for name, numbers in found.items() if len(numbers) == 1}


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold().rstrip(".")
