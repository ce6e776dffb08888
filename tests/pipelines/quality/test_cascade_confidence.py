"""With a calibration of the first model its confidence decides what is asked again, and each model keeps its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import UsageError
from pipelines.quality.answer_features import KINDS, NUMBERS, Score
from pipelines.quality.calibration_file import CalibratedModel
from tests.pipelines.conftest import Workplace, read_table
from tests.pipelines.quality.made_answers import made_calibration

SURE, UNSURE = 0.9, 0.3


def calibrated(folder: Path, name: str, engine: dict[str, Any], odds: tuple[float, float]) -> str:
    """A calibration to which brands are as certain as SURE, and everything else as UNSURE."""
    kinds = {kind: {"Brand": odds[0] - odds[1]} if kind == "attribute" else {} for kind in KINDS}
    score = Score(intercept=odds[1], numbers=dict.fromkeys(NUMBERS, 0.0), kinds=kinds, attributes={})
    calibration = made_calibration(CalibratedModel.of(engine), score)
    path = folder / f"{name}.json"
    path.write_bytes(calibration.to_json())
    return str(path)


def test_confidence_decides_what_is_asked_again(cascade: Workplace) -> None:
    """Brands have a confidence of 0.9, other values one of 0.3, whatever their probability."""
    odds = (2.1972245773362196, -0.8472978603872036)
    cascade.run(limit=2)
    output = cascade.folder / "out"
    first, larger = (json.loads((output / name).read_text()) for name in ("_engine.json", "_cascade/_engine.json"))
    own = calibrated(cascade.folder, "own", first, odds)
    of_larger = calibrated(cascade.folder, "larger", larger, odds)
    section = {**cascade.changes["cascade"], "below": 0.5, "calibration": of_larger}
    cascade.run(output=str(cascade.folder / "second"), calibration=own, cascade=section)
    rows = [row for row in read_table(cascade.folder / "second", "attributes") if row["value_index"] == 0]
    asked = [row for row in rows if row["replaced"] is not None]
    assert asked
    for row in rows:
        before = row["replaced"][0] if row["replaced"] else row
        if before["status"] == "value":
            sure = SURE if row["attribute"] == "Brand" else UNSURE
            assert before["confidence"] == pytest.approx(sure)
            if sure >= 0.5:
                assert row["replaced"] is None
        if row["replaced"] and row["status"] == "value":
            # The larger model's answer has its own calibration's.
            assert row["confidence"] == pytest.approx(SURE if row["attribute"] == "Brand" else UNSURE)
    manifest = json.loads((cascade.folder / "second/manifest.json").read_text())
    assert manifest["calibration"]["uri"] == own
    assert manifest["calibration_of_larger_model"]["uri"] == of_larger

    # One that is named for the wrong model is refused, not ignored.
    with pytest.raises(UsageError, match="learned from other answers"):
        cascade.run(output=str(cascade.folder / "third"), cascade={**section, "calibration": own})
    assert not (cascade.folder / "third").exists(), "before any work"
