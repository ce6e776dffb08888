"""Akeneo's product CSV: a column for each attribute by its code, option codes, and a unit beside every measurement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from hpd_core import Attribute
from pipelines.errors import UsageError
from pipelines.exporting.answers import ExportedItem
from pipelines.exporting.rules import AKENEO, AKENEO_CODE, AKENEO_RESERVED
from pipelines.exporting.targets import Extra, ShopWishes, Target, TargetAsked, TargetColumn, find_place
from pipelines.exporting.value_forms import SPELLINGS, Rule, is_sluggable, slug
from pipelines.schemas.importing.akeneo import SYMBOLS


def akeneo_code(id_: str | None, name: str) -> str:
    """Return the code of an attribute: its id if that is a code, else one made from its name; "" if neither works.

    A name that would lose letters does not work: "重さ (g)" would become `g`, which another attribute may be called.
    """
    is_code = id_ is not None and re.fullmatch(AKENEO_CODE, id_)
    code = (id_ or "") if is_code else slug(name, "_") if is_sluggable(name) else ""
    return "" if code.lower() in AKENEO_RESERVED else code


def _columns(header: Sequence[str], asked: Sequence[TargetAsked], wishes: ShopWishes) -> list[TargetColumn]:
    """Return the columns. Raises `UsageError` if the original has an attribute for each locale or channel, and the
    options do not say which."""
    if not header and (wishes.locale or wishes.channel):
        raise UsageError("--locale and --channel say which columns of an original are filled in; a new file has none")
    columns = []
    for each in asked:
        attribute = each.attribute
        wanted = wishes.columns.get(attribute.name)
        code = akeneo_code(attribute.id, attribute.name) if wanted is None else wanted
        if not code:
            continue
        if wanted is None:
            code = _scoped(header, code, wishes, attribute.name)
        unit = Extra(f"{code}-unit", _unit) if attribute.type == "number" and attribute.unit is not None else None
        columns.append(
            TargetColumn(
                *(each, code, _rule, find_place(header, code)),
                *(unit, None if unit is None else find_place(header, unit.name)),
            )
        )
    return columns


def _scoped(header: Sequence[str], code: str, wishes: ShopWishes, name: str) -> str:
    """Return the attribute's column; if the file has one for each locale (`brand-en_US`) or channel, the wanted one.

    Raises `UsageError` if the options do not say which.
    """
    if find_place(header, code) is not None:
        return code
    # A code has no "-". A name that ends in "-unit" is the column beside a number.
    there = [each for each in header if each.startswith(f"{code}-") and not each.endswith("-unit")]
    if not there:
        return code
    locale, channel = ([f"-{each}"] if each else [] for each in (wishes.locale, wishes.channel))
    wanted = [code + scope for scope in (*(a + b for a in locale for b in channel), *locale, *channel)]
    found = next((each for each in wanted if each in there), None)
    if found is None:
        raise UsageError(
            f"the attribute {name!r} has the columns {', '.join(there)} in the original: --locale and --channel say "
            f"which is filled in, or --columns '{name}={there[0]}'"
        )
    return found


def _rule(attribute: Attribute) -> Rule:
    if attribute.type == "enum":
        return AKENEO["multiselect" if attribute.multiple else "select"]
    return AKENEO.get(attribute.type, AKENEO["text"])


def _unit(items: Sequence[ExportedItem]) -> str | None:
    return akeneo_unit(items[0].unit)


AKENEO_TARGET = Target("akeneo", _columns)


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
