"""Akeneo's product CSV: a column for each attribute by its code, option codes, and a unit beside every measurement."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpd_core import Attribute
from pipelines.exporting.answers import Item
from pipelines.exporting.rules import AKENEO, AKENEO_CODE, AKENEO_RESERVED, akeneo_unit
from pipelines.exporting.targets import Extra, ShopWishes, Target, TargetColumn, find_place
from pipelines.exporting.value_forms import Rule, slug


def akeneo_code(id_: str | None, name: str) -> str:
    """The code of an attribute: its id if that is one, else its name as one; empty if neither can be."""
    code = id_ if id_ is not None and re.fullmatch(AKENEO_CODE, id_) else slug(name, "_")
    return "" if code.lower() in AKENEO_RESERVED else code


def _columns(header: Sequence[str], attributes: Sequence[Attribute], wishes: ShopWishes) -> list[TargetColumn]:
    columns = []
    for attribute in attributes:
        wanted = wishes.columns.get(attribute.name)
        code = akeneo_code(attribute.id, attribute.name) if wanted is None else wanted
        if not code:
            continue
        unit = Extra(f"{code}-unit", _unit) if attribute.type == "number" and attribute.unit is not None else None
        columns.append(
            TargetColumn(
                *(attribute.name, code, _rule, find_place(header, code)),
                *(unit, None if unit is None else find_place(header, unit.name)),
            )
        )
    return columns


def _rule(attribute: Attribute) -> Rule:
    if attribute.type == "enum":
        return AKENEO["multiselect" if attribute.multiple else "select"]
    return AKENEO.get(attribute.type, AKENEO["text"])


def _unit(items: Sequence[Item]) -> str | None:
    return akeneo_unit(items[0].unit)


def _note(new: Sequence[TargetColumn]) -> str:
    return ""


AKENEO_TARGET = Target("akeneo", _columns, _note)
