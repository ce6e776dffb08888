"""Catalogs clustered by category: the same answers, from shards of few categories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from pipelines.errors import RunError
from pipelines.job import shuffle
from pipelines.job.run_status import read_status
from pipelines.job.shuffle import identity_sum
from tests.pipelines.conftest import Workplace, product, read_table

NUM_CATEGORIES = 12


def write_catalog(workplace: Workplace) -> None:
    """Many categories, row by row another; Parquet and JSONL; every kind of row that is refused."""
    names = [f"Kind {number:02}" for number in range(NUM_CATEGORIES)]
    schemas = {name: [{"name": f"Brand of {name}"}, {"name": "Weight", "type": "number"}] for name in names}
    (workplace.folder / "schemas.yaml").write_text(yaml.safe_dump({"categories": schemas}), encoding="utf-8")
    rows = [product(number, category=names[number * 5 % NUM_CATEGORIES]) for number in range(160)]
    huge = [product(number, category=names[3]) for number in range(200, 240)]
    bad = [product(301, category="Hats"), product(302, title="", bullets=[]), product(303, category=None)]
    workplace.write_parquet("a.parquet", [*rows[:90], *bad, *huge], row_group_size=32)
    lines = ["", *rows[90:120], "{broken", *[product(400 + n, category="Hats") for n in range(4)], *rows[120:], "[1]"]
    workplace.write_jsonl("b.jsonl", lines)


@pytest.fixture
def varied(workplace: Workplace, shared_ray: None, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    """A catalog of twelve categories, and partitions so small that the largest is spread over several."""
    monkeypatch.setattr(shuffle, "PARTITION_BYTES", 4000)
    write_catalog(workplace)
    workplace.changes = {"max_dead_letter_share": 1.0, "shards": {"target_tokens": 900, "ramp": []}}
    return workplace


def clustered(**changes: Any) -> dict[str, Any]:
    return {"shards": {"target_tokens": 900, "ramp": [], "cluster_by_category": True}} | changes


# Of the run, or of the company in which a row was decoded: the last digits of its probabilities.
_OF_THE_RUN = (
    *("run_id", "engine_seconds", "cascade_seconds", "attempts"),
    *("logprob_mean", "logprob_min", "probability", "margin", "confidence"),
)


def rows_of(output: Path, table: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in _OF_THE_RUN} for row in read_table(output, table)]


def categories_of_parts(output: Path) -> list[set[str]]:
    return [set(pq.read_table(part)["category"].to_pylist()) for part in sorted((output / "products").glob("*"))]


@pytest.mark.full
def test_the_same_answers_from_shards_of_few_categories(varied: Workplace) -> None:
    plain, out = varied.folder / "plain", varied.folder / "out"
    engine = varied.document()["engine"] | {"max_cached_prefixes": 2}
    varied.run(output=str(plain), engine=engine)
    outcome = varied.run(**clustered(engine=engine))
    assert outcome.discrepancy is None
    for table in ("products", "attributes", "dead_letter"):
        assert rows_of(out, table) == rows_of(plain, table), table
    assert len(rows_of(out, "dead_letter")) == 9
    assert all(row["row_json"] for row in rows_of(out, "dead_letter")), "the whole row, for a repair"
    before, after = categories_of_parts(plain), categories_of_parts(out)
    assert sum(map(len, after)) < 0.5 * sum(map(len, before)), (before, after)
    assert sum("Kind 03" in each for each in after) > 1, "a large category is in several shards"
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["clustering"]["categories"] == NUM_CATEGORIES
    assert manifest["clustering"]["partitions"] > 3
    assert not (out / "_clustered").exists(), "removed with the rest of what only the way there needed"
    tokens = [sum(row["prefix_tokens_computed"] for row in read_table(each, "metrics")) for each in (plain, out)]
    assert tokens[1] < tokens[0]
    assert varied.run(**clustered()).was_finished


@pytest.mark.full
def test_a_clustering_that_loses_a_row_is_no_clustering(varied: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shuffle._deal

    def one_less(*arguments: Any) -> Any:
        files, tally = real(*arguments)
        tally.add(-1, -identity_sum([(0, 5)]))
        return files, tally

    monkeypatch.setattr(shuffle, "_deal", one_less)
    with pytest.raises(RunError, match=r"mixed up rows: 209 were read, 208 arrived\. Start the job again"):
        varied.run(**clustered())
    out = varied.folder / "out"
    assert not (out / "_clusters.json").exists()
    assert read_status(str(out)).planned_shards is None
    # What an earlier start left behind is in nobody's way.
    assert list((out / "_clustered").glob("*/*.parquet"))
    monkeypatch.undo()
    monkeypatch.setattr(shuffle, "PARTITION_BYTES", 4000)
    assert varied.run(**clustered()).discrepancy is None
    assert not (out / "_clustered").exists()
