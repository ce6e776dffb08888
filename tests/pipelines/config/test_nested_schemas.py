"""Objects in schema files: each attribute in one is asked for by its whole name, and is found in its object again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hpd_core import Attribute, CategorySchema, Unit
from hpd_core.plain_data import MAX_DEPTH, dotted, flattened
from hpd_core.text.template import render_attribute, render_key
from pipelines.config.importing.imported import one_line
from pipelines.config.lint import lint
from pipelines.config.nested_entries import MAX_LEAVES
from pipelines.config.schema_file import parse_schemas
from pipelines.errors import UsageError
from tests.examples import examples
from tests.pipelines.config.imports import done, write
from tests.pipelines.config.test_schema_forms import load
from tests.tables import table

BAGS = """
attributes:
  size:
    type: object
    description: of the bag
    attributes:
    - {name: width, type: number, unit: cm}
    - {name: lid, type: object, description: on top, attributes: [closure, {name: colour, description: outside}]}
  box: {type: object, attributes: [use: size, Kind]}
categories:
  Bags: [Brand, use: size, {use: size, name: pack, description: null, attributes: [width]}, use: box]
  Totes: {extends: Bags, attributes: [{name: size, type: object, attributes: [handle]}, Brand]}
"""
WIDTH = Attribute(
    name="size.width", type="number", unit=Unit(want="cm"), description="of the bag", path=("size", "width")
)


def test_what_is_in_an_object_is_asked_for_by_its_path(tmp_path: Path) -> None:
    schemas = load(tmp_path, BAGS)
    size = ["size.width", "size.lid.closure", "size.lid.colour"]
    assert [each.name for each in schemas["Bags"].attributes] == [
        "Brand",
        *size,
        "pack.width",
        *(f"box.{name}" for name in size),
        "box.Kind",
    ]
    found = {each.name: each for each in schemas["Bags"].attributes}
    assert found["size.width"] == WIDTH
    assert render_key(WIDTH) == '"size.width":'
    assert render_attribute(found["size.lid.colour"]) == "- size.lid.colour: of the bag; on top; outside"
    assert found["pack.width"].description is None
    assert found["box.size.lid.closure"].path == ("box", "size", "lid", "closure")
    totes = [each.name for each in schemas["Totes"].attributes]
    assert totes[:3] == ["Brand", "size.handle", "pack.width"], "its own object is in the place of the other"
    assert [remark.message for remark in lint(schemas) if "object" in remark.message] == []


def category(*entries: str) -> str:
    return "categories:\n  A:\n" + "".join(f"  - {entry}\n" for entry in entries)


def deep(levels: int) -> str:
    return "{name: a, type: object, attributes: [" * levels + "x" + "]}" * levels


def shared(*entries: str, used: str = "x") -> str:
    return "attributes:\n" + "".join(f"  {entry}\n" for entry in entries) + f"categories:\n  A: [{used}]\n"


def doubling(levels: int) -> str:
    lines = [
        f"  l{n}: {{type: object, attributes: [use: l{n - 1}, {{use: l{n - 1}, name: b}}]}}" for n in range(1, levels)
    ]
    return "\n".join(["attributes:", "  l0: {name: x}", *lines, "categories:", "  A: [x]"])


@table(
    ("text", "message"),
    [
        (category("a.b", "{name: a, type: object, attributes: [b]}"), "twice, of line 3 and of line 4; take one away"),
        (category("{name: a, type: object, attributes: [b, b]}"), "attribute 'a': attribute 'b' is listed twice in it"),
        (category("{name: a, type: object}"), "line 3: category 'A', attribute 'a': an object needs 'attributes'"),
        (
            category("{name: a, type: string, attributes: [b]}"),
            "what has attributes is of the type object, not 'string'",
        ),
        (category("{type: object, attributes: [b]}"), "an object needs a name"),
        (category("{name: a, path: [a, b]}"), "unknown key 'path'"),
        (
            category("{name: a, type: object, attributes: [{name: b, typ: number}]}"),
            "line 3: category 'A', attribute 'a', attribute 'b': unknown key 'typ'; did you mean 'type'?",
        ),
        (category("{name: a, type: object, multiple: true, attributes: [b]}"), "Engine.extract_json (docs/json.md)"),
        (category("{name: a, type: array, items: {type: object}}"), "a list of objects cannot be asked for"),
        (category(deep(MAX_DEPTH + 1)), f"more than {MAX_DEPTH} objects within each other: name what is in the "),
        (category("&a {name: a, type: object, attributes: [*a]}"), "schemas.yaml"),
        (
            shared("o: {type: object, attributes: [use: p]}", "p: {name: P}"),
            "line 2: library attribute 'o', attribute 'p': 'p' is not above this in the library",
        ),
        (doubling(12), f"more than {MAX_LEAVES:,} attributes in one object"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    assert message in str(caught.value)


names = st.text("abAB. é", min_size=1, max_size=3).filter(lambda text: text.strip() == text)
trees = st.recursive(
    st.integers(), lambda inner: st.dictionaries(names, inner, min_size=1, max_size=4), max_leaves=12
).filter(lambda tree: isinstance(tree, dict))


def listed(tree: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"name": name, "type": "object", "attributes": listed(node)}
        if isinstance(node, dict)
        else {"name": name, "max_value_tokens": abs(node) + 1, "description": name}
        for name, node in tree.items()
    ]


@settings(max_examples=examples(100))
@given(trees)
def test_every_tree_is_a_schema_and_its_values_are_the_tree(tree: dict[str, Any]) -> None:
    places = [".".join(place) for place, _ in flattened(tree)]
    document = {"categories": {"A": listed(tree)}}
    if len(set(places)) < len(places):
        with pytest.raises(UsageError, match="twice"):
            parse_schemas(document, "drawn")
        return
    schemas = parse_schemas(document, "drawn")
    assert [attribute.name for attribute in schemas["A"].attributes] == places
    assert schemas["A"].nested(dict(zip(places, (each for _, each in flattened(tree)), strict=True))) == tree
    assert CategorySchema.model_validate(schemas["A"].model_dump(mode="json")) == schemas["A"]


odd_names = st.text("aA. \n", max_size=3)
odd_trees = st.recursive(
    st.integers(), lambda inner: st.dictionaries(odd_names, inner, min_size=1, max_size=4), max_leaves=12
).filter(lambda tree: isinstance(tree, dict) and any(name.strip() for place, _ in flattened(tree) for name in place))


@settings(max_examples=examples(25))
@example({"A": {"AA": 0, "": 0, "A": 0}})
@given(trees | odd_trees)
def test_every_json_schema_of_objects_is_read(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any]) -> None:
    def schema(node: Any) -> dict[str, Any]:
        return {"properties": {name: schema(each) for name, each in node.items()}} if isinstance(node, dict) else {}

    folder = tmp_path_factory.mktemp("drawn")
    read = done(folder, write(folder, "drawn.json", {"title": "A", **schema(tree)}))
    named = [place for place, _ in flattened(tree) if one_line(dotted(place))]
    assert len(read.schemas["A"].attributes) == len(named)
