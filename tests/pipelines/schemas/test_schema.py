"""Schemas made from gold files, and what lint and diff say about schema files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from hpd_core import Attribute, CategorySchema
from pipelines.quality.gold import GoldProduct, GoldValue
from pipelines.schema import app
from pipelines.schemas.diff import diff
from pipelines.schemas.from_gold import schemas_from_gold
from pipelines.schemas.lint import lint
from pipelines.schemas.schema_file import dump_schemas, load_schemas
from tests.pipelines.commands import ROOT
from tests.tables import table

ABSENT, ONE, TWO = GoldValue(()), GoldValue((("x",),)), GoldValue((("x",), ("y",)))


def product(category: str, **values: GoldValue) -> GoldProduct:
    return GoldProduct(row=0, product_id=None, category=category, values=values)


def schema(category: str, *attributes: Attribute | str) -> dict[str, CategorySchema]:
    parsed = tuple(Attribute(name=each) if isinstance(each, str) else each for each in attributes)
    return {category: CategorySchema(category=category, attributes=parsed)}


def names(schemas: dict[str, CategorySchema]) -> dict[str, list[str]]:
    return {category: [each.name for each in schema.attributes] for category, schema in schemas.items()}


def test_attributes_that_never_have_a_value_can_be_left_out() -> None:
    products = [product("Tea", Brand=ONE, Form=ABSENT), product("Coffee", Roast=ABSENT)]
    assert names(schemas_from_gold(products, require_values=True)) == {"Tea": ["Brand"]}


def test_an_attribute_with_several_values_is_multiple() -> None:
    (tea,) = schemas_from_gold([product("Tea", Origin=TWO, Brand=ONE), product("Tea", Origin=ONE)]).values()
    assert {each.name: each.multiple for each in tea.attributes} == {"Origin": True, "Brand": False}


text = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=8)
attributes = st.builds(
    Attribute,
    name=text | st.sampled_from(["yes", "12", "null", "1.5", "a: b", "#x", "- y"]),
    description=st.none() | text,
    type=st.sampled_from(["string", "number", "boolean"]),
    unit=st.none() | text,
    multiple=st.booleans(),
    max_value_tokens=st.none() | st.integers(1, 99),
)
labels = st.lists(text.filter(str.strip), min_size=1, unique=True).map(tuple)
enums = st.builds(Attribute, name=text, type=st.just("enum"), values=labels)
category_schemas = st.dictionaries(
    text, st.lists(attributes | enums, min_size=1, max_size=4, unique_by=lambda each: each.name), min_size=1, max_size=3
).map(
    lambda lists: {
        category: CategorySchema(category=category, attributes=tuple(each)) for category, each in lists.items()
    }
)


@given(schemas=category_schemas)
def test_a_written_schema_is_loaded_as_it_was(
    schemas: dict[str, CategorySchema], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("schema") / "schemas.yaml"
    path.write_text(dump_schemas(schemas), encoding="utf-8")
    assert load_schemas(str(path)) == schemas
    assert not list(diff(schemas, load_schemas(str(path))))


@table(
    ("schemas", "message"),
    [
        (schema("A", "Brand", "brand "), "almost the same name as attribute 'Brand'"),
        (schema("A", "Brand") | schema("a", "Brand"), "almost the same name as category 'A'"),
        (schema("A", *(f"x{index}" for index in range(65))), "65 attributes, more than 64"),
        (
            schema("A", "x") | schema("B", Attribute(name="x", type="number")),
            "of different types: string in A, number in B",
        ),
    ],
)
def test_lint_warns(schemas: dict[str, CategorySchema], message: str) -> None:
    assert any(message in str(remark) for remark in lint(schemas)), [str(remark) for remark in lint(schemas)]


def test_diff_names_every_difference() -> None:
    roast = Attribute(name="Roast", type="enum", values=("light", "dark"))
    old = schema("A", "Brand", "Size", "Form") | schema("Gone", "x")
    new = schema("A", "Form", "Brand", roast) | schema("New", "x", "y")
    assert [str(change) for change in diff(old, new)] == [
        "A > Size: removed",
        "A > Roast: added",
        "A: attributes are in another order, so prompts and answers may differ",
        "Gone: removed",
        "New: added, 2 attributes",
    ]
    changed = schema("A", Attribute(name="Roast", type="enum", values=("light",), max_value_tokens=3))
    assert [str(change) for change in diff(schema("A", roast), changed)] == [
        "A > Roast: values: light, dark -> light",
        "A > Roast: max_value_tokens: not set -> 3",
    ]


# The command


def command(*arguments: object) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)))


def write_gold(path: Path, *scores: dict[str, Any]) -> Path:
    lines = [{"input": "a title", "category": "Tea", "target_scores": each} for each in scores]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_import_lint_and_diff_from_the_command_line(tmp_path: Path) -> None:
    train = write_gold(tmp_path / "train.jsonl", {"Brand": {"A": 1}, "Form": {"n/a": 1}}, {"Form": {"bag": 1}})
    test = write_gold(tmp_path / "test.jsonl", {"Size": {"A": 1}})
    out, other = tmp_path / "schemas.yaml", tmp_path / "other.yaml"

    done = command("import", train, test, "--out", out)
    assert done.exit_code == 0, done.stderr
    assert "1 categories, 3 attributes, 3.00 a category on average, from 3 products" in done.stdout
    assert names(load_schemas(str(out))) == {"Tea": ["Form", "Brand", "Size"]}

    refused = command("import", train, "--out", out)
    assert refused.exit_code == 2
    assert "exists already; --force writes over it" in refused.stderr
    assert command("import", train, "--out", out, "--force").exit_code == 0
    assert command("import", test, "--out", other, "--require-values").exit_code == 0

    linted = command("lint", out)
    assert linted.exit_code == 0
    assert "2.00 a category on average; 0 warnings" in linted.stdout
    compared = command("diff", out, other)
    assert compared.exit_code == 0
    assert "Tea > Size: added" in compared.stdout
    assert "no difference" in command("diff", out, out).stdout


def test_usage_errors_exit_with_2(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("categories: {Tea: [{name: Brand, typ: string}]}")
    empty = write_gold(tmp_path / "empty.jsonl", {})
    for arguments, message in [
        (["lint", tmp_path / "nowhere.yaml"], "no such file"),
        (["lint", broken], "unknown key 'typ'; did you mean 'type'?"),
        (["diff", broken, broken], "unknown key"),
        (["import", tmp_path / "nowhere.jsonl", "--out", tmp_path / "o.yaml"], "no such gold file"),
        (["import", empty, "--out", tmp_path / "o.yaml"], "no product has a label"),
        (["import", empty], "--out"),
    ]:
        done = command(*arguments)
        assert done.exit_code == 2, arguments
        assert message in done.stderr


def test_the_script_runs_by_its_path(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "pipelines" / "schema.py"), "lint", str(tmp_path / "nowhere.yaml")],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert done.returncode == 2
    assert done.stderr.startswith("Error: no such file")
