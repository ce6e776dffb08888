"""Schemas whose texts are exclusive, by labels: who shares text with whom, and what the command writes of it."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from hpd_core import Attribute, CategorySchema
from pipelines.quality.gold import GoldProduct, GoldValue
from pipelines.schema import app
from pipelines.schemas.lint import lint
from pipelines.schemas.schema_file import load_schemas, parse_schemas
from pipelines.schemas.shared_text import exclusive_schemas, shared_text
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


def test_single_texts_become_exclusive() -> None:
    data = {
        "category": "Shirts",
        "attributes": [
            {"name": "Type"},
            {"name": "Gender"},
            {"name": "Size", "type": "number"},
            {"name": "x", "multiple": True},
        ],
    }
    schemas = {"Shirts": CategorySchema.model_validate(data)}
    found = exclusive_schemas(
        schemas, {("Shirts", "Type"): frozenset({"Gender", "x"}), ("Hats", "Size"): frozenset({"x"})}
    )
    assert found["Shirts"].rivals == {}
    kind, gender, *others = found["Shirts"].attributes
    assert (kind.verbatim, kind.shares_text_with) == ("exclusive", ("Gender",))
    assert (gender.verbatim, gender.shares_text_with) == ("exclusive", ())
    assert others == list(schemas["Shirts"].attributes[2:])


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


def test_what_uses_an_exclusive_attribute_can_take_its_sharing_away() -> None:
    library = {"brand": {"verbatim": "exclusive", "shares_text_with": ["line"]}}
    used = {"use": "brand", "verbatim": True, "shares_text_with": None}
    schemas = parse_schemas({"attributes": library, "categories": {"Shirts": [used]}}, "schemas.yaml")
    assert schemas["Shirts"].attributes == (Attribute(name="brand", verbatim=True),)
