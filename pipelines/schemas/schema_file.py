"""Category schemas from one YAML file.

categories:
  Coffee:
    - name: Brand
      description: the maker's name
    - {name: Roast, type: enum, values: [light, medium, dark]}
    - {name: Weight, type: number, unit: g}
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from pydantic import ValidationError

from hpd_core import Attribute, CategorySchema
from hpd_core.types import content_hash
from pipelines.config.yaml_files import load_yaml
from pipelines.errors import UsageError


def load_schemas(path: str) -> dict[str, CategorySchema]:
    """All category schemas of the file at `path` (a local path or any fsspec URI), in the file's order.

    Raises `UsageError`, naming file, category and attribute, on anything that is not exactly a schema.
    """
    return parse_schemas(load_yaml(path), path)


def parse_schemas(document: Any, name: str) -> dict[str, CategorySchema]:
    """Category schemas from a parsed YAML document; `name` stands for the file in messages."""
    if not isinstance(document, dict) or "categories" not in document:
        raise UsageError(f"{name}: a schema file holds one mapping 'categories: {{<category>: [<attribute>, ...]}}'")
    _refuse_unknown(document, ["categories"], name)
    categories = document["categories"]
    if not isinstance(categories, dict) or not categories:
        raise UsageError(f"{name}: 'categories' must be a mapping of category names to lists of attributes")
    return {
        _text(category, f"{name}: category"): _parse_category(category, attributes, name)
        for category, attributes in categories.items()
    }


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


def _parse_category(category: str, entries: Any, name: str) -> CategorySchema:
    place = f"{name}: category {category!r}"
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{place}: a non-empty list of attributes is needed")
    attributes = [_parse_attribute(entry, place, index) for index, entry in enumerate(entries)]
    seen: set[str] = set()
    for attribute in attributes:
        if attribute.name in seen:
            raise UsageError(f"{place}: attribute {attribute.name!r} is listed twice")
        seen.add(attribute.name)
    return CategorySchema(category=category, attributes=tuple(attributes))


def _parse_attribute(entry: Any, place: str, index: int) -> Attribute:
    if isinstance(entry, str):
        entry = {"name": entry}
    if not isinstance(entry, dict):
        raise UsageError(f"{place}: attribute {index + 1} must be a name or a mapping, not {type(entry).__name__}")
    label = f"{place}, attribute {entry.get('name', index + 1)!r}"
    _refuse_unknown(entry, Attribute.model_fields, label)
    _refuse_yaml_words(entry, label)
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


def _refuse_yaml_words(entry: Mapping[str, Any], place: str) -> None:
    # YAML reads a bare yes, no, on, off, 3 or 0.5 as something else than text; say so where it matters.
    for value in [entry.get("name"), *(entry.get("values") or [])]:
        if value is not None and not isinstance(value, str):
            raise UsageError(f"{place}: {value!r} is read by YAML as {type(value).__name__}; put it in quotes")


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{place} {value!r} is read by YAML as {type(value).__name__}; put it in quotes")
    return value


def _plain(attribute: Attribute) -> dict[str, object]:
    """The attribute as YAML has it: name and type, and what is not the default."""
    data = attribute.model_dump(mode="json", exclude_defaults=True)
    return {"name": data.pop("name"), "type": attribute.type, **data}
