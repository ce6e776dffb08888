"""Akeneo's codes of units as schemas write them: the inverse of reading Akeneo's measurement families."""

from __future__ import annotations

from functools import cache

from pipelines.exporting.value_forms import SPELLINGS
from pipelines.schemas.importing.akeneo_units import SYMBOLS

_CODES = {symbol: code for family in SYMBOLS.values() for code, symbol in family.items()} | {
    **{"L": "LITER", "w": "WATT", "v": "VOLT", "a": "AMPERE", "mhz": "MEGAHERTZ"},
    **{"kB": "KILOBYTE", "day": "DAY", "hr": "HOUR", "hours": "HOUR", "%": "PERCENT"},
}
_KNOWN = frozenset(_CODES.values())


@cache
def akeneo_unit(unit: str | None) -> str | None:
    """Return the code of a unit; None if it has none. Codes themselves are kept."""
    if unit is None or unit in _KNOWN:
        return unit
    symbol = SPELLINGS.get(unit.casefold(), unit)
    if symbol in _CODES:
        return _CODES[symbol]
    found = {code for known, code in _CODES.items() if _is_written(known, symbol)}
    return found.pop() if len(found) == 1 else None


def _is_written(symbol: str, text: str) -> bool:
    """Return whether a text is the symbol in other capitals that keep its meaning: MV is not mV, Mb is not MB."""
    if len(symbol) == 1 or symbol == "cal" or symbol.casefold() != text.casefold():
        return False
    is_milli = symbol[0] in "mM" and symbol[0] != text[0]
    return symbol.islower() or not (is_milli or symbol.endswith("B"))
