"""Schemas whose texts are exclusive, by labels: who shares text with whom, and what the command writes of it."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from hpd_core import CategorySchema
from pipelines.quality.gold import GoldProduct, GoldValue
from pipelines.schema import app
from pipelines.schemas.lint import lint
from pipelines.schemas.schema_file import load_schemas
from pipelines.schemas.shared_text import shared_text
from tests.tables import table


def product(**values: list[str]) -> GoldProduct:
    return GoldProduct(
        0, None, "Shirts", {name: GoldValue((tuple(forms),) if forms else ()) for name, forms in values.items()}
    )


def test_attributes_share_text_if_one_product_in_ten_says_so() -> None:
    rarely = [product(Type=["Men's jersey"], Gender=["Men"], Brand=["Men's World"], Colour=[])]
    others = [product(Type=["jersey"], Gender=["women"], Brand=["Velor"]) for _ in range(9)]
    in_ten = shared_text([*rarely, *others])
    assert in_ten == {
        ("Shirts", "Type"): {"Gender"},
        ("Shirts", "Gender"): {"Brand", "Type"},
        ("Shirts", "Brand"): {"Gender"},
    }
    assert shared_text([*rarely, *others, *others[:1]]) == {}
    assert shared_text([product(Type=["red", "jersey"], Colour=["Red", "red"])]) == {
        ("Shirts", "Type"): {"Colour"},
        ("Shirts", "Colour"): {"Type"},
    }, "any accepted form"


@table("plain", [["--plain"], []])
def test_the_command_writes_what_can_be_read(tmp_path: Path, plain: list[str]) -> None:
    gold, out = tmp_path / "gold.jsonl", tmp_path / "schemas.yaml"
    values = {"Type": ["Men's jersey"], "Gender": ["Men"], "Brand": ["Velor 12"], "Weight": ["12"]}
    lines = [{"product_id": str(n), "category": "Shirts", "values": values} for n in range(3)]
    gold.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    result = CliRunner().invoke(app, ["import", str(gold), "--exclusive", "--out", str(out), *plain])
    assert result.exit_code == 0, result.output
    schema = load_schemas(str(out))["Shirts"]
    shares = {each.name: each.shares_text_with for each in schema.attributes if each.is_exclusive}
    expected = {"Brand": (), "Gender": ("Type",), "Type": ("Gender",)}
    assert shares == (expected | {"Weight": ("Brand",), "Brand": ("Weight",)} if plain else expected)
    assert not [str(remark) for remark in lint({"Shirts": schema}) if "shares" in str(remark)]


def test_a_name_that_is_nowhere_is_told() -> None:
    attributes = [{"name": "Type", "verbatim": "exclusive", "shares_text_with": ["gender"]}]
    attributes += [{"name": "Gender", "verbatim": "exclusive"}]
    schemas = {"Shirts": CategorySchema.model_validate({"category": "Shirts", "attributes": attributes})}
    assert [str(remark) for remark in lint(schemas)] == [
        "Shirts > Type: shares its text with 'gender', and no category has an exclusive attribute of that name; did "
        "you mean 'Gender' (differs in capitals)?"
    ]
