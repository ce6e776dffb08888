"""What people said of a run's answers as labels, whether it was written into the run or not."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
from rich.console import Console

from pipelines.quality.calibration_file import CalibratedModel
from pipelines.quality.run_answers import gold_answers, reviewed_answers
from pipelines.reviewing.reviewed_run import write_reviews
from pipelines.store.tables import to_table
from tests.pipelines.conftest import read_table
from tests.pipelines.reporting.made_runs import Answer
from tests.pipelines.reviewing.made_runs import coffee, key_of, reviewable_run
from tests.pipelines.reviewing.said import desk, say


def labels(run: Path) -> dict[tuple[str, str], bool]:
    """Whether it is right, by text of the answer and attribute; of what the model answered."""
    model = CalibratedModel.of(read_table(run, "attributes")[0])
    return {
        (each.answer.attribute, each.answer.text or ""): each.is_right for each in reviewed_answers(str(run), model)
    }


def test_a_verdict_is_a_label_of_what_the_model_answered(tmp_path: Path) -> None:
    run = reviewable_run(tmp_path, [[coffee(0), coffee(1, Roast=Answer("m", 0.3, "invalid"))], [coffee(2)]])
    assert labels(run) == {}
    at = desk(run)
    say(at, key_of(run, 0, "Brand"), "correct", "Velor & Co")
    say(at, key_of(run, 0, "Roast"), "accept")
    say(at, key_of(run, 1, "Roast"), "correct", "dark")  # the model had no value
    say(at, key_of(run, 1, "Notes"), "absent")
    say(at, key_of(run, 2, "Weight"), "skip")
    at.close()
    wanted = {("Brand", "Velor"): False, ("Roast", "medium"): True, ("Notes", "nougat; almond"): False}
    assert labels(run) == wanted
    write_reviews(str(run), Console(quiet=True))
    assert json.loads((run / "manifest.json").read_text())["reviews"]["corrected"] == 2
    assert labels(run) == wanted


def test_what_people_said_of_an_earlier_run_is_no_answer_of_the_models(tmp_path: Path) -> None:
    run = reviewable_run(tmp_path, [[coffee(0)], [coffee(1)]])
    path = run / "attributes" / "part-000000.parquet"
    carried = {"source": "review", "decision": "accept", "num_tokens": 0, "carried_from": "an earlier run"}
    pq.write_table(to_table("attributes", [row | carried for row in pq.read_table(path).to_pylist()]), path)
    gold = tmp_path / "gold.jsonl"
    lines = [{"product_id": f"c{row}", "category": "Coffee", "values": {"Brand": ["Velor"]}} for row in range(2)]
    gold.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    model = CalibratedModel.of(read_table(run, "attributes")[0])
    (label,) = gold_answers(str(run), str(gold), model)
    assert (label.answer.text, label.is_right) == ("Velor", True)
