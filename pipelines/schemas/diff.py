"""Differences between two schema files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpd_core import Attribute, CategorySchema, Member, Unit
from pipelines.schemas.remarks import Remark

_MAX_SHOWN = 20  # members of a vocabulary


def diff(old: Mapping[str, CategorySchema], new: Mapping[str, CategorySchema]) -> Iterator[Remark]:
    """Yield every difference between two schema files, including the order of attributes, but not of categories."""
    for category in dict.fromkeys([*old, *new]):
        if category not in new:
            yield Remark(category, None, "removed")
        elif category not in old:
            yield Remark(category, None, f"added, {len(new[category].attributes)} attributes")
        else:
            yield from _diff_category(category, old[category], new[category])


def _diff_category(category: str, old: CategorySchema, new: CategorySchema) -> Iterator[Remark]:
    for setting in ("id", "aliases"):
        if getattr(old, setting) != getattr(new, setting):
            yield Remark(category, None, _change(setting, getattr(old, setting), getattr(new, setting)))
    before = {attribute.name: attribute for attribute in old.attributes}
    after = {attribute.name: attribute for attribute in new.attributes}
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            yield Remark(category, name, "removed")
        elif name not in before:
            yield Remark(category, name, "added")
        else:
            for setting in Attribute.model_fields:
                first, second = getattr(before[name], setting), getattr(after[name], setting)
                if first != second:
                    yield Remark(category, name, _change(setting, first, second))
    if [name for name in before if name in after] != [name for name in after if name in before]:
        yield Remark(category, None, "attributes are in another order, so prompts and answers may differ")


def _change(setting: str, before: Any, after: Any) -> str:
    if setting == "values" and before and after and len(before) + len(after) > _MAX_SHOWN:
        return f"{setting}: {_change_of_many(before, after)}"
    return f"{setting}: {_show(before)} -> {_show(after)}"


def _change_of_many(before: Sequence[Member], after: Sequence[Member]) -> str:
    """Describe the members that a long vocabulary has lost and gained, at most `_MAX_SHOWN` of them."""
    lost = [f"-{_show(member)}" for member in _without(before, after)]
    new = [f"+{_show(member)}" for member in _without(after, before)]
    if not lost and not new:
        return "in another order"
    more = len(lost) + len(new) - _MAX_SHOWN
    shown = (lost + new)[:_MAX_SHOWN]
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def _without(members: Sequence[Member], others: Sequence[Member]) -> list[Member]:
    known = set(others)
    return [member for member in members if member not in known]


def _show(setting: Any) -> str:
    if isinstance(setting, bool):
        return str(setting).lower()
    if setting is None or setting == ():
        return "not set"
    if isinstance(setting, tuple):
        return ", ".join(map(_show, setting))
    if isinstance(setting, Unit | Member):
        first, *rest = [(key, value) for key, value in setting if value not in (None, ())]
        more = "; ".join(f"{key} {_show(value)}" for key, value in rest)
        return f"{first[1]} ({more})" if more else str(first[1])
    return str(setting)
