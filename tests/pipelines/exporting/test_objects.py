"""Attributes in objects: structs and objects where a file has such, a column each where it has none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import CategorySchema
from hpd_core.data.nesting import flattened, nested
from pipelines.exporting.wide_columns import in_objects, wide_columns
from pipelines.schemas.schema_file import parse_schemas
from tests.examples import examples
from tests.pipelines.comparing.made_runs import ABSENT, Row
from tests.pipelines.exporting.made_runs import exported, write_normalised_run
from tests.tables import table

SIZE = [{"name": "width", "type": "number", "unit": "cm"}, {"name": "lid", "type": "object", "attributes": ["closure"]}]
SCHEMAS = parse_schemas(
    {
        "categories": {
            "Bags": ["Brand", {"name": "size", "type": "object", "attributes": SIZE}],
            "Hats": ["Brand", {"name": "size", "type": "object", "attributes": SIZE[:1]}],
        }
    },
    "made",
)
ROWS = [
    Row("b", {"Brand": "Acme", "size.width": "14", "size.lid.closure": "zip"}, "Acme bag, zip, 14 cm", "Bags"),
    Row("h", {"Brand": "Kona", "size.width": ABSENT}, "Kona hat", "Hats"),
]
WIDTH = {"width": 14.0, "width min": None, "width max": None, "width unit": "cm"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_normalised_run(tmp_path_factory.mktemp("objects") / "run", ROWS, SCHEMAS)


def test_json_has_objects_of_the_own_category(run: str, tmp_path: Path) -> None:
    exported(run, "--to", "jsonl", "--out", str(tmp_path / "wide.jsonl"))
    bag, hat = map(json.loads, (tmp_path / "wide.jsonl").read_text(encoding="utf-8").splitlines())
    assert bag["size"] == {**WIDTH, "lid": {"closure": "zip"}}
    assert hat["size"] == dict.fromkeys(WIDTH)


def schemas(*categories: list[Any]) -> dict[str, CategorySchema]:
    return parse_schemas({"categories": {f"c{number}": each for number, each in enumerate(categories)}}, "made")


def thing(name: str, *inside: Any) -> dict[str, Any]:
    return {"name": name, "type": "object", "attributes": list(inside)}


@table(
    ("found", "expected"),
    [
        (schemas([thing("a", "b")], ["a.b"]), {"a.b": ("a.b",)}),
        (schemas([thing("a", "b")], ["a"]), {"a.b": ("a.b",), "a": ("a",)}),
        (schemas([thing("a", "b")], [thing("a", thing("b", "c"))]), {"a.b": ("a", "b"), "a.b.c": ("a.b.c",)}),
        (
            schemas(["a"], [thing("a", "b")], [thing("a.b", "c")]),
            {"a": ("a",), "a.b": ("a.b",), "a.b.c": ("a.b.c",)},
        ),
        (schemas([thing("category", "x")]), {"category.x": ("category.x",)}),
        (schemas([thing("a.b", "c")], [thing("a", "b.c")]), {"a.b.c": ("a.b.c",)}),
    ],
)
def test_what_categories_call_alike_stands_alone(
    found: dict[str, CategorySchema], expected: dict[str, tuple[str, ...]]
) -> None:
    columns = wide_columns(found)
    assert {name: place for name, place in columns.places.items() if name in expected} == expected
    in_objects(columns.schema.empty_table(), columns.places)


leaves = st.lists(st.none() | st.integers(0, 9), min_size=2, max_size=2)
trees = st.recursive(leaves, lambda inner: st.dictionaries(st.text("ab", min_size=1), inner, min_size=1, max_size=3))


@settings(max_examples=examples(60))
@given(st.dictionaries(st.text("ab", min_size=1), trees, min_size=1, max_size=3))
def test_every_tree_of_columns_is_a_table_of_structs(tree: dict[str, Any]) -> None:
    places = {str(number): place for number, (place, _) in enumerate(flattened(tree))}
    columns = [values for _, values in flattened(tree)]
    table = pa.table(dict(zip(places, (pa.array(each, pa.int64()) for each in columns), strict=True)))

    def without_nothing(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        inside = {name: without_nothing(each) for name, each in node.items()}
        return None if all(each is None for each in inside.values()) else inside

    rows = [nested(zip(places.values(), values, strict=True)) for values in zip(*columns, strict=True)]
    assert in_objects(table, places).to_pylist() == [
        {name: without_nothing(node) for name, node in row.items()} for row in rows
    ]
