"""What people called right, and a run that was removed and made again in the same folder: by another model."""

from __future__ import annotations

import io
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from pipelines.reviewing.reviewed_run import write_reviews
from pipelines.store.folders import Folder
from pipelines.store.layer import Layer
from pipelines.store.no_run import read_schemas
from tests.pipelines.conftest import read_table
from tests.pipelines.reporting.made_runs import Answer
from tests.pipelines.reviewing.made_runs import coffee, key_of, reviewable_run
from tests.pipelines.reviewing.said import desk, say

_REASON = "the run has another answer now than the one that was called right"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return reviewable_run(tmp_path, [[coffee(0), coffee(1)]])


def answered_again(run: Path, **answers: str) -> None:
    """The same folder with its reviews, and the answers of another model; these are those of the first product."""
    shutil.move(run / "reviews", run.parent / "reviews")
    shutil.rmtree(run)
    others = {name: Answer(text, 0.8) for name, text in answers.items()}
    reviewable_run(run.parent, [[coffee(0, **others), coffee(1)]], model_id="other")
    shutil.move(run.parent / "reviews", run / "reviews")


def layer_of(run: Path) -> Layer:
    return Layer.open(Folder(str(run)), read_schemas(Folder(str(run))))


def seen(run: Path, attribute: str) -> Mapping[str, Any]:
    """The first product's answer, as who reads the whole table by the layer sees it."""
    table = layer_of(run).apply(pq.read_table(run / "attributes" / "part-000000.parquet"))
    (row,) = (row for row in table.to_pylist() if (row["source_row"], row["attribute"]) == (0, attribute))
    return row


@pytest.mark.parametrize("is_written", [False, True], ids=["layered", "written"])
def test_right_is_said_of_the_very_answer_and_another_value_of_the_text(run: Path, is_written: bool) -> None:
    at = desk(run)
    say(at, key_of(run, 0, "Brand"), "accept")
    say(at, key_of(run, 0, "Roast"), "correct", "dark")
    say(at, key_of(run, 1, "Brand"), "accept")
    at.close()
    if is_written:
        write_reviews(str(run), Console(quiet=True))
    answered_again(run, Brand="Slowly", Roast="light")
    brand, roast = seen(run, "Brand"), seen(run, "Roast")
    assert (brand["value_raw"], brand["source"], brand["decision"], brand["model_id"]) == (
        "Slowly",
        "model",
        None,
        "other",
    )
    assert (roast["value_raw"], roast["source"], roast["replaced"][0]["value"]) == ("dark", "review", "light")
    layer = layer_of(run)
    assert [(each.verdict.key, each.reason) for each in layer.left_out] == [(key_of(run, 0, "Brand"), _REASON)]
    out = io.StringIO()
    found = write_reviews(str(run), Console(file=out, width=200))
    assert (found.accepted, found.corrected, found.left_out, found.taken_back) == (1, 1, 1, 0)
    assert f"Brand (Ada: right): {_REASON}" in out.getvalue()
    written = {row["attribute"]: row for row in read_table(run, "attributes") if row["source_row"] == 0}
    assert {name: written[name]["value_raw"] for name in ("Brand", "Roast")} == {"Brand": "Slowly", "Roast": "dark"}


@pytest.mark.parametrize("first", ["Ada", "Bob"])
def test_what_was_overruled_by_it_does_not_come_back(run: Path, first: str) -> None:
    at = desk(run)
    key = key_of(run, 0, "Brand")
    say(at, key, "correct", "Acme", reviewer=first)
    say(at, key, "accept", reviewer="Ada")
    at.close()
    answered_again(run, Brand="Slowly")
    assert (layer_of(run).corrections, seen(run, "Brand")["value_raw"]) == ({}, "Slowly")
    answered_again(run)
    assert layer_of(run).corrections[key].items == ("Velor",), "the answer that comes back is right again"
