"""Category schemas from one YAML file.

attributes:                             # a library, where several categories share attributes
  width: {name: Width, type: number, unit: {want: cm, accept: [in, mm]}}
categories:
  Coffee:
    - name: Brand
      description: the maker's name
    - {name: Roast, type: enum, values: [light, {label: dark, id: "7", synonyms: [strong]}]}
    - {name: Weight, type: number, unit: g}
    - {name: Packaging, type: object, attributes: [Kind, {name: Width, type: number, unit: cm}]}
  Machines:
    extends: Coffee                     # its attributes, and then these
    id: "12"
    aliases: [Kitchen > Machines]
    attributes: [use: width, Volume]
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from hpd_core import Attribute, CategorySchema
from hpd_core.types import content_hash
from pipelines.config.category_entries import read_document
from pipelines.config.nested_entries import as_written, bare
from pipelines.config.spots import Spot
from pipelines.config.yaml_files import YamlPlaces, dump_yaml, parse_document, read_text

_LONG = 10  # values; a longer list is written once, for all categories that have it
_NO_WORD = re.compile(r"[^\w]+")


def load_schemas(path: str) -> dict[str, CategorySchema]:
    """Load all category schemas of the file at `path` (a local path or any fsspec URI), in the file's order.

    Raises `UsageError`, naming file, line, category and attribute, for anything that is not a valid schema.
    """
    text = read_text(path)
    return read_document(parse_document(text, path), Spot(path, YamlPlaces(text)))


def parse_schemas(document: Any, name: str) -> dict[str, CategorySchema]:
    """Read category schemas from a parsed document; `name`: file name for messages. Raises as `load_schemas`."""
    return read_document(document, Spot(name, YamlPlaces("")))


def dump_schemas(schemas: Mapping[str, CategorySchema]) -> str:
    """Write `schemas` as the YAML text that `load_schemas` reads: one line per attribute, without defaults.

    Attributes shared by several categories go into the library if they have a long list of values, ids or units.
    """
    handles = _handles(schemas)
    document: dict[str, Any] = {}
    if handles:
        document["attributes"] = {handle: _plain(attribute) for attribute, handle in handles.items()}
    document["categories"] = {category: _category(schema, handles) for category, schema in schemas.items()}
    return f"{dump_yaml(document)}\n"


def schemas_hash(schemas: Mapping[str, CategorySchema]) -> str:
    """Return one hash for a whole schema file, independent of the order of its categories."""
    return content_hash({category: schema.hash for category, schema in schemas.items()})


def _category(schema: CategorySchema, handles: Mapping[Attribute, str]) -> Any:
    """Return the category as YAML data: a list of its attributes, or a mapping if it has an id or aliases."""

    def plain(attribute: Attribute) -> dict[str, object]:
        alone = bare(attribute)
        return {"use": handles[alone]} if alone in handles else _plain(alone)

    attributes = as_written(schema.attributes, plain)
    more = {key: value for key, value in (("id", schema.id), ("aliases", list(schema.aliases))) if value}
    return {**more, "attributes": attributes} if more else attributes


def _plain(attribute: Attribute) -> dict[str, object]:
    """Return the attribute as YAML data: name, type, and all settings that are not the default."""
    data = attribute.model_dump(mode="json", exclude_defaults=True)
    return {"name": data.pop("name"), "type": attribute.type, **data}


def _handles(schemas: Mapping[str, CategorySchema]) -> dict[Attribute, str]:
    """Return the attributes that go into the library, with their handles."""
    listed = (bare(attribute) for schema in schemas.values() for attribute in schema.attributes)
    counts = Counter(attribute for attribute in listed if _is_long(attribute))
    handles: dict[Attribute, str] = {}
    free: dict[str, Iterator[str]] = {}
    taken: set[str] = set()
    for attribute, count in counts.items():
        if count > 1:
            handle = _NO_WORD.sub("-", attribute.name.casefold()).strip("-") or "attribute"
            numbered = free.setdefault(handle, _numbered(handle))
            handles[attribute] = next(each for each in numbered if each not in taken)
            taken.add(handles[attribute])
    return handles


def _numbered(handle: str) -> Iterator[str]:
    yield handle
    yield from (f"{handle}-{number}" for number in itertools.count(2))


def _is_long(attribute: Attribute) -> bool:
    """Return whether the attribute is long enough for the library."""
    is_more = attribute.id is not None or (attribute.unit is not None and attribute.unit.accept)
    members = attribute.values or ()
    return bool(is_more) or len(members) > _LONG or any(not isinstance(each.model_dump(), str) for each in members)


TALLIED = ("attributes", "described", "number", "boolean", "enum", "multiple")


def tally(schema: CategorySchema) -> list[int]:
    """Count the category's attributes, in the order of `TALLIED`."""
    attributes = schema.attributes
    by_type = Counter(attribute.type for attribute in attributes)
    return [
        len(attributes),
        sum(attribute.description is not None for attribute in attributes),
        by_type["number"],
        by_type["boolean"],
        by_type["enum"],
        sum(attribute.multiple for attribute in attributes),
    ]


def describe_totals(schemas: Mapping[str, CategorySchema]) -> str:
    """Describe the numbers of the whole file in one line."""
    num_attributes = sum(len(schema.attributes) for schema in schemas.values())
    mean = num_attributes / len(schemas)
    return f"{len(schemas)} categories, {num_attributes} attributes, {mean:.2f} a category on average"
