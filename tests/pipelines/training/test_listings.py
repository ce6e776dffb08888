"""The listings that the shipped adapter learns from, and those that it never sees (adapters/recipe/listings)."""

from __future__ import annotations

import json
from pathlib import Path

from pipelines.config.schema_file import load_schemas
from pipelines.quality.gold import read_gold
from tests.pipelines.commands import ROOT

LISTINGS = ROOT / "adapters/recipe/listings"


def texts(part: Path) -> list[str]:
    return ["\n".join(json.loads(line)["input"].values()).casefold() for line in part.read_text().splitlines()]


def test_every_text_states_its_labels_and_none_is_in_both_parts() -> None:
    seen: dict[str, set[str]] = {}
    for name in ("train", "held_out"):
        file, schemas = LISTINGS / f"{name}.jsonl", load_schemas(str(LISTINGS / f"{name}.yaml"))
        products = read_gold(str(file), schemas)
        for product, text in zip(products, texts(file), strict=True):
            attributes = {each.name: each for each in schemas[product.category].attributes}
            assert product.values.keys() == attributes.keys()
            for label, value in product.values.items():
                forms = [form for forms in value.items for form in forms if attributes[label].is_text]
                assert [form for form in forms if form.casefold() not in text] == [], (product.product_id, label)
        seen[name] = {*schemas, *texts(file), *(product.product_id or "" for product in products)}
    assert not seen["train"] & seen["held_out"]
