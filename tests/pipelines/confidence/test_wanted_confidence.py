"""What a run keeps of the configuration, from one session to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.confidence.run_confidence import RunConfidence, run_confidence
from pipelines.config.extraction import JobConfig
from pipelines.job.wanted_confidence import finished_notes, keep_confidence
from pipelines.store.folders import Folder
from tests.pipelines.confidence.test_decider import attribute, calibration


def config(folder: Path, **changes: Any) -> JobConfig:
    fields = {
        "output": str(folder / "out"),
        "schemas": "s.yaml",
        "input": {"path": "c.jsonl", "fields": ["title"]},
        "model": "m",
    }
    return JobConfig.model_validate(fields | changes)


def test_what_was_kept_is_replaced_as_long_as_nothing_is_committed(tmp_path: Path) -> None:
    """A calibration that does not fit is refused by the engine, after it was kept: the setting can be mended."""
    file, out = tmp_path / "c.json", Folder(str(tmp_path / "out"))
    file.write_bytes(calibration(good=attribute(40, 30)).to_json())
    keep_confidence(out, config(tmp_path, calibration=str(file), accept={"precision": 0.9}), has_answers=False)
    assert run_confidence(out).calibrations
    assert keep_confidence(out, config(tmp_path, calibration=None), has_answers=False) == []
    assert RunConfidence.read(out) == run_confidence(out) == RunConfidence()


def test_what_was_kept_stays_once_answers_are_committed(tmp_path: Path) -> None:
    out = Folder(str(tmp_path / "out"))
    keep_confidence(out, config(tmp_path, calibration=None), has_answers=False)
    (note,) = keep_confidence(out, config(tmp_path, calibration=None, accept={"precision": 0.9}), has_answers=True)
    assert "goes on with what it began with" in note
    assert RunConfidence.read(out) == RunConfidence()


def test_a_finished_run_says_that_it_was_decided_otherwise(tmp_path: Path) -> None:
    out, before = Folder(str(tmp_path / "out")), config(tmp_path, calibration=None)
    keep_confidence(out, before, has_answers=False)
    assert finished_notes(out, before) == []
    (note,) = finished_notes(out, config(tmp_path, calibration=None, accept={"precision": 0.9}))
    assert "--apply" in note
