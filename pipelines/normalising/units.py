"""Units by their names, and conversions between them: exact fractions, by pint.

Names of units in texts: the table units.yaml on top of pint, which knows the conversions.

Only names in the table are read in a text: pint itself would take "2 are" for an area and "pats" for a pressure.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from importlib import resources
from typing import Any, NamedTuple

import yaml

_MAX_LENGTH = 40  # of a unit's name
# Pint gets only texts of this form, because it would compute "m**9**9**9".
_WORD = r"[^\W\d_]+(?:_[^\W\d_]+)*(?:(?:\*\*|\^)-?\d)?"
_EXPRESSION = re.compile(rf"{_WORD}(?:(?:\s?[*/]\s?|\s){_WORD})*")
_FACTORS = re.compile(r"\s?[/·⋅*・]\s?|\s(?:per|pro|par|por)\s", re.IGNORECASE)
_POWER = re.compile(r"(?P<name>.*[^\d²³^])(?:\^?(?P<power>[23])|(?P<sign>[²³]))")
_SIGNS = {"²": 2, "³": 3}
# Units that East Asian texts write as one letter, or as wide ones: ㎝, ℓ, ｃｍ.
_ONE_LETTER = re.compile("[\u2113\u3371-\u33df\uff10-\uff5a]+")


@dataclass(frozen=True, slots=True)
class KnownUnit:
    """Unit of measurement.

    Attributes:
        kind: kind of units that convert into each other.
        unit: pint's name, or the unit's own if pint does not know it.
        shown: name that a table shows.
        is_weak: as in `UnitName`.
    """

    kind: str
    unit: str
    shown: str
    is_weak: bool = False


def units_of(name: str) -> tuple[KnownUnit, ...]:
    """Return the units that a name in a text may mean ("oz": of mass, weakly of volume); empty if it is not a unit."""
    if not name or len(name) > _MAX_LENGTH:
        return ()
    return _units_of(name)


@lru_cache(maxsize=4096)
def _units_of(name: str) -> tuple[KnownUnit, ...]:
    tidy = tidy_name(name)
    found = _by_name().get(tidy) or _by_folded_name().get(tidy.casefold()) or ()
    return found or _composed(tidy)


def meanings_of(name: str) -> tuple[KnownUnit, ...]:
    """Return the units that the name of a schema's unit may mean, if there are several: "Gb" are bits or bytes."""
    strong = tuple(unit for unit in units_of(name) if not unit.is_weak)
    return strong if len(strong) > 1 else ()


@cache
def wanted_unit(name: str) -> KnownUnit:
    """Return the unit that a schema names: as texts write it, by pint's name, or else an unknown word."""
    units = units_of(name)
    strong = [each for each in units if not each.is_weak]
    # Pint takes C for coulombs and "units" for nothing, but schemas use them as texts do.
    meant = strong or [each for each in units if each.is_weak]
    if len(meant) == 1:
        return KnownUnit(meant[0].kind, meant[0].unit, name)
    is_expression = len(name) <= _MAX_LENGTH and _EXPRESSION.fullmatch(name) is not None
    # One letter is too little to tell pint's "b" for barns from a shop's unit: it is only known by its own name.
    is_pints = not strong and len(name) > 1 and is_expression and _dimension(name) is not None
    return (
        KnownUnit(f"pint {_dimension(name)}", name, name)
        if is_pints
        else KnownUnit(f"word {fold_word(name)}", name, name)
    )


def is_known(unit: KnownUnit) -> bool:
    """Return whether anything but its name is known of the unit."""
    return not unit.kind.startswith("word ")


def accepted_units(wanted: KnownUnit, names: tuple[str, ...]) -> frozenset[tuple[str, str]] | None:
    """Return kind and unit of the units that a text may have; None for all of the wanted one's kind."""
    if not names:
        return None
    return frozenset((unit.kind, unit.unit) for unit in (wanted, *map(wanted_unit, names)))


def same_kind(one: KnownUnit, other: KnownUnit) -> bool:
    """Return whether numbers of one unit can be converted into the other."""
    if one.kind == other.kind:
        return True
    # A unit of a schema that only pint knows has no kind but its dimension.
    if not (one.kind.startswith("pint ") or other.kind.startswith("pint ")):
        return False
    dimension = _dimension(one.unit)
    return dimension is not None and dimension == _dimension(other.unit) != "dimensionless"


def convert(number: Fraction, unit: KnownUnit, into: KnownUnit) -> Fraction:
    """Convert a number of `unit` into another unit of the same kind."""
    if unit.unit == into.unit:
        return number
    factor, offset = _conversion(unit.unit, into.unit)
    return number * factor + offset


@cache
def _conversion(unit: str, into: str) -> tuple[Fraction, Fraction]:
    registry = _registry()
    zero, one = (registry.Quantity(Fraction(number), unit).to(into).magnitude for number in (0, 1))
    return Fraction(one) - Fraction(zero), Fraction(zero)


@cache
def _registry() -> Any:
    # Imported where a unit is converted: most processes of a run never do.
    import pint

    registry: Any = pint.UnitRegistry(non_int_type=Fraction)
    for line in DEFINITIONS:
        registry.define(line)
    return registry


@cache
def _dimension(unit: str) -> str | None:
    try:
        found = _registry().parse_units(unit).dimensionality
    except Exception:
        # For a text that is not a unit, pint's parser raises errors of any kind.
        return None
    return " ".join(f"{name}{power}" for name, power in sorted(found.items())) or "dimensionless"


def tidy_name(name: str) -> str:
    """Return a unit's name without dots of abbreviations, in Unicode NFC, with single spaces."""
    text = _ONE_LETTER.sub(lambda found: unicodedata.normalize("NFKC", found[0]), name)
    text = unicodedata.normalize("NFC", text).replace("\u00b5", "µ").replace("\u03bc", "µ")
    text = re.sub(r"\.(?=\W|$)|(?<=[^\W\d_])\.(?=[^\W\d_]\b)", "", text) if "." in text else text
    text = re.sub(r"([°º])\s", r"\1", text)
    return " ".join(text.split())


def fold_word(name: str) -> str:
    """Return a tidy name in small letters, without the plural's "s" if it has more than three letters ("Rings")."""
    folded = tidy_name(name).casefold()
    return folded.removesuffix("s") if len(folded) > 3 else folded


@cache
def _names() -> tuple[UnitName, ...]:
    return tuple(unit_names())


@cache
def _by_name() -> Mapping[str, tuple[KnownUnit, ...]]:
    found: dict[str, dict[KnownUnit, None]] = defaultdict(dict)
    shown: dict[str, str] = {}
    for each in _names():
        symbol = shown.setdefault(each.unit, each.name)
        found[tidy_name(each.name)][KnownUnit(each.kind, each.unit, symbol, each.is_weak)] = None
    return {name: tuple(units) for name, units in found.items()}


@cache
def _by_folded_name() -> Mapping[str, tuple[KnownUnit, ...]]:
    found: dict[str, set[tuple[KnownUnit, ...]]] = defaultdict(set)
    exact = {tidy_name(each.name) for each in _names() if each.is_exact}
    for name, units in _by_name().items():
        if len(name) > 1 and name not in exact:
            found[name.casefold()].add(units)
    return {name: next(iter(units)) for name, units in found.items() if len(units) == 1}


@cache
def first_words() -> frozenset[str]:
    """Return the first words of all unit names, case-folded."""
    return frozenset(name.split(" ")[0].casefold() for name in _by_name())


def _composed(name: str) -> tuple[KnownUnit, ...]:
    """Return a unit composed of several ("g/cm³"), or a power ("dm2"); empty if a part of it is not a unit."""
    parts, signs = _FACTORS.split(name), _FACTORS.findall(name)
    if len(parts) > 3 or not all(parts):
        return ()
    factors = [_factor(part, is_alone=len(parts) == 1) for part in parts]
    if not all(factors):
        return ()
    text = factors[0] or ""
    for sign, factor in zip(signs, factors[1:], strict=True):
        text += f" {'*' if sign.strip() in ('·', '⋅', '*') else '/'} {factor}"
    dimension = _dimension(text)
    return (KnownUnit(f"pint {dimension}", text, name),) if dimension is not None else ()


def _factor(part: str, *, is_alone: bool) -> str | None:
    match = _POWER.fullmatch(part)
    base, power = (match["name"], _SIGNS.get(match["sign"] or "") or int(match["power"])) if match else (part, 1)
    if is_alone and power == 1:
        return None
    units = _by_name().get(base.strip()) or _by_folded_name().get(base.strip().casefold()) or ()
    strong = [each for each in units if not each.is_weak]
    return f"({strong[0].unit})**{power}" if len(strong) == 1 else None


DEFINITIONS = (
    "metric_pound = 500 * gram",
    "page = [page]",
    "sheet = [sheet]",
    "piece = [piece]",
    "person = [person]",
    "revolution_count = [revolution]",
    "sound_level = [sound_level]",
    "euro = [euro]",
    "US_dollar = [us_dollar]",
    "pound_sterling = [pound_sterling]",
)
"""Definitions of units that pint does not know, or would convert as nobody means it: a speed of 1 rpm into 0.1 Hz."""

COUNTS = frozenset({"pages", "sheets", "pieces", "people"})
"""Kinds that count things, which are not units if the attribute has none."""

_WORDS_OF_AGE = "age ages aged alter edad edades âge ab età leeftijd 対象年齢 年齢 适用年龄"
LABELS: Mapping[str, str] = dict.fromkeys(_WORDS_OF_AGE.split(), "year")
"""Words before a number that imply its unit: an age is in years unless months are named."""


class UnitName(NamedTuple):
    """Name of a unit, as texts write it.

    Attributes:
        kind: kind of units that convert into each other.
        unit: pint's name.
        is_weak: whether it has many meanings, and counts only if its kind is asked for.
        is_exact: whether capitals count.
    """

    name: str
    kind: str
    unit: str
    is_weak: bool
    is_exact: bool


def unit_names() -> Iterator[UnitName]:
    """Yield all names; the first one of each unit is the one to show."""
    text = resources.files(__package__).joinpath("units.yaml").read_text(encoding="utf-8")
    # The C loader if there is one, because every task worker of a run reads the table.
    for kind, units in yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)).items():
        for unit, names in units.items():
            for name in names:
                mark = name[-1:] if len(name) > 1 else ""
                yield UnitName(name.rstrip("?!"), kind, unit, mark == "?", mark == "!")
