"""A nightly run keeps what people said of the one before: by text, also under another model. On Ray: seconds a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.store.verdicts import AnswerKey
from tests.pipelines.conftest import SCHEMAS, Workplace, product, products, read_table
from tests.pipelines.reviewing.said import desk, say


def key(workplace: Workplace, row: int, attribute: str) -> AnswerKey:
    return AnswerKey(str(workplace.catalog / "a.jsonl"), row, attribute)


def answers(output: Path) -> dict[tuple[str, str], list[dict[str, Any]]]:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in read_table(output, "attributes"):
        found.setdefault((row["product_id"], row["attribute"]), []).append(row)
    return found


@pytest.fixture
def reviewed(workplace: Workplace) -> Workplace:
    """A run of six products in `first`, four answers of which were reviewed."""
    workplace.write_jsonl("a.jsonl", products(6))
    workplace.run(output=str(workplace.folder / "first"))
    at = desk(workplace.folder / "first")
    say(at, key(workplace, 0, "Brand"), "correct", "Velor")
    say(at, key(workplace, 0, "Sizes"), "correct", "size 0", "light")
    say(at, key(workplace, 1, "Weight"), "correct", "0.5 kg")
    say(at, key(workplace, 2, "Colour"), "absent")
    at.close()
    return workplace


def second(workplace: Workplace, **changes: Any) -> tuple[dict[tuple[str, str], list[dict[str, Any]]], dict[str, Any]]:
    output = workplace.folder / "second"
    workplace.run(**{"base": str(workplace.folder / "first"), "output": str(output), **changes})
    return answers(output), json.loads((output / "manifest.json").read_text())["changes"]


def test_a_changed_text_loses_it_and_the_others_keep_it_wherever_they_stand_now(reviewed: Workplace) -> None:
    rows = products(6)
    rows[0] = product(0, title="Another title")
    reviewed.write_jsonl("a.jsonl", list(reversed(rows)))
    found, changes = second(reviewed)
    assert {row["source"] for row in found["p0", "Brand"]} == {"model"}
    weight, colour = found["p1", "Weight"][0], found["p2", "Colour"][0]
    assert (weight["value_raw"], weight["value_norm"], weight["unit"]) == ("0.5 kg", "500", "g")
    assert (weight["source"], weight["decision"], weight["confidence"], weight["source_row"]) == (
        *("review", "accept", None),
        4,
    )
    assert weight["replaced"][0]["source"] == "model"
    assert (colour["status"], colour["value_raw"], colour["source"]) == ("absent", None, "review")
    assert changes["reviewed"] == 2
    product_row = next(row for row in read_table(reviewed.folder / "second", "products") if row["product_id"] == "p1")
    assert dict(product_row["values"])["Weight"] == "0.5 kg"


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": {"dtype": "float32", "device": "cpu", "max_value_tokens": 5}},
        pytest.param(
            {"engine": {"dtype": "float32", "device": "cpu", "max_value_tokens": 6, "layout": "stacked"}},
            marks=pytest.mark.full,
        ),
        pytest.param({"decoding": "ar"}, marks=pytest.mark.full),
    ],
    ids=["other settings", "stacked", "autoregressive"],
)
def test_whatever_decodes_now(reviewed: Workplace, changes: dict[str, Any]) -> None:
    found, counted = second(reviewed, **changes)
    assert counted["obstacles"]
    assert counted["reviewed"] == 4
    assert [row["value_raw"] for row in found["p0", "Sizes"]] == ["size 0", "light"]
    assert {row["source"] for row in found["p0", "Sizes"]} == {"review"}
    assert {row["source"] for row in found["p0", "Colour"]} == {"model"}
    assert {row["carried_from"] for row in found["p0", "Colour"]} == {None}


def test_an_edited_attribute_keeps_what_it_may_still_have_and_every_night_keeps_it_again(reviewed: Workplace) -> None:
    edited = json.loads(json.dumps(SCHEMAS))
    edited["categories"]["Coffee"][1]["unit"] = "kg"
    edited["categories"]["Shoes"][2] = {"name": "Sizes"}  # one value now: the list of two is none
    (reviewed.folder / "schemas.yaml").write_text(yaml.safe_dump(edited))
    found, changes = second(reviewed)
    assert changes["reviewed"] == 3
    assert found["p0", "Sizes"][0]["source"] == "model"
    assert found["p0", "Brand"][0]["value_raw"] == "Velor"
    weight = found["p1", "Weight"][0]
    assert (weight["value_raw"], weight["value_norm"], weight["unit"]) == ("0.5 kg", "0.5", "kg")
    third = reviewed.folder / "third"
    reviewed.run(base=str(reviewed.folder / "second"), output=str(third))
    assert answers(third)["p0", "Brand"][0]["carried_from"] == found["p0", "Brand"][0]["carried_from"]
    assert json.loads((third / "manifest.json").read_text())["changes"]["reviewed"] == 3
