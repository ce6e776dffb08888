"""Numbers in the unit that is asked for, by the text around them in the product.

Units are never guessed: a bare number has no unit, whatever was asked for. Every place of the number is examined, and
those that have a unit of the right kind must agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from hpd_core.text.number_atoms import fits
from hpd_core.text.numbers import is_undecided, read_number
from pipelines.normalising.asked import Amount, Asked, plain
from pipelines.normalising.normalised import AMBIGUOUS, CONFLICT, NO_RULE, Normalised
from pipelines.normalising.places import EvidencePlace
from pipelines.normalising.unit_reading import quantity_at

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
