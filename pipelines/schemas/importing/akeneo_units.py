"""Akeneo's unit codes, and the spellings of the same units in texts.

Akeneo's measurement families are public. A unit that is not here (of a custom family) keeps its code in lower case.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

import yaml

from hpd_core import Unit

SYMBOLS: Mapping[str, Mapping[str, str]] = yaml.safe_load(
    resources.files(__package__).joinpath("akeneo_units.yaml").read_text(encoding="utf-8")
)
"""Measurement family -> code -> spelling in texts."""


def unit_of(family: str, code: str) -> Unit | None:
    """Return the unit of a metric attribute; None without a code. Texts may have any unit convertible to it."""
    if not code:
        return None
    # A copy of a standard family, under a name of one's own, has its codes.
    codes = SYMBOLS.get(family) or next((each for each in SYMBOLS.values() if code in each), {})
    return Unit(want=codes.get(code, code.lower()))
