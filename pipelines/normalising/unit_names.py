"""Names of units in texts: the table units.yaml on top of pint, which knows the conversions.

Only names in the table are read in a text: pint itself would take "2 are" for an area and "pats" for a pressure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import resources
from typing import NamedTuple

import yaml

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
