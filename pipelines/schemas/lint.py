"""What a schema file allows but probably does not mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from hpd_core import Attribute, CategorySchema
from hpd_core.text import absence
from pipelines.quality.scoring import fold
from pipelines.schemas.remarks import Remark

_MAX_ATTRIBUTES = 64  # what the engine is tested with
_MAX_ENUM_VALUES = 100
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]")


def lint(schemas: Mapping[str, CategorySchema]) -> Iterator[Remark]:
    """What is allowed in `schemas` but probably not meant."""
    for category, earlier in _alike(schemas):
        yield Remark(category, None, f"almost the same name as category {earlier!r}")
    types: dict[str, dict[str, str]] = {}
    for category, schema in schemas.items():
        if len(schema.attributes) > _MAX_ATTRIBUTES:
            yield Remark(category, None, f"{len(schema.attributes)} attributes, more than {_MAX_ATTRIBUTES}")
        for name, earlier in _alike(attribute.name for attribute in schema.attributes):
            yield Remark(category, name, f"almost the same name as attribute {earlier!r}")
        for attribute in schema.attributes:
            for message in _lint_attribute(attribute):
                yield Remark(category, attribute.name, message)
            types.setdefault(attribute.name, {}).setdefault(attribute.type, category)
    for name, categories in types.items():
        if len(categories) > 1:
            described = ", ".join(f"{kind} in {category}" for kind, category in categories.items())
            yield Remark(next(iter(categories.values())), name, f"of different types: {described}")


def _lint_attribute(attribute: Attribute) -> Iterator[str]:
    values = attribute.values or ()
    for text in (attribute.name, attribute.description or "", attribute.unit or "", *values):
        if text != text.strip():
            yield f"{text!r} begins or ends with white space"
        if _CONTROL_CHARACTER.search(text):
            yield f"{text!r} holds a line break or a control character"
    if attribute.unit is not None and attribute.type != "number":
        yield f"has the unit {attribute.unit!r} but is of type {attribute.type}"
    if len(values) == 1:
        yield f"only one value is allowed, {values[0]!r}: a boolean?"
    if len(values) > _MAX_ENUM_VALUES:
        yield f"{len(values)} allowed values make every prompt long: a string?"
    for value in values:
        if value.strip() and absence.read(value, attribute.name) is absence.Reading.NOTHING:
            yield f"{value!r} is a value here, though it says nothing elsewhere: what is absent is null, always allowed"
    for value, earlier in _alike(values):
        yield f"the value {value!r} is almost the same as {earlier!r}"


def _alike(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Every text that equals an earlier one but for case, white space or Unicode form, and that one."""
    seen: dict[str, str] = {}
    for text in texts:
        earlier = seen.setdefault(fold(text), text)
        if earlier != text:
            yield text, earlier
