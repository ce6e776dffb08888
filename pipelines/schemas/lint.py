"""What a schema file allows but probably does not mean, and what of it can never be answered."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping

from hpd_core import Attribute, CategorySchema
from hpd_core.text import absence
from hpd_core.text.near_names import difference, fold_name, fold_spelling, is_blank, unseen
from hpd_core.types import is_encodable
from pipelines.schemas.remarks import Remark

_MAX_ATTRIBUTES = 64  # what the engine is tested with
_MAX_ENUM_VALUES = 100
_MAX_DESCRIPTION = 500  # letters
_MAX_VALUE_TOKENS = 30  # as engine.max_value_tokens where nobody says otherwise
_LETTERS_PER_TOKEN = 4  # about; a value of more letters may be cut
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_TRUTH = ({"yes", "no"}, {"true", "false"})


def lint(schemas: Mapping[str, CategorySchema]) -> Iterator[Remark]:
    """What is allowed in `schemas` but probably not meant."""
    for category, earlier in _alike(schemas, fold_name):
        yield Remark(category, None, f"almost the same name as category {_beside(earlier, category)}")
    types: dict[str, dict[str, str]] = {}
    for category, schema in schemas.items():
        for message in _lint_text(category):
            yield Remark(category, None, message)
        if len(schema.attributes) > _MAX_ATTRIBUTES:
            yield Remark(category, None, f"{len(schema.attributes)} attributes, more than {_MAX_ATTRIBUTES}")
        for name, earlier in _alike((attribute.name for attribute in schema.attributes), fold_name):
            yield Remark(category, name, f"almost the same name as attribute {_beside(earlier, name)}")
        for attribute in schema.attributes:
            for message in _lint_attribute(attribute):
                yield Remark(category, attribute.name, message)
            types.setdefault(attribute.name, {}).setdefault(attribute.type, category)
    for name, categories in types.items():
        if len(categories) > 1:
            described = ", ".join(f"{kind} in {category}" for kind, category in categories.items())
            yield Remark(next(iter(categories.values())), name, f"of different types: {described}")


def _lint_attribute(attribute: Attribute) -> Iterator[str]:
    values = attribute.labels
    for text in (attribute.name, *(value for value in values if value.strip())):
        yield from _lint_text(text)
    unit = attribute.unit.want if attribute.unit else None
    for key, note in (("description", attribute.description), ("unit", unit)):
        if note is not None:
            yield from [f"its {key} is empty"] if is_blank(note) else _lint_text(note)
    if len(attribute.description or "") > _MAX_DESCRIPTION:
        yield f"a description of {len(attribute.description or ''):,} letters makes every prompt long"
    if unit is not None and attribute.type != "number":
        yield f"has the unit {unit!r} but is of type {attribute.type}"
    if attribute.type == "boolean" and attribute.multiple:
        yield "a list of truth values: without multiple?"
    if attribute.max_value_tokens == 1:
        yield "max_value_tokens is 1: most values have more tokens, and are cut"
    yield from _lint_values(values, attribute)


def _lint_values(values: Iterable[str], attribute: Attribute) -> Iterator[str]:
    """Of the members of an enum."""
    values = tuple(values)
    if len(values) == 1:
        yield f"only one value is allowed, {values[0]!r}: a boolean?"
    if len(values) > _MAX_ENUM_VALUES:
        yield f"{len(values)} allowed values make every prompt long: a string?"
    if {value.strip().casefold() for value in values} in _TRUTH:
        yield f"the values are {' and '.join(map(repr, values))}: a boolean?"
    limit = attribute.max_value_tokens or _MAX_VALUE_TOKENS
    for value in values:
        if not value.strip():
            yield f"the value {value!r} can never be answered: an empty answer is none; leave it out, null is allowed"
        elif not is_blank(value) and absence.read(value, attribute.name) is absence.Reading.NOTHING:
            yield f"{value!r} is a value here, though it says nothing elsewhere: what is absent is null, always allowed"
        if '"' in value or "\\" in value:
            yield f"the value {value!r} holds a quote or a backslash, which models often write wrongly"
        if len(value) > _LETTERS_PER_TOKEN * limit:
            yield f"the value {value[:40]!r}… of {len(value)} letters may have more than {limit} tokens and be cut"
    for value, earlier in _alike(values, fold_spelling):
        yield f"the value {value!r} is almost the same as {_beside(earlier, value)}: an answer may mean either"


def _lint_text(text: str) -> Iterator[str]:
    """Of a name, a value, a description, a unit: what is not seen, or not as it is meant."""
    if not is_encodable(text):
        yield f"{text!r} holds half a surrogate pair, which is no text"
        return
    if is_blank(text):
        yield f"{text!r} shows nothing"
        return
    if text != text.strip():
        yield f"{text!r} begins or ends with white space"
    if _CONTROL_CHARACTER.search(text):
        yield f"{text!r} holds a line break or a control character"
    elif found := unseen(text):
        yield f"{text!r} holds characters that nobody sees: {', '.join(found)}"
    if unicodedata.normalize("NFC", text) != text:
        yield f"{text!r} is not in Unicode's form NFC, which most catalogs have"
    if html.unescape(text) != text:
        yield f"{text!r} holds an HTML entity: {html.unescape(text)!r}?"


def _alike(texts: Iterable[str], fold: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Every text that is folded to the same as an earlier one, and that one."""
    seen: dict[str, str] = {}
    for text in texts:
        earlier = seen.setdefault(fold(text), text)
        if earlier != text:
            yield text, earlier


def _beside(earlier: str, text: str) -> str:
    return f"{earlier!r} (they differ in {difference(earlier, text)})"
