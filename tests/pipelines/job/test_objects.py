"""A job whose schema has objects: asked, stored, labelled, scored, taught and exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from hpd_core import EngineConfig
from hpd_core.plain_data import nested
from hpd_core.training.examples import ExampleBuilder
from pipelines.config.finetuning import DatasetConfig, LabelPolicy
from pipelines.config.schema_file import load_schemas
from pipelines.quality.evaluation import evaluate_run
from pipelines.quality.scoring import Counts
from pipelines.store.folders import Folder
from pipelines.store.no_run import read_asked_schemas
from pipelines.training.labelled_products import load_products
from tests.pipelines.conftest import Workplace, products, read_table
from tests.pipelines.exporting.made_runs import exported
from tests.tiny_model import build_tokenizer

SIZE = {
    "name": "size",
    "type": "object",
    "attributes": [
        {"name": "width", "type": "number", "unit": "cm"},
        {
            "name": "lid",
            "type": "object",
            "attributes": [{"name": "colour", "type": "enum", "values": ["red", "blue"]}],
        },
    ],
}
DOCUMENT = {"categories": {"Shoes": [{"name": "Brand"}, SIZE], "Coffee": [SIZE]}}
PLACES = {
    "Shoes": {"Brand": ("Brand",), "size.width": ("size", "width"), "size.lid.colour": ("size", "lid", "colour")},
    "Coffee": {"size.width": ("size", "width"), "size.lid.colour": ("size", "lid", "colour")},
}


def labels(row: dict[str, Any]) -> list[str] | None:
    """What a run answers, as a label that agrees with it."""
    return [row["value_raw"]] if row["status"] == "value" else None


def test_a_job_with_objects(workplace: Workplace, tmp_path: Path) -> None:
    schemas = tmp_path / "schemas.yaml"
    schemas.write_text(yaml.safe_dump(DOCUMENT, sort_keys=False), encoding="utf-8")
    workplace.write_jsonl("c.jsonl", products(6))
    outcome = workplace.run()
    run = workplace.folder / "out"
    assert (outcome.discrepancy, outcome.totals.products) == (None, 6)
    assert read_asked_schemas(Folder(str(run))) == load_schemas(str(schemas))

    answers = read_table(run, "attributes")
    by_product: dict[str, dict[str, dict[str, Any]]] = {}
    for row in answers:
        by_product.setdefault(row["product_id"], {})[row["attribute"]] = row
    for row in read_table(run, "products"):
        assert [name for name, _ in row["values"]] == list(PLACES[row["category"]])
        assert list(by_product[row["product_id"]]) == list(PLACES[row["category"]])
    assert any(row["status"] == "value" for row in answers if row["attribute"] == "size.lid.colour")
    assert all(row["unit"] in ("cm", None) for row in answers if row["attribute"] == "size.width")

    gold = tmp_path / "gold.jsonl"
    with gold.open("w", encoding="utf-8") as file:
        for product_id, found in by_product.items():
            category = next(iter(found.values()))["category"]
            values = nested((PLACES[category][name], labels(row)) for name, row in found.items())
            line = {"product_id": product_id, "category": category, "values": values, "input": {"title": "Velor red"}}
            file.write(json.dumps(line) + "\n")
    num_values = sum(row["status"] == "value" for row in answers)
    counts = evaluate_run(str(run), str(gold)).exact.counts
    assert (counts.vc, counts.num_labels) == (num_values, len(answers))
    assert counts == Counts(nn=counts.nn, nv=counts.nv, vc=num_values)

    builder = ExampleBuilder(build_tokenizer(), EngineConfig(), "tree", None)
    taught, report = load_products([DatasetConfig(gold=str(gold), schemas=str(schemas))], LabelPolicy(), builder)
    assert (len(taught), report.products) == (6, 6)
    assert {name for product in taught for name in product.answers} == {*PLACES["Shoes"]}

    exported(str(run), "--to", "jsonl", "--raw", "--all", "--out", str(tmp_path / "wide.jsonl"))
    for text in (tmp_path / "wide.jsonl").read_text(encoding="utf-8").splitlines():
        product = json.loads(text)
        row = by_product[product["product_id"]]["size.lid.colour"]
        assert product["size"]["lid"] == {"colour": row["value_raw"] if row["status"] == "value" else None}
