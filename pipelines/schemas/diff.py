"""Every difference between two schema files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpd_core import Attribute, CategorySchema
from pipelines.schemas.remarks import Remark


def diff(old: Mapping[str, CategorySchema], new: Mapping[str, CategorySchema]) -> Iterator[Remark]:
    """Every difference between two schema files; the order of attributes counts, that of categories not."""
    for category in dict.fromkeys([*old, *new]):
        if category not in new:
            yield Remark(category, None, "removed")
        elif category not in old:
            yield Remark(category, None, f"added, {len(new[category].attributes)} attributes")
        else:
            yield from _diff_category(category, old[category], new[category])


def _diff_category(category: str, old: CategorySchema, new: CategorySchema) -> Iterator[Remark]:
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
                    yield Remark(category, name, f"{setting}: {_show(first)} -> {_show(second)}")
    if [name for name in before if name in after] != [name for name in after if name in before]:
        yield Remark(category, None, "attributes are in another order, so prompts and answers may differ")


def _show(setting: object) -> str:
    if isinstance(setting, bool):
        return str(setting).lower()
    if setting is None:
        return "not set"
    return ", ".join(map(str, setting)) if isinstance(setting, tuple) else str(setting)
