"""Unit that an attribute asks for, and the other units that are accepted and converted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from hpd_core import Attribute
from pipelines.normalising.unit_reading import CONTRADICTED, OwnNames, Quantity
from pipelines.normalising.units import (
    COUNTS,
    KnownUnit,
    accepted_units,
    convert,
    fold_word,
    is_known,
    meanings_of,
    same_kind,
    units_of,
    wanted_unit,
)

_CONVERTED_DIGITS = 10
_MORE_DIGITS = 2  # than the text has, where it has as many as that: "4006381333931 g" are 4006381333.931 kg


@dataclass(frozen=True, slots=True)
class Amount:
    """Number in the unit that is asked for, or in its own if none is.

    Attributes:
        digits: significant digits to show; None for all, because it was not converted.
    """

    number: Fraction
    unit: str | None
    digits: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Asked:
    """Unit of an attribute.

    Attributes:
        wanted: the unit; None if the attribute has none.
        accepted: kind and unit of the units that are converted; None for all of the wanted one's kind.
        own: names of units that only the schema has.
    """

    wanted: KnownUnit | None
    accepted: frozenset[tuple[str, str]] | None
    own: OwnNames

    @classmethod
    def of(cls, attribute: Attribute) -> Asked:
        """Return the unit that the attribute asks for."""
        if attribute.unit is None:
            return cls(None, None, {})
        wanted, others = wanted_unit(attribute.unit.want), attribute.unit.accept
        units = (wanted, *map(wanted_unit, others))
        # Names that the table has are read anyway.
        own = {fold_word(unit.shown): unit for unit in units if not is_known(unit) or not units_of(unit.shown)}
        return cls(wanted, accepted_units(wanted, others), own)

    @property
    def has_meanings(self) -> bool:
        """Whether the wanted unit may be one of several."""
        return self.wanted is not None and bool(meanings_of(self.wanted.shown))

    @property
    def is_known(self) -> bool:
        """Whether anything but its name is known of the wanted unit."""
        return self.wanted is not None and is_known(self.wanted)

    def amounts(self, quantity: Quantity) -> tuple[Amount, ...] | None:
        """Return the quantity's amounts: one, several if its unit is ambiguous, or none if it has no unit. Returns None
        if its unit is of another kind, or is not accepted."""
        strong = [unit for unit in quantity.units if not unit.is_weak]
        if self.wanted is None:
            # Counts have no unit: "2 pieces" are two.
            own = [unit for unit in strong if unit.kind not in COUNTS and unit != CONTRADICTED]
            return tuple(Amount(quantity.number, unit.shown) for unit in own)
        fitting = [unit for unit in quantity.units if self._takes(unit)]
        if not fitting:
            return None if strong else ()
        if not quantity.is_weak_sure and all(unit.is_weak for unit in fitting):
            return ()
        return tuple(dict.fromkeys(self._converted(quantity.number, unit, self.wanted) for unit in fitting))

    @staticmethod
    def _converted(number: Fraction, unit: KnownUnit, wanted: KnownUnit) -> Amount:
        digits = None if unit.unit == wanted.unit else max(_CONVERTED_DIGITS, _num_digits(number) + _MORE_DIGITS)
        return Amount(convert(number, unit, wanted), wanted.shown, digits)

    def _takes(self, unit: KnownUnit) -> bool:
        assert self.wanted is not None
        if not same_kind(unit, self.wanted):
            return False
        return self.accepted is None or (unit.kind, unit.unit) in self.accepted


def plain(amount: Amount) -> str:
    """Return a plain decimal: "35.56". Unconverted numbers are rounded only if they do not terminate (1/3 hour)."""
    exact = _ending(amount.number)
    if exact is None or (amount.digits is not None and len(exact.as_tuple().digits) > amount.digits):
        rounded = Context(prec=amount.digits or _CONVERTED_DIGITS)
        exact = rounded.divide(Decimal(amount.number.numerator), Decimal(amount.number.denominator))
    text = format(exact, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _num_digits(number: Fraction) -> int:
    exact = _ending(number)
    return 0 if exact is None else len(exact.as_tuple().digits)


def _ending(number: Fraction) -> Decimal | None:
    """Return the number as an exact decimal; None if it does not terminate."""
    rest, places = number.denominator, 0
    for prime in (2, 5):
        count = 0
        while rest % prime == 0:
            rest, count = rest // prime, count + 1
        places = max(places, count)
    # From a text: Decimal's own arithmetic rounds to 28 digits.
    return Decimal(f"{number.numerator * 10**places // number.denominator}E-{places}") if rest == 1 else None


CONTEXT = 32
"""Number of code points of the text that are kept before and after a value."""


class EvidencePlace(NamedTuple):
    """Place of a value.

    Attributes:
        match: kind of match, as in the table's `evidence`.
        before, after: text around it, at most `CONTEXT` code points each; "" if a run did not keep it.
    """

    match: str
    before: str
    after: str


def places_of(evidence: Iterable[Mapping[str, Any]] | None) -> tuple[EvidencePlace, ...]:
    """Return the distinct places in a row's `evidence`."""
    found = (EvidencePlace(each["match"], each.get("before") or "", each.get("after") or "") for each in evidence or ())
    return tuple(dict.fromkeys(found))
