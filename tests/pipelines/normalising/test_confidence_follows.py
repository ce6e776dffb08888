"""Values that are normalised anew have the confidence and decision of what they are now."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from pipelines.normalise import app
from pipelines.quality.answer_features import KINDS, NUMBERS, Score
from pipelines.quality.calibration_file import CalibratedModel
from pipelines.quality.run_confidence import NamedCalibration, RunAcceptance, RunConfidence
from pipelines.reviewing.decided_run import decide_run
from pipelines.reviewing.reviewed_run import write_reviews
from pipelines.store.folders import Folder
from pipelines.store.totals import Totals
from tests.pipelines.conftest import read_table
from tests.pipelines.quality.made_answers import made_calibration
from tests.pipelines.reviewing.made_runs import key_of, reviewable_run
from tests.pipelines.reviewing.said import desk, say

ENGINE: dict[str, Any] = {"model_id": "m", "model_revision": "r", "adapter_revision": None, "prompt_hash": "p"}
WITHOUT_MEDIUM = {"categories": {"Coffee": [{"name": "Roast", "type": "enum", "values": ["dark", "light"]}]}}


def by_status(weight: float) -> RunConfidence:
    """A calibration that knows nothing but how a value was normalised."""
    kinds: dict[str, dict[str, float]] = {kind: {} for kind in KINDS} | {"norm_status": {"ok": weight}}
    score = Score(intercept=-1.0, numbers=dict.fromkeys(NUMBERS, 0.0), kinds=kinds, attributes={})
    calibration = made_calibration(CalibratedModel.of(ENGINE), score)
    return RunConfidence((NamedCalibration("here", calibration, is_named=True),), RunAcceptance(0.9))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a calibration."""
    run = reviewable_run(tmp_path, **ENGINE)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest |= {"engine": ENGINE, "totals": Totals().to_dict()}
    (run / "manifest.json").write_text(json.dumps(manifest))
    decide_run(str(run), by_status(2.0), Console(quiet=True))
    return run


def decisions(run: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((run / "manifest.json").read_text())["totals"]["decisions"]
    return found


def normalise(run: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    schemas = run.parent / "edited.yaml"
    schemas.write_text(yaml.safe_dump(WITHOUT_MEDIUM))
    result = CliRunner().invoke(
        app, [str(run), "--schemas", str(schemas), "--json", *arguments], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    *said, last = result.output.splitlines()
    return "\n".join(said), json.loads(last)


def roasts(run: Path) -> set[tuple[str | None, float | None]]:
    rows = [row for row in read_table(run, "attributes") if row["attribute"] == "Roast"]
    return {(row["norm_status"], row["confidence"]) for row in rows}


def test_confidence_follows_the_normalised_value(run: Path) -> None:
    ((status, before),) = roasts(run)
    assert status == "ok"
    _, counts = normalise(run, "--dry-run")
    assert counts["decided_otherwise"] is None
    assert roasts(run) == {(status, before)}
    said, counts = normalise(run)
    assert "confidence and decision by the run's own calibration: 6 answers have another one" in said
    assert counts["decided_otherwise"] == 6, "the roasts, and the weights, whose unit stands nowhere"
    ((now, after),) = roasts(run)
    assert now != "ok"
    assert before is not None
    assert after is not None
    assert after < before
    assert normalise(run)[1]["decided_otherwise"] == 0


def test_killed_at_any_write_while_people_have_answered_the_same_again_ends_the_same(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = desk(run)
    say(at, key_of(run, 0, "Brand"), "correct", "Acme")
    say(at, key_of(run, 2, "Notes"), "accept")
    at.close()
    write_reviews(str(run), Console(quiet=True))
    whole = tmp_path / "whole"
    shutil.copytree(run, whole)
    decide_run(str(whole), by_status(1.0), Console(quiet=True))
    write, num_kills = Folder.write, 0
    for number in range(100):
        left = [number]

        def dying(folder: Folder, name: str, data: bytes, left: list[int] = left) -> None:
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            write(folder, name, data)

        monkeypatch.setattr(Folder, "write", dying)
        try:
            decide_run(str(run), by_status(1.0), Console(quiet=True))
            break
        except KeyboardInterrupt:
            num_kills += 1
        finally:
            monkeypatch.setattr(Folder, "write", write)
    assert num_kills >= 3
    assert read_table(run, "attributes") == read_table(whole, "attributes")
    assert read_table(run, "reviews/replaced") == read_table(whole, "reviews/replaced")
    assert decisions(run) == decisions(whole) == {"review": 12}
