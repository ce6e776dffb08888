"""What an attribute asks of a number: its unit, and which others may stand in a text instead."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction

from hpd_core import Attribute
from pipelines.normalising.unit_names import COUNTS
from pipelines.normalising.unit_reading import OwnNames, Quantity
from pipelines.normalising.units import (
    Unit,
    accepted_units,
    convert,
    fold_word,
    is_known,
    same_kind,
    units_of,
    wanted_unit,
)

_CONVERTED_DIGITS = 10
_EXACT = 10**_CONVERTED_DIGITS
_ROUNDED = Context(prec=_CONVERTED_DIGITS)


@dataclass(frozen=True, slots=True)
class Amount:
    """A number in the unit that is asked for, or in its own where none is."""

    number: Fraction
    unit: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """The unit of an attribute.

    Attributes:
        wanted: None: the attribute has none.
        accepted: kind and unit of those that are converted; None: all of the wanted one's kind.
        own: names that only the schema has.
    """

    wanted: Unit | None
    accepted: frozenset[tuple[str, str]] | None
    own: OwnNames

    @classmethod
    def of(cls, attribute: Attribute) -> Asked:
        """What the attribute asks."""
        if attribute.unit is None:
            return cls(None, None, {})
        wanted, others = wanted_unit(attribute.unit.want), attribute.unit.accept
        units = (wanted, *map(wanted_unit, others))
        # Names that the table has are read anyway.
        own = {fold_word(unit.shown): unit for unit in units if not units_of(unit.shown)}
        return cls(wanted, accepted_units(wanted, others), own)

    @property
    def is_known(self) -> bool:
        """Whether anything is known of the wanted unit but its name."""
        return self.wanted is not None and is_known(self.wanted)

    def amounts(self, quantity: Quantity) -> tuple[Amount, ...] | None:
        """What the quantity is worth: one amount, several where its unit may be one of several, none if its number
        stands without a unit; None if its unit is of another kind, or is not accepted."""
        strong = [unit for unit in quantity.units if not unit.is_weak]
        if self.wanted is None:
            # What is counted has no unit: "2 pieces" are two.
            own = [unit for unit in strong if unit.kind not in COUNTS]
            return tuple(Amount(quantity.number, unit.shown) for unit in own)
        fitting = [unit for unit in quantity.units if self._takes(unit)]
        if not fitting:
            return None if strong else ()
        numbers = dict.fromkeys(convert(quantity.number, unit, self.wanted) for unit in fitting)
        return tuple(Amount(number, self.wanted.shown) for number in numbers)

    def _takes(self, unit: Unit) -> bool:
        assert self.wanted is not None
        if not same_kind(unit, self.wanted):
            return False
        return self.accepted is None or (unit.kind, unit.unit) in self.accepted


def plain(number: Fraction) -> str:
    """A plain decimal: "35.56", of 10 digits where it does not end before."""
    if number.denominator == 1 and abs(number.numerator) < _EXACT:
        return str(number.numerator)
    exact = _ending(number)
    if exact is None or len(exact.as_tuple().digits) > _CONVERTED_DIGITS:
        exact = _ROUNDED.divide(Decimal(number.numerator), Decimal(number.denominator))
    text = format(exact, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _ending(number: Fraction) -> Decimal | None:
    """The number as a decimal; None if it has no end, or one that nobody reads."""
    rest, places = number.denominator, 0
    for prime in (2, 5):
        count = 0
        while rest % prime == 0:
            rest, count = rest // prime, count + 1
        places = max(places, count)
    return Decimal(number.numerator * 10**places // number.denominator).scaleb(-places) if rest == 1 else None
