"""Schemas made from gold files, and what lint and diff say about schema files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from hpd_core import Attribute, CategorySchema
from pipelines.config.lint import lint
from pipelines.config.schema_file import load_schemas
from pipelines.profiling.from_gold import schemas_from_gold
from pipelines.quality.gold import GoldProduct, GoldValue
from pipelines.schema import app
from tests.tables import table

ABSENT, ONE, TWO = GoldValue(()), GoldValue((("x",),)), GoldValue((("x",), ("y",)))


def product(category: str, **values: GoldValue) -> GoldProduct:
    return GoldProduct(row=0, product_id=None, category=category, values=values)


def schema(category: str, *attributes: Attribute | str) -> dict[str, CategorySchema]:
    parsed = tuple(Attribute(name=each) if isinstance(each, str) else each for each in attributes)
    return {category: CategorySchema(category=category, attributes=parsed)}


def names(schemas: dict[str, CategorySchema]) -> dict[str, list[str]]:
    return {category: [each.name for each in schema.attributes] for category, schema in schemas.items()}


def test_an_attribute_with_several_values_is_multiple() -> None:
    (tea,) = schemas_from_gold([product("Tea", Origin=TWO, Brand=ONE), product("Tea", Origin=ONE)]).values()
    assert {each.name: each.multiple for each in tea.attributes} == {"Origin": True, "Brand": False}


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
    assert "1 categories, 3 attributes, 3.00 a category on average, from 3 labelled products" in done.stdout
    assert names(load_schemas(str(out))) == {"Tea": ["Form", "Brand", "Size"]}

    refused = command("import", train, "--out", out)
    assert refused.exit_code == 2
    assert "exists already; --force writes over it" in refused.stderr
    assert command("import", train, "--out", out, "--force").exit_code == 0
    assert command("import", test, "--out", other).exit_code == 0
    (tmp_path / "link.yaml").symlink_to(other)
    assert "is a link" in command("import", test, "--out", tmp_path / "link.yaml", "--force").stderr

    linted = command("lint", out)
    assert linted.exit_code == 0
    assert "2.00 a category on average; 0 warnings" in linted.stdout
    compared = command("diff", out, other)
    assert compared.exit_code == 0
    assert "Tea > Size: added" in compared.stdout
    assert "no difference" in command("diff", out, out).stdout
