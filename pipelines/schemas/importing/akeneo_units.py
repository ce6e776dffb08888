"""Akeneo's codes of units, and how texts write the same unit.

Akeneo's measurement families are public; what is not here (a family of one's own) keeps its code, in small letters.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

import yaml

from hpd_core import Unit

SYMBOLS: Mapping[str, Mapping[str, str]] = yaml.safe_load(
    resources.files(__package__).joinpath("akeneo_units.yaml").read_text(encoding="utf-8")
)
"""Measurement family -> code -> as texts write it."""


def unit_of(family: str, code: str) -> Unit | None:
    """The unit of a metric attribute; None where it names none. Texts may have any that can be made it."""
    if not code:
        return None
    # A copy of a standard family, under a name of one's own, has its codes.
    codes = SYMBOLS.get(family) or next((each for each in SYMBOLS.values() if code in each), {})
    return Unit(want=codes.get(code, code.lower()))
