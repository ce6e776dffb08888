"""Whole runs on a local Ray with a tiny model."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from hpd_core import Engine, EngineConfig, Record
from pipelines.config.schema_file import load_schemas
from pipelines.errors import UsageError
from pipelines.job import ray_stages, rounds
from pipelines.normalising.stated_numbers import stated_numbers
from pipelines.store.tables import TABLES
from tests.pipelines.conftest import SCHEMAS, Workplace, product, products, read_table
from tests.pipelines.job import faulty

BAD_ROWS: list[Any] = [
    product(100, id=None),
    product(101, category=None),
    product(102, category="Hats"),
    product(103, title={"en": "x"}),
    product(104, title=None, bullets=[]),
    '{"id": "p105", "category"',
]


def test_a_run_gives_what_the_engine_gives_and_accounts_for_every_row(workplace: Workplace) -> None:
    good = [row | {"bullets": [*row["bullets"], "blue"]} for row in products(20)]
    rows = [*good[:10], *BAD_ROWS, good[0], *good[10:]]
    path = workplace.write_jsonl("c.jsonl", rows)
    coffee = {"Coffee": [{"name": "Brand", "verbatim": True}, {"name": "Weight", "type": "number", "unit": "g"}]}
    copied = json.dumps({"categories": SCHEMAS["categories"] | coffee})
    (workplace.folder / "schemas.yaml").write_text(copied, encoding="utf-8")
    outcome = workplace.run()
    output = workplace.folder / "out"

    assert outcome.discrepancy is None
    assert (outcome.totals.rows, outcome.totals.products, outcome.totals.dead_letters) == (27, 21, 6)
    assert len(outcome.plan.shards) > 2
    tables = {name: read_table(output, name) for name in TABLES}
    for name, schema in TABLES.items():
        for part in (output / name).glob("*.parquet"):
            assert pq.read_schema(part).equals(schema, check_metadata=False), part

    # Rows are known by their place: the doubled id is two products.
    assert [row["source_row"] for row in tables["products"]] == [*range(10), *range(16, 27)]
    assert {row["source_file"] for row in tables["products"]} == {str(path)}
    assert tables["products"][0]["input_hash"] == tables["products"][10]["input_hash"]
    assert tables["products"][0]["values"] == tables["products"][10]["values"]

    dead = {row["source_row"]: row for row in tables["dead_letter"]}
    codes = {number: row["error_code"] for number, row in dead.items()}
    assert codes == {
        10: "null_id",
        11: "null_category",
        12: "no_schema",
        13: "wrong_type",
        14: "no_text",
        15: "broken_line",
    }
    assert json.loads(dead[12]["row_json"]) == BAD_ROWS[2]
    assert dead[15]["row_json"] == BAD_ROWS[5]
    assert dead[11]["product_id"] == "p101"
    assert {row["stage"] for row in dead.values()} == {"prepare"}

    # The answers are those of the engine alone.
    schemas = load_schemas(workplace.document()["schemas"])
    records = [
        Record(row["id"], row["category"], {"title": row["title"], "bullets": "\n".join(row["bullets"])})
        for row in good
    ]
    records = [replace(each, numbers=stated_numbers(each, schemas[each.category])) for each in records]
    with Engine.from_pretrained(
        str(workplace.model), EngineConfig.model_validate(workplace.document()["engine"])
    ) as engine:
        results = {result.id: result for result in engine.extract(records, schemas)}
        description = engine.describe()
    for row in tables["products"]:
        values = results[row["product_id"]].values
        assert dict(row["values"]) == {name: value.text for name, value in values.items()}
        assert row["num_absent"] == sum(value.status == "absent" for value in values.values())
    for row in tables["attributes"]:
        value = results[row["product_id"]].values[row["attribute"]]
        expected = value.items[row["value_index"]] if value.status == "value" else value.raw or None
        assert row["value_raw"] == (None if value.status == "absent" else expected)
        assert row["status"] == value.status
        assert row["logprob_mean"] == pytest.approx(value.logprob_mean, abs=1e-4)
        assert row["prompt_hash"] == description["prompt_hash"]
        assert (row["evidence"] is None) == (value.status != "value")
        fields = next(record.fields for record in records if record.id == row["product_id"])
        for place in row["evidence"] or ():
            assert fields[place["field"]][place["start"] : place["end"]] == place["text"]
    brands = [row for row in tables["attributes"] if (row["category"], row["attribute"]) == ("Coffee", "Brand")]
    assert {row["status"] for row in brands} <= {"value", "absent"}
    assert all(row["choice"] and (row["evidence"] or row["status"] == "absent") for row in brands), "it is copied"
    assert any(row["evidence"] for row in tables["attributes"]), "some values stand in the text"
    assert any(row["evidence"] == [] for row in tables["attributes"]), "and some do not"
    num_rows = sum(max(1, len(v.items)) for result in results.values() for v in result.values.values())
    first = results["p0"]
    assert len(tables["attributes"]) == num_rows + sum(max(1, len(v.items)) for v in first.values.values())

    metrics = tables["metrics"]
    assert [row["shard"] for row in sorted(metrics, key=lambda row: row["shard"])] == list(range(len(metrics)))
    assert sum(row["num_rows"] for row in metrics) == 27
    assert sum(row["load_seconds"] > 0 for row in metrics) == 1, "the load is counted once"
    assert all(row["busy_seconds"] > 0 and row["value_tokens"] > 0 for row in metrics if row["num_products"])
    assert all(row["started_at"] < row["finished_at"] for row in metrics)

    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["totals"]["products"] == 21
    shared = manifest["totals"]["metrics"]["document_tokens_shared"]
    assert shared == sum(row["document_tokens_shared"] for row in metrics)
    assert manifest["config_hash"] == outcome.plan.config_hash
    assert manifest["config"]["engine"]["max_value_tokens"] == 6
    assert manifest["versions"]["ray"]
    assert not (output / "_parts").exists()
    count = duckdb.sql(f"select count(*) from '{output}/attributes/*.parquet'").fetchall()
    assert count == [(len(tables["attributes"]),)]


@pytest.mark.full
def test_a_damaged_page_costs_its_rows_only(workplace: Workplace) -> None:
    path = workplace.write_parquet("a.parquet", products(600), row_group_size=200)
    group = pq.ParquetFile(path).metadata.row_group(1)
    column = next(group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == "title")
    data = bytearray(path.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    data[start : start + 40] = b"\xff" * 40
    path.write_bytes(data)
    outcome = workplace.run(
        shards={"target_tokens": 12_000, "ramp": []}, engine={"max_value_tokens": 1, "device": "cpu"}
    )
    assert outcome.discrepancy is None
    assert dict(outcome.totals.reasons) == {"unreadable": outcome.totals.dead_letters}
    dead = read_table(workplace.folder / "out", "dead_letter")
    assert [row["source_row"] for row in dead] == list(range(200, 400))
    assert all("the file is damaged in row group 1" in row["error"] for row in dead)


@pytest.mark.parametrize(
    ("decode", "retries", "reason"),
    [
        (faulty.DyingDecode, {}, "the process died while it decoded the record"),
        pytest.param(faulty.RaisingDecode, {}, "MemoryError: out of memory", marks=pytest.mark.full),
        pytest.param(
            faulty.HangingDecode,
            {"max_minutes": 0.1},
            "not decoded within retries.max_minutes (0.1)",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_record_that_breaks_the_engine_is_found_and_takes_no_other_along(
    on_ray: Workplace, monkeypatch: pytest.MonkeyPatch, decode: type, retries: dict[str, Any], reason: str
) -> None:
    rows = products(16)
    rows[2]["title"] = "poison"
    on_ray.write_parquet("a.parquet", rows)
    monkeypatch.setattr(ray_stages, "Decode", decode)
    outcome = on_ray.run(retries={"max_attempts": 1, **retries})
    assert outcome.discrepancy is None
    assert dict(outcome.totals.reasons) == {"decode_failed": 1}
    assert outcome.totals.products == 15
    (dead,) = read_table(on_ray.folder / "out", "dead_letter")
    assert dead["source_row"] == 2
    assert json.loads(dead["row_json"])["title"] == "poison"
    assert dead["error"] == f"given up after 2 failed tries of the record; the last: {reason}"
    shard = next(s for s in outcome.plan.shards if s.pieces[0].start == 0)
    assert shard.num_rows > 2
    # The shard once, then each of its records, and the one once more.
    assert dead["attempts"] >= 1 + shard.num_rows + 1


def test_a_finished_run_whose_files_are_gone_is_not_said_to_be_finished(workplace: Workplace) -> None:
    workplace.write_parquet("a.parquet", products(3))
    workplace.run()
    first = min((workplace.folder / "out" / "attributes").iterdir())
    kept = first.read_bytes()
    first.unlink()
    with pytest.raises(UsageError, match=rf"files of it are missing: attributes/{first.name}\. Restore them"):
        workplace.run()
    first.write_bytes(kept)
    assert workplace.run().was_finished


@pytest.mark.full
def test_an_output_that_is_another_folder_on_each_machine_is_refused(
    on_ray: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a node commits on its own disk the driver would never see: it would have it decoded for ever."""
    on_ray.write_jsonl("c.jsonl", products(6))
    monkeypatch.setattr(ray_stages, "commit", faulty.commit_elsewhere)
    monkeypatch.setattr(rounds, "_SECONDS_TO_SHOW", 1.0)
    with pytest.raises(
        UsageError,
        match=r"output: shard \d+ was committed, and is not to be seen in .*out: it is another folder on each machine",
    ):
        on_ray.run(decoding="made-up")


@pytest.mark.full
def test_a_node_with_another_version_of_the_code_is_refused(on_ray: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers would stand beside the others' and be normalised otherwise."""
    on_ray.write_jsonl("c.jsonl", products(6))
    monkeypatch.setattr(rounds, "code_digest", lambda: "of another version")
    with pytest.raises(UsageError, match=r"HPD in .* is not what the job was started with: another version, or a file"):
        on_ray.run(decoding="made-up")
    assert not (on_ray.folder / "out" / "_shards").exists()
