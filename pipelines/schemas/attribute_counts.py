"""Counts of the attributes of a schema file, by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hpd_core import CategorySchema

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
