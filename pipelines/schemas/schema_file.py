"""Category schemas from one YAML file.

categories:
  Coffee:
    - name: Brand
      description: the maker's name
    - {name: Roast, type: enum, values: [light, medium, dark]}
    - {name: Weight, type: number, unit: g}
"""

from __future__ import annotations

import datetime
import difflib
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from pydantic import ValidationError

from hpd_core import Attribute, CategorySchema
from hpd_core.types import content_hash, is_encodable
from pipelines.config.yaml_files import Places, is_json, parse_document, read_text
from pipelines.errors import UsageError

_SHAPE = "a schema file holds one mapping 'categories: {<category>: [<attribute>, ...]}'"


def load_schemas(path: str) -> dict[str, CategorySchema]:
    """All category schemas of the file at `path` (a local path or any fsspec URI), in the file's order.

    Raises `UsageError`, naming file, line, category and attribute, on anything that is not exactly a schema.
    """
    text = read_text(path)
    return _SchemaReader(path, Places(text)).read(parse_document(text, path))


def parse_schemas(document: Any, name: str) -> dict[str, CategorySchema]:
    """Category schemas from a parsed document; `name` stands for the file in messages. Raises as `load_schemas`."""
    return _SchemaReader(name, Places("")).read(document)


def dump_schemas(schemas: Mapping[str, CategorySchema]) -> str:
    """`schemas` as the YAML text that `load_schemas` reads: a line an attribute, defaults left out."""
    categories = {
        category: [_plain(attribute) for attribute in schema.attributes] for category, schema in schemas.items()
    }
    text: str = yaml.safe_dump(
        {"categories": categories},
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=1_000_000,
    )
    return text


def schemas_hash(schemas: Mapping[str, CategorySchema]) -> str:
    """One hash for a whole schema file, independent of the order of its categories."""
    return content_hash({category: schema.hash for category, schema in schemas.items()})


class _SchemaReader:
    """From a parsed document to schemas. `name` stands for the file in messages, with the lines that `places` knows."""

    def __init__(self, name: str, places: Places) -> None:
        self._name = name
        self._places = places

    def read(self, document: Any) -> dict[str, CategorySchema]:
        """Raises `UsageError`."""
        if document is None:
            raise UsageError(f"{self._name} is empty; {_SHAPE}")
        if not isinstance(document, dict) or "categories" not in document:
            raise UsageError(f"{self._name}: {_SHAPE}")
        _refuse_unknown(document, ["categories"], self._name)
        categories = document["categories"]
        if not isinstance(categories, dict) or not categories:
            raise UsageError(f"{self._name}: 'categories' must be a mapping of category names to lists of attributes")
        return {
            self._category_name(category, number): self._category(category, attributes, number)
            for number, (category, attributes) in enumerate(categories.items())
        }

    def _place(self, *path: str | int) -> str:
        return self._name + self._places.line("categories", *path)

    def _text(self, value: Any, written: str | None, place: str) -> str:
        return _text(value, written, place, from_json=is_json(self._name))

    def _category_name(self, category: Any, number: int) -> str:
        written = self._places.written_key("categories", number)
        return self._text(category, written, f"{self._place(number)}: category")

    def _category(self, category: str, entries: Any, number: int) -> CategorySchema:
        place = f"{self._place(number)}: category {category!r}"
        if not isinstance(entries, list) or not entries:
            raise UsageError(f"{place}: a non-empty list of attributes is needed")
        attributes = [self._attribute(entry, category, number, index) for index, entry in enumerate(entries)]
        seen: set[str] = set()
        for index, attribute in enumerate(attributes):
            if attribute.name in seen:
                place = f"{self._place(number, index)}: category {category!r}"
                raise UsageError(f"{place}: attribute {attribute.name!r} is listed twice")
            seen.add(attribute.name)
        return CategorySchema(category=category, attributes=tuple(attributes))

    def _attribute(self, entry: Any, category: str, number: int, index: int) -> Attribute:
        place = f"{self._place(number, index)}: category {category!r}"
        if isinstance(entry, list):
            raise UsageError(f"{place}: attribute {index + 1} must be a name or a mapping, not a list")
        if not isinstance(entry, dict):
            written = self._places.written("categories", number, index)
            entry = {"name": self._text(entry, written, f"{place}: attribute {index + 1}:")}
        name = entry.get("name")
        label = f"{place}, attribute {(name if isinstance(name, str) else index + 1)!r}"
        _refuse_unknown(entry, Attribute.model_fields, label)
        for key in ("name", "description", "type", "unit"):
            if key in entry and (key == "name" or entry[key] is not None):
                written = self._places.written("categories", number, index, key)
                self._text(entry[key], written, f"{label}: {key}")
        values = entry.get("values")
        if values is not None and not isinstance(values, list):
            raise UsageError(f"{label}: values must be a list, not {_kind(values)}")
        for position, value in enumerate(values or ()):
            written = self._places.written("categories", number, index, "values", position)
            self._text(value, written, f"{label}: value")
        try:
            return Attribute.model_validate(entry)
        except ValidationError as error:
            problems = "; ".join(_describe(problem) for problem in error.errors())
            raise UsageError(f"{label}: {problems}") from error


def _describe(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message


def _refuse_unknown(mapping: Mapping[Any, Any], known: Iterable[str], place: str) -> None:
    known = list(known)
    for key in mapping:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
            raise UsageError(f"{place}: unknown key {key!r}; {hint}")


def _text(value: Any, written: str | None, place: str, *, from_json: bool) -> str:
    """`value`, if it is a text. YAML reads a bare yes, no, on, 3, 0.5, 1:30, 012 or 2024-01-01 as something else; JSON
    means what is written there."""
    if not isinstance(value, str):
        shown = reprlib.repr(value) if written is None else written or "an empty place"
        problem = f"is read by YAML as {_kind(value)}, not as text"
        if from_json:
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            problem = f"is {'a number' if is_number else _kind(value)}, not a text"
        raise UsageError(f"{place} {shown} {problem}; put it in quotes")
    if not is_encodable(value):
        raise UsageError(f"{place} {value!r} holds half a surrogate pair, which is no text")
    return value


def _kind(value: Any) -> str:
    """What YAML made of something."""
    if isinstance(value, bool):
        return "a truth value"
    if isinstance(value, (int, float)):
        return f"the number {reprlib.repr(value)}"
    if isinstance(value, (datetime.date, datetime.datetime)):
        return "a date"
    names = {str: "a text", list: "a list", dict: "a mapping", type(None): "null", bytes: "bytes", set: "a set"}
    return names.get(type(value), type(value).__name__)


def _plain(attribute: Attribute) -> dict[str, object]:
    """The attribute as YAML has it: name and type, and what is not the default."""
    data = attribute.model_dump(mode="json", exclude_defaults=True)
    return {"name": data.pop("name"), "type": attribute.type, **data}
