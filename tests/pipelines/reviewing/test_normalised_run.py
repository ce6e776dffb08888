"""A finished run normalised anew: what changes, what does not, and what a kill leaves behind."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

from hpd_core import Attribute, CategorySchema
from pipelines.job.carryover import EarlierRun
from pipelines.job.preflight import plan_job
from pipelines.normalise import app
from pipelines.normalising.measured_text import NORMALISED_COLUMNS
from pipelines.reviewing import normalised_run
from pipelines.reviewing.normalised_run import NormalisedRun, normalise_run
from pipelines.store.columns import ATTRIBUTE_COLUMNS, COLUMNS
from pipelines.store.folders import Folder
from pipelines.store.ledger import PLAN_NAME, Ledger
from pipelines.store.no_run import read_asked_schemas, read_schemas, store_schemas
from pipelines.store.tables import ATTRIBUTES, encode
from tests.pipelines.conftest import Workplace, products

SHOES = (
    Attribute(name="Color", type="enum", values=({"label": "red", "id": "c1"}, "blue")),
    Attribute(name="Width", type="number", unit="cm"),
)
FILLED = {pa.string(): "x", pa.int64(): 0, pa.int32(): 0}
NUM_SHARDS = 3


def row(shard: int, attribute: str, raw: str | None, after: str = "", **cells: Any) -> dict[str, Any]:
    place = {"field": "title", "start": 0, "end": 1, "text": raw, "match": "exact", "before": "", "after": after}
    required = {column.name: FILLED[column.type] for column in ATTRIBUTE_COLUMNS if column.required}
    own = {"source_row": shard, "category": "Shoes", "attribute": attribute, "value_raw": raw, "status": "value"}
    return {**required, **own, "evidence": [place], **cells}


@pytest.fixture
def run(workplace: Workplace) -> Path:
    """A finished run of three shards, as an older version would have left it: nothing is normalised."""
    workplace.write_jsonl("c.jsonl", products(NUM_SHARDS))
    output = workplace.folder / "out"
    folder = Folder(str(output))
    folder.create(PLAN_NAME, plan_job(workplace.config(), None).plan.to_json())
    store_schemas(folder, {"Shoes": CategorySchema(category="Shoes", attributes=SHOES)})
    ledger = Ledger(folder, "s")
    for shard in range(NUM_SHARDS):
        rows = [
            row(shard, "Color", "red"),
            row(shard, "Width", "14", " inches"),
            row(shard, "Width", "2", " kg"),
            row(shard, "Gone", "text"),
            row(shard, "Color", None, status="absent", evidence=None),
        ]
        tables = {name: encode(name, rows if name == "attributes" else []) for name in COLUMNS}
        ledger.commit(shard, f"a{shard}", tables, {})
    ledger.finish({"finished_at": "2026-11-27", "run_id": "x", "engine": {}})
    return output


def normalise(run: Path, schemas: dict[str, CategorySchema] | None = None, **options: Any) -> NormalisedRun:
    return normalise_run(str(run), schemas, Console(file=io.StringIO()), **options)


def table(run: Path) -> list[dict[str, Any]]:
    return [cells for path in sorted((run / "attributes").glob("part-*")) for cells in pq.read_table(path).to_pylist()]


def check_manifests(run: Path, *, is_settled: bool) -> None:
    """Every published part is one that its shard's manifest names."""
    for shard in range(NUM_SHARDS):
        entry = json.loads((run / "_shards" / f"{shard:06d}.json").read_text())["tables"]["attributes"]
        data = (run / entry["public"]).read_bytes()
        named = {entry["sha256"], *([entry["coming"]["sha256"]] if "coming" in entry else [])}
        assert hashlib.sha256(data).hexdigest() in named
        if is_settled:
            assert "coming" not in entry
            assert entry["num_bytes"] == len(data)


def files(run: Path) -> dict[str, bytes]:
    # The lease's numbers count how often the run was held.
    paths = (path for path in run.rglob("*") if path.is_file() and "_lease" not in path.parts)
    return {str(path.relative_to(run)): path.read_bytes() for path in paths}


def test_only_the_normalised_columns_change(run: Path) -> None:
    before = table(run)
    found = normalise(run)
    after = table(run)
    others = [name for name in ATTRIBUTES.names if name not in NORMALISED_COLUMNS]
    assert [[cells[name] for name in others] for cells in after] == [
        [cells[name] for name in others] for cells in before
    ]
    color, width, weight, gone, absent = after[:5]
    assert (color["value_norm"], color["value_id"], color["norm_status"]) == ("red", "c1", "ok")
    assert (width["value_norm"], width["value_num"], width["unit"]) == ("35.56", 35.56, "cm")
    assert (weight["norm_status"], weight["value_norm"]) == ("conflict", None)
    assert gone["norm_status"] is None, "the schemas do not have it"
    assert absent["norm_status"] is None
    assert found.to_dict() == {
        "values": 12,
        "changed": 9,
        "not_in_schemas": 3,
        "parts": 3,
        "parts_rewritten": 3,
        "before": {"none": 12},
        "after": {"ok": 6, "conflict": 3, "none": 3},
        "notes": [],
    }
    check_manifests(run, is_settled=True)


def test_an_edited_schema_is_used_and_a_trial_writes_nothing(run: Path) -> None:
    normalise(run)
    before = files(run)
    edited = {
        "Shoes": CategorySchema(
            category="Shoes",
            attributes=(
                Attribute(name="Color", type="enum", values=({"label": "Scarlet", "id": "c9", "synonyms": ["red"]},)),
                Attribute(name="Width", type="number", unit="m"),
            ),
        )
    }
    trial = normalise(run, edited, is_trial=True)
    assert files(run) == before
    assert normalise(run, edited).to_dict() == trial.to_dict()
    color, width, *_ = table(run)
    assert (color["value_raw"], color["value_norm"], color["value_id"]) == ("red", "Scarlet", "c9")
    assert (width["value_num"], width["unit"]) == (0.3556, "m")
    check_manifests(run, is_settled=True)


class KilledError(BaseException):
    """Stands for a kill: nothing may catch it."""


@pytest.mark.parametrize("is_written", [False, True], ids=["before a write", "behind a write"])
def test_a_kill_at_any_write_leaves_what_the_next_pass_ends(
    run: Path, monkeypatch: pytest.MonkeyPatch, is_written: bool, tmp_path: Path
) -> None:
    write: Callable[..., None] = Folder.write
    steps = 0

    def stepped(folder: Folder, name: str, data: bytes) -> None:
        nonlocal steps
        if is_written:
            write(folder, name, data)
        steps -= 1
        if steps == 0:
            raise KilledError
        if not is_written:
            write(folder, name, data)

    monkeypatch.setattr(Folder, "write", stepped)
    for kills in range(1, 12):
        steps = 1 + kills % 4
        try:
            normalise(run)
        except KilledError:
            check_manifests(run, is_settled=False)
    steps = 0
    normalise(run)
    check_manifests(run, is_settled=True)
    assert [cells["norm_status"] for cells in table(run)[:3]] == ["ok", "ok", "conflict"]


SCARLET = Attribute(name="Color", type="enum", values=({"label": "Scarlet", "id": "c9", "synonyms": ["red"]},))


def test_who_reads_the_values_has_the_schemas_that_they_are_normalised_by(run: Path, tmp_path: Path) -> None:
    asked = {"Shoes": CategorySchema(category="Shoes", attributes=SHOES)}
    extra = (SCARLET, Attribute(name="Never asked for"))
    edited = {
        "Shoes": CategorySchema(category="Shoes", id="s-1", attributes=extra),
        "Hats": CategorySchema(category="Hats", attributes=extra),
    }
    normalise(run, edited, is_trial=True)
    assert read_schemas(Folder(str(run))) == asked
    normalise(run, edited)
    kept = {"Shoes": CategorySchema(category="Shoes", id="s-1", attributes=(SCARLET, SHOES[1]))}
    folder = Folder(str(run))
    assert (read_schemas(folder), read_asked_schemas(folder)) == (kept, asked)
    assert [cells["value_norm"] for cells in table(run)[:2]] == ["Scarlet", "35.56"]

    before = files(run)
    normalise(run)
    assert files(run) == before, "without --schemas, by those that it has"
    normalise(run, asked)
    assert read_schemas(folder) == asked
    assert table(run)[0]["value_norm"] == "red"


def test_a_pass_that_was_killed_goes_on_by_the_edited_schemas(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(*arguments: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(normalised_run, "replace_part", kill)
        with pytest.raises(KilledError):
            normalise(run, {"Shoes": CategorySchema(category="Shoes", attributes=(SCARLET,))})
    normalise(run)
    assert {cells["value_norm"] for cells in table(run) if cells["value_raw"] == "red"} == {"Scarlet"}


def test_values_of_an_edited_attribute_are_not_taken_over(run: Path, workplace: Workplace) -> None:
    normalise(run, {"Shoes": CategorySchema(category="Shoes", attributes=(SCARLET,))})
    earlier = EarlierRun.open(str(run), Folder(str(workplace.folder / "next")))
    for attributes in (SHOES, (SCARLET, SHOES[1])):
        schemas = {"Shoes": CategorySchema(category="Shoes", attributes=attributes)}
        assert earlier.carriable(workplace.config(), schemas) == {"Shoes": {"Width"}}


def test_exclusive_values_are_taken_over_together_or_not_at_all(run: Path, workplace: Workplace) -> None:
    def schemas(width: str, **brand: object) -> dict[str, CategorySchema]:
        line, model = ({"name": name, "verbatim": "exclusive"} for name in ("Line", "Model"))
        attributes = [{"name": "Width", "description": width}, {**line, **brand}, model]
        return {"Shoes": CategorySchema.model_validate({"category": "Shoes", "attributes": attributes})}

    earlier = EarlierRun.open(str(run), Folder(str(workplace.folder / "next")))
    earlier = replace(earlier, schemas=schemas("wide"), normalised={})
    for changed, kept in (
        (schemas("wider"), {"Line", "Model"}),
        (schemas("wide", description="of shoes"), {"Width"}),
        (schemas("wide", shares_text_with=["Model"]), {"Width"}),
    ):
        assert earlier.carriable(workplace.config(), changed) == {"Shoes": kept}


def edited_file(folder: Path, categories: dict[str, list[str]]) -> str:
    path = folder / "edited.yaml"
    path.write_text(json.dumps({"categories": categories}))
    return str(path)


@pytest.mark.parametrize(
    ("categories", "said"),
    [
        ({"Sheos": ["Color"]}, "its categories are 'Sheos', the run's 'Shoes' (the run has no category 'Sheos'; "),
        ({"Shoes": ["Colour"]}, "the attributes of 'Shoes' are 'Colour' there, and 'Color', 'Width' in the run"),
    ],
)
def test_schemas_without_an_attribute_of_the_run_are_refused(
    run: Path, tmp_path: Path, categories: dict[str, list[str]], said: str
) -> None:
    before = files(run)
    path = edited_file(tmp_path, categories)
    result = CliRunner().invoke(app, [str(run), "--schemas", path])
    assert result.exit_code == 2, result.output
    shown = " ".join(result.output.split())
    assert f"nothing in {path} is of the run {run}, so nothing would change" in shown
    assert said in shown
    assert files(run) == before
