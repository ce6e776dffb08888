"""Runs that take over what has not changed since an earlier one."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpd_core import Attribute, CategorySchema, Record
from pipelines.errors import UsageError
from pipelines.job.job_run import RunOutcome
from pipelines.job.preflight import plan_job
from pipelines.job.prepare_stage import copied_items
from tests.pipelines.conftest import SCHEMAS, Workplace, product, products, read_table
from tests.tables import table


@pytest.fixture(scope="module")
def first_night(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Path:
    """A finished run of 24 products, which all tests here begin with."""
    workplace = Workplace(tmp_path_factory.mktemp("first-night"), tiny_model_dir)
    workplace.write_jsonl("c.jsonl", products(24))
    workplace.run(output=str(workplace.folder / "first"), run_id="first")
    return workplace.folder / "first"


@pytest.fixture
def nightly(workplace: Workplace, first_night: Path) -> Workplace:
    """A workplace with a copy of that run in `first`; the same products are the catalog."""
    workplace.write_jsonl("c.jsonl", products(24))
    shutil.copytree(first_night, workplace.folder / "first")
    return workplace


def second(workplace: Workplace, rows: Sequence[Any], base: str = "first", **changes: Any) -> RunOutcome:
    workplace.write_jsonl("c.jsonl", rows)
    return workplace.run(output=str(workplace.folder / "second"), base=str(workplace.folder / base), **changes)


def undisturbed(workplace: Workplace, **changes: Any) -> Path:
    """A run of the same catalog without a base."""
    workplace.run(output=str(workplace.folder / "plain"), **changes)
    return workplace.folder / "plain"


def answers(output: Path) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """What a run says, without what names the run."""
    columns = ("value_raw", "status", "evidence", "num_tokens", "product_id", "category", "input_hash")
    return {
        (row["source_row"], row["attribute"], row["value_index"]): tuple(row[name] for name in columns)
        for row in read_table(output, "attributes")
    }


# What is a run's own: its name, where an answer was made, and what it took.
_OF_THE_RUN = ("run_id", "carried_from", "schema_hash", "engine_seconds")


def product_rows(output: Path) -> list[Mapping[str, Any]]:
    return [
        {key: value for key, value in row.items() if key not in _OF_THE_RUN} for row in read_table(output, "products")
    ]


def decoded_values(output: Path) -> int:
    """Values that this run's engine wrote."""
    return sum(row["carried_from"] is None for row in read_table(output, "attributes") if row["value_index"] == 0)


def test_only_what_has_changed_is_decoded(nightly: Workplace) -> None:
    rows = products(24)
    rows[3] = product(3, title="another title")  # another text
    rows[4] = product(4, category="Coffee")  # another category
    rows = [product(100), *rows[10:], *rows[:8], product(5, id="renamed")]  # a new one, moved, two dropped, a new id
    outcome = second(nightly, rows)
    output = nightly.folder / "second"

    assert outcome.discrepancy is None
    assert outcome.changes is not None
    assert not outcome.changes.obstacles
    # 22 + 1 + 1 products; p8 and p9 are gone; p5's text is there twice, once under an id that is new.
    assert outcome.totals.products == 24
    assert asdict(outcome.changes) == {
        "base": str(nightly.folder / "first"),
        "base_run_id": "first",
        "obstacles": [],
        "carried": 21,
        "completed": 0,
        "decoded_again": 2,
        "new": 2,
        "dropped": 2,
        "reviewed": 0,
        "reviews_left_out": 0,
    }
    assert answers(output) == answers(undisturbed(nightly))
    assert product_rows(output) == product_rows(nightly.folder / "plain")
    by_id = {row["product_id"]: row for row in read_table(output, "products")}
    assert {name for name, row in by_id.items() if row["carried_from"] is None} == {"p100", "p3", "p4"}
    assert by_id["renamed"]["carried_from"] == "first"
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["changes"] == asdict(outcome.changes)
    # Only the three went through the engine.
    assert manifest["totals"]["carried"]["products"] == 21
    assert sum(row["num_carried"] for row in read_table(output, "metrics")) == 21
    rerun = nightly.run(output=str(output), base=str(nightly.folder / "first"))
    assert rerun.was_finished
    assert rerun.changes == outcome.changes


def change_schemas(workplace: Workplace) -> None:
    """Shoes get another order, a new attribute and a changed one, and lose one; Coffee stays."""
    document = copy.deepcopy(SCHEMAS)
    document["categories"]["Shoes"] = [
        {"name": "Closure"},
        {"name": "Colour", "type": "enum", "values": ["red", "green"]},
        {"name": "Brand"},
    ]
    (workplace.folder / "schemas.yaml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def test_a_changed_schema_asks_only_for_what_has_changed(nightly: Workplace) -> None:
    change_schemas(nightly)
    outcome = second(nightly, products(24))
    output = nightly.folder / "second"
    assert outcome.changes is not None
    assert (outcome.changes.carried, outcome.changes.completed, outcome.changes.decoded_again) == (12, 12, 0)
    assert decoded_values(output) == 12 * 2
    rows = read_table(output, "attributes")
    shoes = [row for row in rows if row["category"] == "Shoes"]
    assert {row["attribute"] for row in shoes if row["carried_from"] is None} == {"Closure", "Colour"}
    assert {row["attribute"] for row in shoes if row["carried_from"] == "first"} == {"Brand"}
    products_now = [row for row in read_table(output, "products") if row["category"] == "Shoes"]
    assert all([name for name, _ in row["values"]] == ["Closure", "Colour", "Brand"] for row in products_now)
    # What was decoded is what a run without a base says, and what was kept is what the first said.
    plain, before = answers(undisturbed(nightly)), answers(nightly.folder / "first")
    for key, answer in answers(output).items():
        kept = key[1] == "Brand" or answer[5] == "Coffee"
        assert answer == (before if kept else plain)[key]


@pytest.mark.full
def test_where_values_see_each_other_a_changed_schema_decodes_the_record(nightly: Workplace) -> None:
    first = str(nightly.folder / "stacked")
    engine = nightly.document()["engine"] | {"layout": "stacked", "stack_size": 1}
    nightly.run(output=first, engine=engine)
    change_schemas(nightly)
    outcome = second(nightly, products(24), base="stacked", engine=engine)
    assert outcome.changes is not None
    assert (outcome.changes.carried, outcome.changes.completed, outcome.changes.decoded_again) == (12, 0, 12)


@pytest.mark.full
def test_other_weights_decode_everything(nightly: Workplace, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    other = shutil.copytree(nightly.model, tmp_path / "other-model")
    weights = load_file(other / "model.safetensors")
    name = next(key for key in weights if "mlp" in key)
    save_file(weights | {name: weights[name] * 1.5}, other / "model.safetensors", metadata={"format": "pt"})
    outcome = second(nightly, products(24), model=str(other))
    assert outcome.changes is not None
    assert outcome.changes.carried == 0
    assert outcome.changes.obstacles[0].startswith("model_revision: ")
    # The same weights elsewhere are the same model.
    moved = shutil.copytree(nightly.model, tmp_path / "moved-model")
    outcome = nightly.run(output=str(nightly.folder / "moved"), base=str(nightly.folder / "first"), model=str(moved))
    assert outcome.changes is not None
    assert outcome.changes.carried == 24


@pytest.mark.full
@pytest.mark.parametrize("fate", ["there", "gone", pytest.param("replaced", marks=pytest.mark.soak)])
def test_a_run_with_a_base_is_continued(nightly: Workplace, fate: str) -> None:
    """After all but its first shard are undone. Without its base the rest is decoded, to the same answers."""
    rows = [product(number, title=f"new {number}") if number % 3 == 0 else product(number) for number in range(24)]
    second(nightly, rows)
    output = nightly.folder / "second"
    (output / "manifest.json").unlink()
    for part in sorted((output / "_shards").glob("*.json"))[1:]:
        part.unlink()
    if fate != "there":
        shutil.rmtree(nightly.folder / "first")
    if fate == "replaced":
        nightly.run(output=str(nightly.folder / "first"), run_id="another")
    outcome = second(nightly, rows)
    assert outcome.discrepancy is None
    assert (outcome.changes is not None) == (fate == "there")
    if outcome.changes is not None:
        assert (outcome.changes.carried, outcome.changes.decoded_again) == (16, 8)
    carried = sum(row["carried_from"] is not None for row in read_table(output, "products"))
    assert carried == 16 if fate == "there" else 0 < carried < 16
    assert answers(output) == answers(undisturbed(nightly))
    shutil.rmtree(nightly.folder / "first", ignore_errors=True)
    assert second(nightly, rows).was_finished


def test_a_base_that_is_none_is_refused(nightly: Workplace) -> None:
    def refusal(base: Path, **changes: Any) -> str:
        with pytest.raises(UsageError) as info:
            plan_job(nightly.config(base=str(base), **changes))
        return str(info.value)

    assert "there is no run in" in refusal(nightly.folder / "nowhere")
    assert "own output folder" in refusal(nightly.folder / "out")
    assert "there is no run in" in refusal(nightly.catalog)
    (nightly.folder / "first" / "manifest.json").unlink()
    assert "is not finished" in refusal(nightly.folder / "first")


@pytest.mark.full
def test_a_pattern_is_the_newest_finished_run(workplace: Workplace) -> None:
    workplace.write_jsonl("c.jsonl", products(8))
    runs = workplace.folder / "runs"

    def night(name: str, **changes: Any) -> RunOutcome:
        return workplace.run(output=str(runs / name), base=str(runs / "*"), run_id=name, **changes)

    first = night("2")
    assert first.changes is None, "there was none before"
    # Runs that are not of the whole catalog, and what else may lie there.
    workplace.run(output=str(runs / "part"), limit=3)
    workplace.run(output=str(runs / "again"), retry_failed=str(runs / "2"))
    for name, content in (("broken", "{"), ("foreign", "{}"), ("list", "[]")):
        (runs / name).mkdir()
        (runs / name / "manifest.json").write_text(content)
    outcome = night("1")
    assert outcome.changes is not None
    assert outcome.changes.base_run_id == "2"
    unfinished = runs / "0"
    (unfinished / "products").mkdir(parents=True)
    (runs / "a-file").write_text("")
    outcome = night("3")
    assert outcome.changes is not None
    assert outcome.changes.base_run_id == "1"
    # A run keeps the base that it began with.
    (runs / "1" / "manifest.json").unlink()
    again = workplace.run(output=str(runs / "1"), base=str(runs / "*"))
    assert again.changes is not None
    assert again.changes.base_run_id == "2"
    with pytest.raises(UsageError, match="only the last name"):
        plan_job(workplace.config(base="runs/*/x"))


def test_a_column_that_has_the_value_is_copied_and_the_model_asked_for_the_rest(workplace: Workplace) -> None:
    cells = {0: "Tops &amp; Co", 1: "n/a", 2: "", 3: "Velor", 4: None}
    rows = [
        product(number, vendor=cells.get(number, "Roro"), grams="1 kg" if number == 3 else "heavy")
        for number in range(6)
    ]
    workplace.write_jsonl("c.jsonl", rows)
    read = workplace.document()["input"]
    copied = {"input": read | {"copied": {"Brand": "vendor", "Weight": "grams"}}}
    workplace.run(**copied, output=str(workplace.folder / "first"))
    found = {(row["source_row"], row["attribute"]): row for row in read_table(workplace.folder / "first", "attributes")}
    assert {key: row["value_raw"] for key, row in found.items() if row["source"] == "column"} == {
        (0, "Brand"): "Tops & Co",
        (3, "Brand"): "Velor",
        (5, "Brand"): "Roro",
        (3, "Weight"): "1 kg",
    }
    assert found[3, "Weight"]["value_norm"] == "1000"
    assert [place["field"] for place in found[3, "Weight"]["evidence"]] == ["grams"]
    assert found[3, "Weight"]["num_tokens"] == 0
    # The next night the column says something else: no earlier answer stands for it, and nothing is decoded.
    rows[0]["vendor"], rows[5]["vendor"] = "Bobo", ""
    second(workplace, rows, **copied)
    later = {
        (row["source_row"], row["attribute"]): row for row in read_table(workplace.folder / "second", "attributes")
    }
    assert later[0, "Brand"]["value_raw"] == "Bobo"
    assert later[5, "Brand"]["source"] == "model"
    assert {key for key, row in later.items() if row["carried_from"] is None} == {
        (0, "Brand"),
        (3, "Brand"),
        (3, "Weight"),
        (5, "Brand"),
    }
    with pytest.raises(UsageError, match=r"input.copied: no category of .* has 'Colur'"):
        plan_job(workplace.config(input=read | {"copied": {"Colur": "vendor"}}))


@table(("cell", "items"), [("Red", ("Red",)), ("Red\nBlue", ("Red", "Blue")), ("Red, Blue", None), ("", None)])
def test_several_values_are_copied_where_it_is_known_what_parts_them(
    workplace: Workplace, cell: str, items: tuple[str, ...] | None
) -> None:
    read = workplace.document()["input"] | {"copied": {"Colours": "colours"}}
    schema = CategorySchema(category="Shoes", attributes=(Attribute(name="Colours", multiple=True),))
    config = workplace.config(input=read).input
    found = copied_items({"colours": cell}, Record("1", "Shoes", {"title": "A shoe"}), config, schema)
    assert found.get("Colours") == items
