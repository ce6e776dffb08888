"""Normalisation of quantities, ranges and sizes, to the unit that is asked for, or in their own if none is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

from hpd_core.text.number_atoms import VULGAR_FRACTIONS, fits
from pipelines.normalising.asked import Amount, Asked, plain
from pipelines.normalising.measures import Measure, read_measure
from pipelines.normalising.normalised import AMBIGUOUS, NO_RULE, Normalised
from pipelines.normalising.places import EvidencePlace
from pipelines.normalising.quantities import without_unit

_DECADE = re.compile(r"\d?\d?\d0['’]?s")  # "90s" are seconds only where these are asked for
_BEGINS = re.compile(rf"[-+−~≈≥≤<>±]?=?\s?[\d.,{VULGAR_FRACTIONS}]")


def normalise_measured(asked: Asked, raw: str, places: Sequence[EvidencePlace], *, with_unit: bool) -> Normalised:
    """Normalise the measure that the whole text is; `NO_RULE` if it is not one.

    Args:
        places: its places in the product's text, for a unit that it does not have itself.
        with_unit: whether `norm` names the unit, as it does for attributes that are texts.
    """
    if places and all(place.match == "ambiguous" for place in places):
        return AMBIGUOUS
    around = [(place.before, place.after) for place in places] or [("", "")]
    measures = [read_measure(raw, asked.own, before, after) for before, after in dict.fromkeys(around)]
    found = {_converted(asked, measure, with_unit=with_unit) for measure in measures if measure is not None}
    right = [each for each in found if each.status == "ok"]
    if len(right) == 1 and all(each.status in ("ok", "ambiguous") for each in found):
        return right[0]
    if right:
        return AMBIGUOUS
    return next(iter(found)) if len(found) == 1 else AMBIGUOUS if found else NO_RULE


def may_be_measure(text: str) -> bool:
    """Return whether a text of an attribute without a unit may be a measure; most are not, and need no closer look."""
    return _BEGINS.match(text) is not None


def with_measure(asked: Asked, text: str) -> Normalised:
    """Return a tidy text unchanged; with its number and unit beside it if it is, as a whole, a quantity with a unit."""
    measure = None if _DECADE.fullmatch(text) else read_measure(text, asked.own)
    found = _converted(asked, measure, with_unit=True) if measure is not None else NO_RULE
    if found.status != "ok" or found.unit is None:
        return Normalised("ok", text)
    return found._replace(norm=text)


def _converted(asked: Asked, measure: Measure, *, with_unit: bool) -> Normalised:
    if measure.form == "size" and not with_unit:
        return NO_RULE  # one number is asked for
    if not all(part.is_sure for part in measure.parts):
        return AMBIGUOUS
    amounts: list[Amount] = []
    for part in measure.parts:
        found = asked.amounts(part)
        if not found and asked.wanted is not None:
            return without_unit(asked, is_bare=found is not None, has_others=found is None)
        if found is not None and len(found) > 1:
            return AMBIGUOUS
        amounts.append(found[0] if found else Amount(part.number, None))
    units = {amount.unit for amount in amounts}
    texts = [plain(amount) for amount in amounts]
    if len(units) > 1 or not all(fits(Decimal(text)) for text in texts):
        return AMBIGUOUS if len(units) > 1 else NO_RULE
    unit = units.pop()
    behind = f" {unit}" if with_unit and unit is not None else ""
    return _formed(measure, texts, unit, behind)


def _formed(measure: Measure, texts: Sequence[str], unit: str | None, behind: str) -> Normalised:
    numbers = [float(text) for text in texts]
    first, last = numbers[0], numbers[-1]
    if measure.form == "one":
        return Normalised("ok", texts[0] + behind, num=first, unit=unit)
    if measure.form == "at least":
        return Normalised("ok", f"≥ {texts[0]}{behind}", unit=unit, min=first)
    if measure.form == "at most":
        return Normalised("ok", f"≤ {texts[0]}{behind}", unit=unit, max=first)
    if measure.form == "range":
        # "220-110" may be two alternatives.
        is_range = first <= last
        return (
            Normalised("ok", f"{texts[0]} to {texts[1]}{behind}", unit=unit, min=first, max=last)
            if is_range
            else AMBIGUOUS
        )
    labelled = [f"{label} {text}".strip() for label, text in zip(measure.labels, texts, strict=True)]
    return Normalised("ok", " x ".join(labelled) + behind, unit=unit)
