"""From gold files to labelled products; nothing here needs a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpd_core import EngineConfig
from hpd_core.training.examples import ExampleBuilder
from pipelines.config.finetuning import DatasetConfig, LabelPolicy
from pipelines.errors import UsageError
from pipelines.training.labelled_products import DataReport, LabelledProduct, is_held_out, load_products
from tests.tiny_model import build_tokenizer

TOKENIZER = build_tokenizer()
NO_NUMBER = "not a number, not in the attribute's unit, or to be read in two ways (write 1,500 as 1500 or 1.5)"
SCHEMAS = {
    "categories": {
        "Shoes": ["Brand", "Colour", {"name": "Size", "type": "number"}, {"name": "Vegan", "type": "boolean"}],
        "Coffee": [{"name": "Roast", "type": "enum", "values": ["dark", "light"]}, "Brand"],
    }
}


def gold_line(number: int, category: str, text: str, values: dict[str, Any]) -> dict[str, Any]:
    return {"product_id": str(number), "category": category, "input": {"title": text}, "values": values}


class Files:
    """Gold and schema files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "schemas.yaml").write_text(yaml.safe_dump(SCHEMAS, sort_keys=False))

    def dataset(self, lines: list[dict[str, Any]], name: str = "gold", **options: Any) -> DatasetConfig:
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return DatasetConfig(gold=str(path), schemas=str(self.folder / "schemas.yaml"), **options)

    def load(
        self, lines: list[dict[str, Any]], k_max: int = 30, **labels: Any
    ) -> tuple[list[LabelledProduct], DataReport]:
        builder = ExampleBuilder(TOKENIZER, EngineConfig(max_value_tokens=k_max), "tree", None)
        return load_products([self.dataset(lines)], LabelPolicy(**labels), builder)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_of_a_review_only_what_people_looked_at_is_taught_and_corrections_more_often(files: Files) -> None:
    reviewed = gold_line(1, "Shoes", "Velor red 42", {"Brand": ["Velor"], "Size": ["42"]})
    lines = [reviewed | {"review": {"corrected": ["Size"]}}, gold_line(2, "Shoes", "Acme", {"Brand": ["Acme"]})]
    products, report = files.load(lines, corrections_weight=3, unlabelled="absent")
    first, other, *again = products
    assert (first.answers, first.assumed_absent) == ({"Brand": ["Velor"], "Size": ["42"]}, [])
    assert other.assumed_absent == ["Colour", "Size", "Vegan"]
    assert [(each.gold.row, each.answers, each.assumed_absent) for each in again] == [(0, {"Size": ["42"]}, ())] * 2
    assert (report.products, report.corrections) == (2, 1)
    assert any("corrected a model, each taught 3 times in an epoch: 1" in line for line in report.lines())
    assert len(files.load(lines, corrections_weight=1)[0]) == 2


def test_gold_spelled_as_a_synonym_is_taught_as_the_members_label(tmp_path: Path) -> None:
    values = [{"label": "Black", "synonyms": ["noir", "jet"]}, "White"]
    colour = {"name": "Colour", "type": "enum", "values": values}
    document = {"categories": {"Bags": [colour, {**colour, "name": "Colours", "multiple": True}]}}
    files = Files(tmp_path)
    (tmp_path / "schemas.yaml").write_text(yaml.safe_dump(document))
    lines = [
        gold_line(1, "Bags", "a noir bag", {"Colour": ["NOIR"], "Colours": [["noir"], ["Black", "jet"], ["white"]]}),
        gold_line(2, "Bags", "a white bag", {"Colour": ["ebony", "white", "noir"], "Colours": [["ebony"]]}),
        gold_line(3, "Bags", "a jet bag", {"Colours": None}),
    ]
    (first, second, third), report = files.load(lines)
    assert first.answers == {"Colour": ["Black"], "Colours": ["Black", "White"]}
    assert second.answers == {"Colour": ["White"]}
    assert report.not_taught == {"not one of the schema's values": 1}
    assert (third.answers, third.assumed_absent) == ({"Colours": None}, []), "jet is Black, a known colour"


@pytest.mark.parametrize(
    ("policy", "assumed", "open_"), [("absent_unless_known", [], 1), ("absent", ["Colour"], 0), ("untaught", [], 1)]
)
def test_unlabelled_attributes(files: Files, policy: str, assumed: list[str], open_: int) -> None:
    """'red' is a known colour and stands in the second product's text, where nobody labelled a colour."""
    lines = [
        gold_line(1, "Shoes", "Velor red", {"Brand": ["Velor"], "Colour": ["RED"], "Size": None, "Vegan": None}),
        gold_line(2, "Shoes", "Red Velor", {"Brand": ["Velor"], "Size": None, "Vegan": None}),
    ]
    products, report = files.load(lines, unlabelled=policy)
    assert products[1].assumed_absent == assumed
    assert report.unlabelled_not_taught == open_


@pytest.mark.parametrize("policy", ["absent_unless_known", "absent", "untaught"])
def test_a_label_that_was_taken_out_as_doubtful_is_not_taught_as_absent(files: Files, policy: str) -> None:
    doubtful = {"Brand": {"label": ["Velor"], "answer": ["Velor One"], "sureness": 0.9}, "Sole": {}}
    labels = {"Colour": ["red"], "Size": None, "Vegan": None}
    lines = [gold_line(1, "Shoes", "Velor One red", labels) | {"doubtful": doubtful}]
    (product,), report = files.load(lines, unlabelled=policy)
    assert (product.answers, product.assumed_absent) == ({"Colour": ["red"], "Size": None, "Vegan": None}, [])
    assert report.unlabelled_not_taught == 1


def test_labels_that_contradict_each_other_are_not_taught_as_absent(tmp_path: Path) -> None:
    files = Files(tmp_path)
    document = {"categories": {"Bags": [{"name": "Colour", "aliases": ["Color"]}, "Brand"]}}
    (tmp_path / "schemas.yaml").write_text(yaml.safe_dump(document))
    line = gold_line(1, "Bags", "a bag", {"Colour": ["red"], "Color": ["blue"], "Brand": ["Velor"]})
    (product,), _ = files.load([line], unlabelled="absent")
    assert (product.answers, product.assumed_absent) == ({"Brand": ["Velor"]}, [])


@pytest.mark.parametrize(
    ("text", "taught"),
    [
        ("1e999", None),
        ("true", None),
        ("42 cm", None),
        ("1,500", None),
        ("1e3", "1000"),
        ("1 1/2", "1.5"),
        ("42", "42"),
        ("1.50", "1.50"),
        ("2.125", "2.125"),
        ("1.500", "1.500"),
        ("-0.5", "-0.5"),
    ],
)
def test_numbers_that_can_be_taught(files: Files, text: str, taught: str | None) -> None:
    (product,), report = files.load([gold_line(1, "Shoes", "Velor", {"Size": [text]})])
    assert product.answers == ({"Size": [taught]} if taught else {})
    assert report.not_taught == ({} if taught else {NO_NUMBER: 1})


def test_what_validation_is_labelled_with_decides_nothing(files: Files) -> None:
    """A value known from one side of the split only leaves the other side's attributes as they are."""
    lines = [gold_line(1, "Coffee", "dark beans", {"Roast": ["dark"], "Brand": None})]
    lines += [gold_line(n, "Coffee", f"dark beans {n}", {"Brand": None}) for n in range(2, 12)]
    builder = ExampleBuilder(TOKENIZER, EngineConfig(), "tree", None)
    for share in (0.1, 0.5, 0.9):
        products, _ = load_products([files.dataset(lines)], LabelPolicy(), builder, share)
        held_out = is_held_out(products[0].record, share)
        for product in products[1:]:
            assert product.assumed_absent == (["Roast"] if held_out else []), share


def test_what_is_left_out_is_counted_and_named(files: Files) -> None:
    lines = [
        gold_line(1, "Shoes", "Velor", {"Brand": ["a very long value that no gap can hold"], "Size": ["about 42"]}),
        gold_line(2, "Shoes", "Velor", {"Vegan": ["of course"], "Colour": [["red"], ["blue"]]}),
        gold_line(3, "Coffee", "beans", {"Roast": ["medium"]}),
        gold_line(4, "Coffee", " ", {"Roast": ["dark"]}),
    ]
    products, report = files.load(lines, k_max=12)
    assert [product.answers for product in products] == [{}, {}, {}]
    assert report.not_taught == {
        "longer than K_max": 1,
        NO_NUMBER: 1,
        "not true or false": 1,
        "several values where the schema has one": 1,
        "not one of the schema's values": 1,
        "the record cannot be used": 1,
    }
    text = "\n".join(report.lines())
    assert "longer than K_max: 1 (e.g. gold.jsonl, line 1, Brand: a very long value" in text
    assert "4: every field is empty" in text


def test_gold_with_a_catalog_of_its_own(files: Files, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog" / "part-0.jsonl"
    catalog.parent.mkdir()
    (catalog.parent / "part-1.csv").write_text("sku\n3\n")
    rows = [{"sku": "2", "kind": "Coffee", "name": "dark beans"}, {"sku": "1", "kind": "Coffee", "name": "Velor"}]
    catalog.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines: list[dict[str, Any]] = [
        {"product_id": str(n), "category": "Coffee", "values": {"Brand": None}} for n in (1, 2, 3)
    ]
    source = {"path": str(catalog.parent), "id": "sku", "category": "kind", "fields": {"title": "name"}}
    dataset = files.dataset(lines, input=source)
    builder = ExampleBuilder(TOKENIZER, EngineConfig(), "tree", None)
    products, report = load_products([dataset], LabelPolicy(), builder)
    assert [(p.record.id, dict(p.record.fields)) for p in products] == [
        ("2", {"title": "dark beans"}),
        ("1", {"title": "Velor"}),
    ]
    assert report.not_taught == {"the catalog has no such product": 1}
    assert f"not read: 1 CSV ({catalog.parent}/part-1.csv)" in list(report.lines())[-1]
    rows[1]["name"] = " "
    catalog.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, report = load_products([dataset], LabelPolicy(), builder)
    assert report.not_taught == {"the catalog has no such product": 1, "the record cannot be used": 1}
    assert report.examples["the record cannot be used"] == ["1: every text column is empty: name"]
    catalog.write_text("".join(json.dumps(row) + "\n" for row in [*rows, rows[0], rows[0] | {"name": "mild beans"}]))
    with pytest.raises(UsageError, match="several rows of the catalog have its id, and other texts: 1 "):
        load_products([dataset], LabelPolicy(), builder)
    rows[0]["kind"] = "Shoes"
    catalog.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UsageError, match="do the two files belong together"):
        load_products([dataset], LabelPolicy(), builder)
