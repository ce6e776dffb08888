"""A value in its attribute's own unit, vocabulary and form. Pure: the same value and places give the same."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from hpd_core import Attribute, CategorySchema
from pipelines.normalising.asked import Asked
from pipelines.normalising.dates import normalise_date
from pipelines.normalising.measured_text import normalise_measured, with_measure
from pipelines.normalising.member_names import MemberNames, normalise_boolean
from pipelines.normalising.normalised import AMBIGUOUS, NO_RULE, Normalised
from pipelines.normalising.places import Place, places_of
from pipelines.normalising.quantities import normalise_number
from pipelines.normalising.tidy_text import tidy_text

_REMEMBERED = 4096  # values of an attribute; a catalog has the same ones again and again


class Normaliser:
    """Normalises values of one attribute, and remembers them."""

    def __init__(self, attribute: Attribute) -> None:
        self._attribute = attribute
        self._asked = Asked.of(attribute)
        self._members = MemberNames(attribute)
        self._look_up = lru_cache(maxsize=_REMEMBERED)(self._compute)
        # What stands around it is asked of what may have a unit there, and of nothing else.
        self._needs_places = attribute.type == "number" or attribute.unit is not None

    def normalise(self, raw: str, evidence: Sequence[Any] | None) -> Normalised:
        """As `normalise`."""
        places = places_of(evidence) if evidence else ()
        if not self._needs_places:
            # Only whether the text may end inside of a number.
            is_cut = bool(places) and all(place.match == "ambiguous" for place in places)
            places = (Place("ambiguous", "", ""),) if is_cut else ()
        return self._look_up(raw, places)

    def _compute(self, raw: str, places: tuple[Place, ...]) -> Normalised:
        kind = self._attribute.type
        if kind == "enum":
            return self._members.find(raw)
        if kind == "boolean":
            return normalise_boolean(raw)
        if kind == "date":
            return normalise_date(raw)
        if kind == "number":
            number = normalise_number(self._asked, raw, places)
            return normalise_measured(self._asked, raw, places, with_unit=False) if number is None else number
        if self._asked.wanted is not None:
            return normalise_measured(self._asked, raw, places, with_unit=True)
        text = tidy_text(raw)
        if not text:
            return NO_RULE
        return AMBIGUOUS if places else with_measure(self._asked, text)


def normalise(attribute: Attribute, raw: str, evidence: Sequence[Any] | None = None) -> Normalised:
    """A value of an attribute in the attribute's own form.

    Args:
        raw: one item, as the table's `value_raw` has it.
        evidence: its places, as the table's `evidence` has them.
    """
    return Normaliser(attribute).normalise(raw, evidence)


@lru_cache(maxsize=256)
def normalisers(schema: CategorySchema) -> dict[str, Normaliser]:
    """Those of a category's attributes, by name."""
    return {attribute.name: Normaliser(attribute) for attribute in schema.attributes}
