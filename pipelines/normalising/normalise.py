"""Normalisation of a value to its attribute's own unit, vocabulary and form. Pure: equal inputs give equal results."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from hpd_core import Attribute, CategorySchema
from pipelines.normalising.asked import Asked
from pipelines.normalising.dates import normalise_date
from pipelines.normalising.measured_text import may_be_measure, normalise_measured, normalise_number, with_measure
from pipelines.normalising.member_names import EnumNames, normalise_boolean
from pipelines.normalising.normalised import AMBIGUOUS, NO_RULE, NORMALISED_COLUMNS, Normalised
from pipelines.normalising.places import EvidencePlace, places_of

_NUMBERS = re.compile(r"(?<![^\s≥≤-])-?\d+(?:\.\d+)?(?!\S)")
_REMEMBERED = 4096  # values of an attribute; a catalog has the same ones again and again


class Normaliser:
    """Normaliser of one attribute's values, with a cache of results."""

    def __init__(self, attribute: Attribute) -> None:
        self._attribute = attribute
        self._asked = Asked.of(attribute)
        self._members = EnumNames(attribute)
        self._is_plain_text = attribute.type == "string" and attribute.unit is None
        # The text around a value is used only if it may have a unit.
        self._needs_places = attribute.type == "number" or attribute.unit is not None
        self._look_up = lru_cache(maxsize=_REMEMBERED)(self._compute)

    def normalise(self, raw: str, evidence: Sequence[Mapping[str, Any]] | None) -> Normalised:
        """Normalise a value, as the function `normalise` does."""
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


def normalise(attribute: Attribute, raw: str, evidence: Sequence[Mapping[str, Any]] | None = None) -> Normalised:
    """Normalise a value of an attribute to the attribute's own form.

    Args:
        raw: one item, as in the table's `value_raw`.
        evidence: its places, as in the table's `evidence`.
    """
    return Normaliser(attribute).normalise(raw, evidence)


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
