"""A run is calibrated, decided, continued and exported; the smallest real job, on the shared Ray."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines import evaluate, export
from pipelines.quality.calibration_file import Calibration
from pipelines.store.folders import Folder
from pipelines.store.ledger import Ledger
from tests.pipelines.conftest import Workplace, product, read_table

NUM_PRODUCTS = 40


def ask(app: Any, *arguments: str) -> tuple[int, str]:
    """The command's exit code, and all that it prints."""
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    return result.exit_code, result.output


def catalog(workplace: Workplace) -> None:
    workplace.write_jsonl("c.jsonl", [product(number) for number in range(NUM_PRODUCTS)])


def gold_of(run: Path, path: Path) -> Path:
    """Gold that calls the values right whose probability is above the middle one, of whatever the model wrote."""
    rows = [row for row in read_table(run, "attributes") if row["value_index"] == 0]
    values = sorted(row["probability"] for row in rows if row["status"] == "value")
    lines = []
    for id_ in dict.fromkeys(row["product_id"] for row in rows):
        own = [row for row in rows if row["product_id"] == id_]
        labels = {row["attribute"]: _label(row, values[len(values) // 2]) for row in own}
        lines.append(json.dumps({"product_id": id_, "category": own[0]["category"], "values": labels}))
    path.write_text("\n".join(lines))
    return path


def _label(row: Mapping[str, Any], middle: float) -> list[str] | None:
    if row["status"] != "value":
        return None
    return [row["value_raw"]] if row["probability"] > middle else ["another value"]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> tuple[Workplace, Path]:
    """A finished run, and gold for it."""
    workplace = Workplace(tmp_path_factory.mktemp("calibrate"), tiny_model_dir)
    catalog(workplace)
    workplace.run()
    out = workplace.folder / "out"
    return workplace, gold_of(out, workplace.folder / "gold.jsonl")


@pytest.fixture
def copied(done: tuple[Workplace, Path], tmp_path: Path) -> Path:
    """The finished run, to be changed."""
    return Path(shutil.copytree(done[0].folder / "out", tmp_path / "run"))


def learn(run: Path, gold: Path, out: Path, *more: str) -> Calibration:
    code, printed = ask(evaluate.app, str(run), "--calibrate", "--gold", str(gold), "--out", str(out), *more)
    assert code == 0, printed
    return Calibration.read(str(out))


def test_a_run_is_learned_from_and_decided(done: tuple[Workplace, Path], copied: Path, tmp_path: Path) -> None:
    before = read_table(copied, "attributes")
    file = tmp_path / "calibration.json"
    found = learn(copied, done[1], file, "--precision", "0.6", "--apply")
    rows = read_table(copied, "attributes")
    others = [name for name in rows[0] if name not in ("confidence", "decision")]
    assert [[row[name] for name in others] for row in rows] == [[row[name] for name in others] for row in before]
    for row in rows:
        assert (row["confidence"] is not None) == (row["status"] == "value")
        assert (row["decision"] is None) == (row["status"] == "absent")
        assert row["status"] == "value" or row["decision"] in (None, "review")
    manifest = json.loads((copied / "manifest.json").read_text())
    assert manifest["calibration"]["uri"] == str(file)
    assert manifest["calibration"]["hash"] == found.hash
    assert manifest["calibration"]["num_labelled"] == found.about["labels"]["values"]
    assert manifest["accept"]["precision"] == 0.6
    decisions = Counter(row["decision"] for row in rows if row["value_index"] == 0 and row["decision"])
    assert manifest["totals"]["decisions"] == decisions
    assert decisions["accept"] > 0
    # Once more: nothing is left to do.
    code, printed = ask(evaluate.app, str(copied), "--apply", "--calibration", str(file), "--json")
    assert code == 0
    applied = json.loads(printed.splitlines()[-1])["applied"]
    assert (applied["changed"], applied["parts_rewritten"]) == (0, 0)

    _, printed = ask(evaluate.app, str(copied), "--gold", str(done[1]), "--json")
    curve = json.loads(printed.splitlines()[-1])
    assert curve["reliability"]["ece"] < curve["reliability_of_probability"]["ece"]
    assert sum(each["count"] for each in curve["reliability"]["bins"]) == found.about["labels"]["values"]
    assert "Reliability of confidence" in printed

    wide = [str(copied), "--to", "csv", "--json", "--force"]
    some, all_ = (
        json.loads(ask(export.app, *wide, "--out", str(tmp_path / name), *more)[1])
        for name, more in (("a.csv", ()), ("b.csv", ("--all",)))
    )
    assert some["values"] < all_["values"]
    reason = "for review: below what accept.precision asks for"
    assert some["left_out"][reason] == all_["values"] - some["values"]
    assert reason not in all_["left_out"]


def test_killed_between_any_two_writes_it_ends_the_same(
    done: tuple[Workplace, Path], copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "calibration.json"
    learn(copied, done[1], file)
    arguments = [str(copied), "--apply", "--calibration", str(file), "--precision", "0.6"]
    wanted = Path(tmp_path / "whole")
    shutil.copytree(copied, wanted)
    ask(evaluate.app, str(wanted), *arguments[1:])
    write, left = Folder.write, [0]

    class KilledError(BaseException):
        pass

    def dying(self: Folder, name: str, data: bytes) -> None:
        if left[0] == 0:
            raise KilledError
        left[0] -= 1
        write(self, name, data)

    monkeypatch.setattr(Folder, "write", dying)
    for number in range(200):
        left[0] = number
        try:
            code, _ = ask(evaluate.app, *arguments)
        except KilledError:
            continue
        assert code == 0
        break
    assert read_table(copied, "attributes") == read_table(wanted, "attributes")
    assert json.loads((copied / "manifest.json").read_text()) == json.loads((wanted / "manifest.json").read_text())
    shards = [Ledger(Folder(str(run)), "").manifest(0) for run in (copied, wanted)]
    assert shards[0] == shards[1]


def test_a_calibration_of_another_model_is_not_applied(
    done: tuple[Workplace, Path], copied: Path, tmp_path: Path
) -> None:
    file = tmp_path / "calibration.json"
    found = learn(copied, done[1], file)
    other = replace(found.model, model_revision="another")
    file.write_bytes(found.model_copy(update={"model": other}).to_json())
    code, printed = ask(evaluate.app, str(copied), "--apply", "--calibration", str(file))
    assert code == 2
    assert "model_revision another there" in " ".join(printed.split())


def test_a_file_that_is_there_is_not_written_over_unasked(done: tuple[Workplace, Path], tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    file.write_text("mine")
    arguments = [str(done[0].folder / "out"), "--calibrate", "--gold", str(done[1]), "--out", str(file)]
    assert ask(evaluate.app, *arguments, "--dry-run")[0] == 0
    assert ask(evaluate.app, *arguments)[0] == 2
    assert file.read_text() == "mine"
    assert ask(evaluate.app, *arguments, "--force")[0] == 0
    assert Calibration.read(str(file)).about["labels"]["values"] > 0


def confidences(output: Path) -> list[tuple[Any, ...]]:
    """Of all answers; the last digits may differ with the company in which they were decoded."""
    return [
        (row["attribute"], row["value_index"], pytest.approx(row["confidence"], abs=1e-4), row["decision"])
        for row in read_table(output, "attributes")
    ]


def test_a_job_decides_as_a_finished_run_is_decided(done: tuple[Workplace, Path], copied: Path, tmp_path: Path) -> None:
    """And goes on by what it began with; answers that it takes over are decided by that, too."""
    workplace, gold = done
    file = tmp_path / "calibration.json"
    learn(copied, gold, file, "--precision", "0.6", "--apply")
    changes = {"calibration": str(file), "accept": {"precision": 0.6}, "output": str(tmp_path / "new")}
    outcome = workplace.run(**changes)
    wanted = confidences(copied)
    assert confidences(tmp_path / "new") == wanted
    assert outcome.totals.decisions["accept"] > 0
    manifest = json.loads((tmp_path / "new" / "manifest.json").read_text())
    again = json.loads((copied / "manifest.json").read_text())
    assert (manifest["calibration"], manifest["accept"]) == (again["calibration"], again["accept"])

    # From an earlier run that had no calibration.
    base = {"base": str(workplace.folder / "out"), "output": str(tmp_path / "carried")}
    carried = workplace.run(**changes | base)
    assert carried.totals.carried["products"] == NUM_PRODUCTS
    assert confidences(tmp_path / "carried") == wanted


def test_a_run_that_is_continued_keeps_its_calibration(done: tuple[Workplace, Path], tmp_path: Path) -> None:
    workplace, gold = done
    file = tmp_path / "calibration.json"
    found = learn(workplace.folder / "out", gold, file)
    changes = {"calibration": str(file), "output": str(tmp_path / "new")}
    workplace.run(**changes)
    (tmp_path / "new" / "manifest.json").unlink()
    file.unlink()
    outcome = workplace.run(**changes)
    manifest = json.loads((tmp_path / "new" / "manifest.json").read_text())
    assert manifest["calibration"]["hash"] == found.hash
    assert not any("began with" in note for note in outcome.notes)
    (tmp_path / "new" / "manifest.json").unlink()
    outcome = workplace.run(**changes | {"calibration": None, "accept": {"precision": 0.9}})
    assert any("goes on with what it began with" in note for note in outcome.notes)
    assert json.loads((tmp_path / "new" / "manifest.json").read_text())["accept"] is None
