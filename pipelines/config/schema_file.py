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

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hpd_core import CategorySchema
from hpd_core.types import content_hash
from pipelines.config.category_entries import read_document
from pipelines.config.spots import Spot
from pipelines.config.yaml_files import YamlPlaces, parse_document, read_text


def load_schemas(path: str) -> dict[str, CategorySchema]:
    """Load all category schemas of the file at `path` (a local path or any fsspec URI), in the file's order.

    Raises `UsageError`, naming file, line, category and attribute, for anything that is not a valid schema.
    """
    text = read_text(path)
    return read_document(parse_document(text, path), Spot(path, YamlPlaces(text)))


def parse_schemas(document: Any, name: str) -> dict[str, CategorySchema]:
    """Read category schemas from a parsed document; `name`: file name for messages. Raises as `load_schemas`."""
    return read_document(document, Spot(name, YamlPlaces("")))


def schemas_hash(schemas: Mapping[str, CategorySchema]) -> str:
    """Return one hash for a whole schema file, independent of the order of its categories."""
    return content_hash({category: schema.hash for category, schema in schemas.items()})


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
