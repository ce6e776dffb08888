"""Whose category a row is: by name, id, alias, or a path of the catalog's own tree."""

from __future__ import annotations

from typing import Any

from hpd_core import Attribute, CategorySchema, Record
from pipelines.catalog.rows import RowRefusal, find_category, to_record
from pipelines.config.catalog_input import InputConfig
from tests.tables import table


def schema(name: str, **given: Any) -> CategorySchema:
    return CategorySchema(category=name, attributes=(Attribute(name="Brand"),), **given)


SCHEMAS = {
    each.category: each
    for each in (
        schema("Bags", id="3032", aliases=("Handbags", "Luggage > Bags")),
        schema("Luggage > Backpacks", id="100"),
        schema("Home & Garden"),
        schema("Boots", aliases=("Accessories",)),
        schema("Caps", aliases=("Accessories",)),
    )
}


def config(category: Any) -> InputConfig:
    return InputConfig.model_validate({"path": "c", "category": category, "fields": ["title"]})


@table(
    ("cell", "category"),
    [
        ("Bags", "Bags"),
        ("Handbags", "Bags"),
        ("3032", "Bags"),
        ("Luggage > Bags", "Bags"),
        ("bags", "bags"),
        ("Accessories", "Accessories"),
        ("Hats", "Hats"),
        ("", ""),
        (None, ""),
    ],
)
def test_a_name_is_exact(cell: Any, category: str) -> None:
    assert find_category({"kind": cell}, config("kind"), SCHEMAS) == category


@table(
    ("cell", "category"),
    [
        ("Apparel > Bags", "Bags"),
        ("apparel >  LUGGAGE>backpacks > Kids", "Luggage > Backpacks"),
        ("Home & Garden > Tools > Saws", "Home & Garden"),
        ("Bags > Luggage > Backpacks", "Luggage > Backpacks"),
        ("Accessories > Boots", "Boots"),
        ("Accessories", None),
        ("3032", "Bags"),
        (["Apparel", "Bags"], "Bags"),
        (["Toys > Cars", "Apparel > Boots"], "Boots"),
        ("Toys > Cars", None),
    ],
)
def test_the_longest_part_of_a_path_counts_the_leaf_first(cell: Any, category: str | None) -> None:
    found = to_record({"kind": cell, "title": "x"}, "1", config({"column": "kind", "separator": " > "}), SCHEMAS)
    assert (found.category if isinstance(found, Record) else None) == category
    if category is None:
        assert isinstance(found, RowRefusal)
        assert found.code == "no_schema"
        assert repr(cell) in found.message


@table(("level", "category"), [(1, "Home & Garden"), (2, "Bags"), (3, "Boots"), (-1, "Boots"), (-3, "Home & Garden")])
def test_one_level_of_a_path(level: int, category: str) -> None:
    row = {"kind": "Home & Garden/Bags/Boots"}
    assert find_category(row, config({"column": "kind", "separator": "/", "level": level}), SCHEMAS) == category
    nowhere = config({"column": "kind", "separator": "/", "level": 4})
    assert find_category(row, nowhere, SCHEMAS) == "Home & Garden/Bags/Boots"
