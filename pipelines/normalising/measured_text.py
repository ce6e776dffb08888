"""Normalisation of numbers, quantities, ranges and sizes to the unit that is asked for, or in their own if none is.

A number has its unit from the text around it in the product.
Units are never guessed: a bare number has no unit, whatever was asked for. Every place of the number is examined, and
those that have a unit of the right kind must agree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from hpd_core.text.number_atoms import VULGAR_FRACTIONS, fits
from hpd_core.text.numbers import is_undecided, read_number
from pipelines.normalising.asked import Amount, Asked, EvidencePlace, plain
from pipelines.normalising.measures import Measure, read_measure
from pipelines.normalising.unit_reading import quantity_at

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


_SURELY_FITS = 300  # digits


def normalise_number(asked: Asked, raw: str, places: Sequence[EvidencePlace]) -> Normalised | None:
    """Normalise a number to the unit that is asked for; return None if `raw` is not one number."""
    number = _read(raw)
    if not isinstance(number, Fraction):
        return number
    if places and all(place.match == "ambiguous" for place in places):
        return AMBIGUOUS
    amounts: dict[Amount, None] = {}
    num_bare, is_sure, has_others = 0, True, False
    for place in places:
        quantity = quantity_at(number, place.before, place.after, asked.own)
        found = asked.amounts(quantity)
        if found is None:
            has_others = True
        elif not found:
            num_bare += 1
        else:
            amounts.update(dict.fromkeys(found))
            is_sure &= quantity.is_sure
    if asked.wanted is None:
        # No unit is asked for. The text's unit is kept if all places have it.
        units = {amount.unit for amount in amounts}
        return whole(Amount(number, units.pop() if len(units) == 1 and not num_bare and is_sure else None))
    if amounts:
        return whole(next(iter(amounts))) if len(amounts) == 1 and is_sure else AMBIGUOUS
    return without_unit(asked, is_bare=num_bare > 0 or not places, has_others=has_others)


@lru_cache(maxsize=4096)
def _read(raw: str) -> Fraction | Normalised | None:
    """Read the number; return `AMBIGUOUS` if it is undecided ("1,500"), None if it is not one number. Cached, because
    texts repeat in a catalog."""
    read = read_number(raw)
    if read is None:
        return None
    return AMBIGUOUS if is_undecided(read) else Fraction(read)


def without_unit(asked: Asked, *, is_bare: bool, has_others: bool) -> Normalised:
    """Return the outcome for a number without a unit of the kind that is asked for."""
    if has_others and not is_bare:
        return AMBIGUOUS if asked.has_meanings else CONFLICT
    return AMBIGUOUS if asked.is_known else NO_RULE


def whole(amount: Amount) -> Normalised:
    """Return one number as `ok`; `NO_RULE` if a double cannot hold it."""
    text = plain(amount)
    if len(text) > _SURELY_FITS and not fits(Decimal(text)):
        return NO_RULE
    return Normalised("ok", text, num=float(text), unit=amount.unit)


NormStatus = Literal["ok", "ambiguous", "conflict", "no_rule"]
NORM_STATUSES: tuple[NormStatus, ...] = get_args(NormStatus)


class Normalised(NamedTuple):
    """Value in its attribute's own form; all but `status` is None unless that is "ok".

    Attributes:
        status: "ok"; "ambiguous": the text can be read in several ways; "conflict": it contradicts the attribute (a
            weight in litres); "no_rule": no rule can read it (in no vocabulary, of an unknown unit).
        norm: the value as a text: a plain decimal, a member's label, "true", an ISO date, a tidied text.
        num: the number, in `unit`.
        unit: the attribute's unit; if it has none, that of the text.
        min, max: ends of a range, in `unit`; one of them alone for "at least 5".
        id: id of the enum's member.
    """

    status: NormStatus
    norm: str | None = None
    num: float | None = None
    unit: str | None = None
    min: float | None = None
    max: float | None = None
    id: str | None = None


AMBIGUOUS = Normalised("ambiguous")
CONFLICT = Normalised("conflict")
NO_RULE = Normalised("no_rule")

NORMALISED_COLUMNS = ("norm_status", "value_norm", "value_num", "unit", "value_min", "value_max", "value_id")
"""Columns of the attribute table, in the order of `Normalised`."""
