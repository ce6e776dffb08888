"""What people said, and a run that was removed and made again in the same folder: of a catalog with other rows."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from pipelines import evaluate
from pipelines.job.run import Run
from pipelines.quality.calibration_file import CalibratedModel
from pipelines.quality.run_answers import reviewed_answers
from pipelines.reviewing.desk import OtherTextError
from pipelines.reviewing.gold_file import write_gold
from pipelines.reviewing.reviewed_run import write_reviews
from pipelines.store.corrections import read_verdicts
from pipelines.store.folders import Folder
from pipelines.store.layer import Layer
from pipelines.store.no_run import read_schemas
from tests.pipelines.conftest import read_table
from tests.pipelines.reporting.made_runs import Product
from tests.pipelines.reviewing.made_runs import coffee, key_of, reviewable_run
from tests.pipelines.reviewing.said import desk, say


def made_again(run: Path, *products: Product) -> None:
    """The same folder with its reviews, and tables of these products."""
    shutil.move(run / "reviews", run.parent / "reviews")
    shutil.rmtree(run)
    reviewable_run(run.parent, [products])
    shutil.move(run.parent / "reviews", run / "reviews")


def layer_of(run: Path) -> Layer:
    return Layer.open(Folder(str(run)), read_schemas(Folder(str(run))))


@pytest.fixture
def reviewed(tmp_path: Path) -> Path:
    """Three products, of each of which something was said."""
    run = reviewable_run(tmp_path, [[coffee(0), coffee(1), coffee(2)]])
    at = desk(run)
    for row in range(3):
        say(at, key_of(run, row, "Brand"), "correct", f"Brand {row}")
    at.close()
    return run


@pytest.mark.parametrize("is_written", [False, True], ids=["layered", "written"])
def test_of_another_text_nothing_is_laid_over_and_all_of_it_is_named(reviewed: Path, is_written: bool) -> None:
    if is_written:
        write_reviews(str(reviewed), Console(quiet=True))
    made_again(reviewed, coffee(5), coffee(1))
    before = read_table(reviewed, "attributes")
    layer = layer_of(reviewed)
    assert set(layer.corrections) == {key_of(reviewed, 1, "Brand")}, "the one whose text stands where it stood"
    assert [each.reason for each in layer.left_out] == ["the row has another text now", "the run has no such row"]
    assert set(layer.kept) == (set(layer.corrections) if is_written else set())
    out = io.StringIO()
    found = write_reviews(str(reviewed), Console(file=out, width=200))
    assert (found.corrected, found.left_out, found.taken_back) == (1, 2, 0)
    assert "Brand (Ada: Brand 0): the row has another text now" in out.getvalue()
    assert ":2 > Brand (Ada: Brand 2): the run has no such row" in out.getvalue()
    after = read_table(reviewed, "attributes")
    changed = [now for then, now in zip(before, after, strict=True) if then != now]
    assert [(row["source_row"], row["attribute"], row["value_raw"]) for row in changed] == [(1, "Brand", "Brand 1")]


def test_gold_and_a_calibration_learn_nothing_of_it(reviewed: Path, tmp_path: Path) -> None:
    made_again(reviewed, coffee(5), coffee(1), coffee(2))
    path = tmp_path / "gold.jsonl"
    run = Run.open(str(reviewed))
    found = write_gold(run, read_schemas(run.folder) or {}, str(path))
    assert (found.answers, found.left_out) == (2, 1)
    assert [json.loads(line)["values"]["Brand"] for line in path.read_text().splitlines()] == [["Brand 1"], ["Brand 2"]]
    result = CliRunner().invoke(evaluate.app, [str(reviewed), "--reviews", "--out", str(tmp_path / "c.json")])
    assert "Note: of what people said" in result.output
    model = CalibratedModel.of(read_table(reviewed, "attributes")[0])
    assert len(reviewed_answers(str(reviewed), model)) == 2


def test_what_is_judged_anew_is_not_left_out(reviewed: Path) -> None:
    made_again(reviewed, coffee(5), coffee(1), coffee(2))
    at = desk(reviewed)
    assert len(at.left_out) == 1
    say(at, key_of(reviewed, 0, "Brand"), "absent", reviewer="Bob")
    at.close()
    found = layer_of(reviewed)
    assert (len(found.corrections), found.left_out) == (3, [])
    assert not any(each.is_disputed for each in found.corrections.values()), "the earlier one was of another text"


def test_what_a_page_shows_of_an_earlier_text_is_not_taken_for_the_text_of_now(reviewed: Path) -> None:
    key = key_of(reviewed, 0, "Brand")
    at = desk(reviewed)
    shown = at.answer(key, "Ada")["input_hash"]
    at.close()
    made_again(reviewed, coffee(5), coffee(1), coffee(2))
    at = desk(reviewed)
    for verdict, items in (("accept", ()), ("correct", ["Of the old text"]), ("absent", ()), ("skip", ())):
        with pytest.raises(OtherTextError, match="another text now"):
            at.judge(f"said-{verdict}", "Ada", key, shown, verdict, items)
    at.judge("said-of-now", "Ada", key, at.answer(key, "Ada")["input_hash"], "absent", ())
    at.close()
    assert [each.id for each in read_verdicts(Folder(str(reviewed)))][3:] == ["said-of-now"]


def test_an_attribute_that_the_run_does_not_ask_for_has_no_corrections(reviewed: Path) -> None:
    path = reviewed / "_schemas.json"
    path.write_text(path.read_text().replace('"Brand"', '"Maker"'))
    assert json.loads(path.read_text())
    assert {each.reason for each in layer_of(reviewed).left_out} == {"the run does not ask for it"}


def test_undo_takes_back_what_stands_in_this_run(reviewed: Path) -> None:
    """The last thing that was said is of a row that is gone: what was said before it is taken back."""
    made_again(reviewed, coffee(0), coffee(1))
    at = desk(reviewed)
    state = at.state("Ada")
    assert (state["reviewed"], state["mine"], state["waiting"]) == (2, 2, 6)
    assert at.undo("undo-the-one", "Ada") == key_of(reviewed, 1, "Brand")
    assert at.undo("undo-another", "Ada") == key_of(reviewed, 0, "Brand")
    assert at.undo("undo-no-more", "Ada") is None
    at.close()
    assert not layer_of(reviewed).corrections
