"""Corrections over a run: whoever reads it, what is written into its tables, and the way back."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

from hpd_core import Attribute, CategorySchema
from pipelines import export
from pipelines.review import app
from pipelines.reviewing.normalised_run import normalise_run
from pipelines.reviewing.reviewed_run import ReviewedRun, write_reviews
from pipelines.store.folders import Folder
from pipelines.store.layer import Layer
from pipelines.store.no_run import read_schemas
from tests.pipelines.conftest import read_table
from tests.pipelines.reporting.made_runs import Answer
from tests.pipelines.reviewing.made_runs import coffee, key_of, reviewable_run
from tests.pipelines.reviewing.said import desk, say

Row = dict[str, Any]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return reviewable_run(tmp_path, [[coffee(0), coffee(1, Roast=Answer("m", 0.3, "invalid"))], [coffee(2)]])


@pytest.fixture
def reviewed(run: Path) -> Path:
    at = desk(run)
    say(at, key_of(run, 0, "Brand"), "correct", "Velor & Co")
    say(at, key_of(run, 0, "Notes"), "correct", "nougat", "slowly", "almond")
    say(at, key_of(run, 1, "Roast"), "correct", "FRENCH")
    say(at, key_of(run, 1, "Notes"), "absent")
    say(at, key_of(run, 2, "Weight"), "correct", "0.25 kg")
    say(at, key_of(run, 2, "Brand"), "accept")
    at.close()
    return run


def write(run: Path) -> ReviewedRun:
    return write_reviews(str(run), Console(quiet=True))


def layered(run: Path) -> list[Row]:
    layer = Layer.open(Folder(str(run)), read_schemas(Folder(str(run))))
    parts = sorted((run / "attributes").glob("*.parquet"))
    return [row for part in parts for row in layer.apply(pq.read_table(part)).to_pylist()]


def rows(found: list[Row], row: int, attribute: str) -> list[Row]:
    return [each for each in found if (each["source_row"], each["attribute"]) == (row, attribute)]


def test_a_persons_answer_stands_where_the_models_stood(reviewed: Path) -> None:
    before, found = read_table(reviewed, "attributes"), layered(reviewed)
    (brand,) = rows(found, 0, "Brand")
    assert (brand["value_raw"], brand["value_norm"], brand["norm_status"]) == ("Velor & Co", "Velor & Co", "ok")
    assert (brand["source"], brand["decision"], brand["confidence"], brand["num_tokens"]) == (
        "review",
        "accept",
        None,
        0,
    )
    assert [brand[name] for name in ("logprob_mean", "probability", "margin", "choice")] == [None] * 4
    assert (brand["replaced"][0]["value"], brand["replaced"][0]["source"]) == ("Velor", "model")
    assert brand["evidence"] == [], "it stands nowhere in the text"
    notes = rows(found, 0, "Notes")
    assert [(each["value_index"], each["value_raw"]) for each in notes] == [(0, "nougat"), (1, "slowly"), (2, "almond")]
    assert [[place["field"] for place in each["evidence"]] for each in notes] == [["title"], ["description"], ["title"]]
    assert [each["replaced"] for each in notes][1:] == [None, None]
    assert notes[0]["replaced"][0]["value"] == "nougat; almond"
    (roast,) = rows(found, 1, "Roast")
    assert (roast["value_raw"], roast["status"], roast["replaced"][0]["status"]) == ("dark", "value", "invalid")
    (absent,) = rows(found, 1, "Notes")
    assert (absent["status"], absent["value_raw"], absent["evidence"]) == ("absent", None, None)
    (weight,) = rows(found, 2, "Weight")
    assert (weight["value_raw"], weight["value_num"], weight["unit"]) == ("0.25 kg", 250.0, "g")
    (accepted,) = rows(found, 2, "Brand")
    assert (accepted["value_raw"], accepted["source"], accepted["num_tokens"]) == ("Velor", "review", 4)
    touched = {(each["source_row"], each["attribute"]) for each in found if each["source"] == "review"}
    assert [each for each in found if (each["source_row"], each["attribute"]) not in touched] == [
        each for each in before if (each["source_row"], each["attribute"]) not in touched
    ]


def test_written_the_files_say_what_the_layer_says_and_products_too(reviewed: Path) -> None:
    expected = layered(reviewed)
    found = write(reviewed)
    assert (found.accepted, found.corrected, found.absent, found.num_rewritten) == (1, 4, 1, 2)
    assert read_table(reviewed, "attributes") == expected == layered(reviewed)
    query = (
        f"select num_value, num_absent, num_invalid, values from '{reviewed}/products/*.parquet' where source_row = 1"
    )
    ((num_value, num_absent, num_invalid, values),) = duckdb.sql(query).fetchall()
    assert (num_value, num_absent, num_invalid) == (3, 1, 0)
    assert values == {"Brand": "Velor", "Roast": "dark", "Weight": "500", "Notes": None}
    assert json.loads((reviewed / "manifest.json").read_text())["reviews"]["corrected"] == 4
    again = write(reviewed)
    assert again.num_rewritten == 0
    assert read_table(reviewed, "attributes") == expected


def test_what_is_taken_back_after_it_was_written_is_the_models_again(run: Path) -> None:
    models = read_table(run, "attributes"), read_table(run, "products")
    at = desk(run)
    say(at, key_of(run, 0, "Notes"), "absent")
    write(run)
    at.undo("undo-this-one", "Ada")
    assert layered(run) == models[0], "at once, for who reads by the layer"
    assert write(run).taken_back == 1
    assert read_table(run, "attributes") == models[0]
    assert dict(read_table(run, "products")[0]["values"])["Notes"] == "nougat; almond"
    say(at, key_of(run, 0, "Notes"), "correct", "plum")
    at.close()
    write(run)
    (notes,) = rows(read_table(run, "attributes"), 0, "Notes")
    assert (notes["value_raw"], [each["value"] for each in notes["replaced"]]) == ("plum", ["nougat; almond"])


def test_killed_at_any_write_doing_it_again_ends_the_same(
    reviewed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, write_object, num_kills = layered(reviewed), Folder.write, 0
    for number in range(100):
        left = [number]

        def killed(folder: Folder, name: str, data: bytes, left: list[int] = left) -> None:
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            write_object(folder, name, data)

        monkeypatch.setattr(Folder, "write", killed)
        try:
            write(reviewed)
            break
        except KeyboardInterrupt:
            num_kills += 1
        finally:
            monkeypatch.setattr(Folder, "write", write_object)
        assert layered(reviewed) == expected, "whatever is there in between, who reads by the layer sees the same"
    assert num_kills >= 3
    write(reviewed)
    assert read_table(reviewed, "attributes") == expected
    for path in (reviewed / "_shards").glob("*.json"):
        for name, entry in json.loads(path.read_text())["tables"].items():
            assert "coming" not in entry, name
            assert entry["sha256"] == hashlib.sha256((reviewed / entry["public"]).read_bytes()).hexdigest()


def test_normalised_anew_a_persons_bare_number_stays_in_the_unit_that_they_saw(reviewed: Path) -> None:
    at = desk(reviewed)
    say(at, key_of(reviewed, 1, "Weight"), "correct", "300")
    at.close()
    write(reviewed)
    before = read_table(reviewed, "attributes")
    schemas = read_schemas(Folder(str(reviewed))) or {}
    normalise_run(str(reviewed), schemas, Console(quiet=True))
    (weight,) = rows(read_table(reviewed, "attributes"), 2, "Weight")
    assert (weight["value_norm"], weight["unit"]) == ("250", "g")
    assert rows(before, 2, "Weight") == [weight]
    kilograms = {"name": "Weight", "type": "number", "unit": "kg"}
    coffee_in_kg = schemas["Coffee"].model_validate(
        {**schemas["Coffee"].model_dump(), "attributes": [*schemas["Coffee"].attributes[:2], kilograms]}
    )
    for _ in range(2):
        normalise_run(str(reviewed), {"Coffee": coffee_in_kg}, Console(quiet=True))
        found = {row: rows(read_table(reviewed, "attributes"), row, "Weight")[0] for row in (1, 2)}
        assert [(each["value_norm"], each["unit"]) for each in found.values()] == [("0.3", "kg"), ("0.25", "kg")]


def exported(run: Path) -> dict[str, dict[str, str]]:
    out = run.parent / "wide.csv"
    arguments = [str(run), "--to", "csv", "--out", str(out), "--force", "--min-logprob", "-0.0001"]
    result = CliRunner().invoke(export.app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found = duckdb.sql(f"select * from read_csv('{out}', all_varchar=true)").df().to_dict("records")
    return {row["product_id"]: row for row in found}


def test_an_export_takes_what_people_said_whatever_else_it_leaves_out(reviewed: Path) -> None:
    """The model's own answers are all below the threshold."""
    for _ in range(2):
        found = exported(reviewed)
        assert found["c0"]["Brand"] == "Velor & Co"
        assert found["c0"]["Notes"] == "nougat; slowly; almond"
        assert found["c1"]["Roast"] == "dark"
        assert found["c2"]["Weight"] == "250"
        assert found["c2"]["Brand"] == "Velor"
        assert not isinstance(found["c1"]["Brand"], str), "the model's"
        write(reviewed)


def review(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    return result.exit_code, result.output


def test_the_gold_file_holds_what_was_found_right_with_the_texts(reviewed: Path) -> None:
    path = reviewed.parent / "gold.jsonl"
    code, said = review(str(reviewed), "--gold", str(path), "--json")
    assert (code, json.loads(said)) == (
        0,
        {"products": 3, "answers": 6, "corrected": 5}
        | dict.fromkeys(("disputed", "without_text", "doubled_ids", "refused", "left_out"), 0),
    )
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["values"] for line in lines] == [
        {"Brand": ["Velor & Co"], "Notes": [["nougat"], ["slowly"], ["almond"]]},
        {"Notes": None, "Roast": ["dark"]},
        {"Brand": ["Velor"], "Weight": ["0.25"]},
    ]
    assert lines[0]["input"]["title"].startswith("Velor coffee 0")
    assert lines[2]["review"]["corrected"] == ["Weight"]
    write(reviewed)
    assert review(str(reviewed), "--gold", str(path))[0] == 0
    assert [json.loads(line) for line in path.read_text().splitlines()] == lines


def in_kilograms(run: Path) -> dict[str, CategorySchema]:
    schema = (read_schemas(Folder(str(run))) or {})["Coffee"]
    weight = Attribute(name="Weight", type="number", unit="kg")
    attributes = tuple(weight if each.name == "Weight" else each for each in schema.attributes)
    return {"Coffee": CategorySchema(category="Coffee", attributes=attributes)}


def test_what_was_written_over_is_normalised_along(run: Path) -> None:
    at = desk(run)
    say(at, key_of(run, 0, "Weight"), "accept")
    say(at, key_of(run, 1, "Weight"), "correct", "250 g")
    write(run)
    at.undo("undo-this-one", "Ada")
    at.close()
    normalise_run(str(run), in_kilograms(run), Console(quiet=True))
    expected = layered(run)
    # Bare in this run's text: a unit that nobody wrote is none.
    found = [rows(expected, row, "Weight")[0] for row in range(3)]
    assert len({(each["value_raw"], each["value_norm"], each["unit"], each["norm_status"]) for each in found}) == 1
    assert [each["source"] for each in found] == ["review", "model", "model"]
    write(run)
    assert read_table(run, "attributes") == expected
