"""With a calibration of the first model its confidence decides what is asked again, and each model keeps its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hpd_core import Engine, EngineConfig
from pipelines.confidence.calibration_file import CalibratedModel, Calibration
from pipelines.confidence.curves import Platt
from pipelines.confidence.score import KINDS, NUMBERS, Score
from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from pipelines.costing.pilot import identity
from pipelines.errors import UsageError
from pipelines.extract import app
from pipelines.job.preflight import plan_job
from pipelines.job.run_plan import differences
from tests.pipelines.cascading.conftest import settings
from tests.pipelines.conftest import Workplace, products, read_table

SURE, UNSURE = 0.9, 0.3


def calibrated(folder: Path, name: str, engine: dict[str, Any], odds: tuple[float, float]) -> str:
    """A calibration to which brands are as certain as SURE, and everything else as UNSURE."""
    kinds = {kind: {"Brand": odds[0] - odds[1]} if kind == "attribute" else {} for kind in KINDS}
    score = Score(odds[1], (0.0,) * len(NUMBERS), kinds, {})
    calibration = Calibration(CalibratedModel.of(engine), score, Platt(1.0, 0.0), {})
    path = folder / f"{name}.json"
    path.write_bytes(calibration.to_json())
    return str(path)


def test_a_pilot_is_of_one_calibration(workplace: Workplace, larger: Path) -> None:
    workplace.write_parquet("a.parquet", products(30))
    engine: dict[str, Any] = {"model_id": "m", "model_revision": "r", "adapter_revision": None, "prompt_hash": "p"}

    def found(**changes: Any) -> dict[str, Any]:
        job = plan_job(load_config(JobConfig, str(workplace.write_config(**changes)), []))
        return identity(job, 20, 0)

    second = {"cascade": settings(workplace, larger)}
    one, other = (calibrated(workplace.folder, name, engine, odds) for name, odds in (("a", (1, 0)), ("b", (2, 0))))
    bare, with_one, with_other = (found(**second, calibration=each) for each in (None, one, other))
    assert differences(bare, with_one)
    assert differences(with_one, with_other)
    assert found(calibration=one) == found(calibration=other), "alone, it decides nothing that costs"


@pytest.mark.parametrize("is_of_it", [True, False])
def test_a_dry_run_looks_at_a_named_calibration(workplace: Workplace, is_of_it: bool) -> None:
    with Engine.from_pretrained(str(workplace.model), EngineConfig()) as engine:
        description = dict(engine.describe())
    workplace.write_parquet("a.parquet", products(3))
    named = calibrated(
        workplace.folder, "named", description | ({} if is_of_it else {"model_revision": "other"}), (1, 0)
    )
    config = workplace.write_config(calibration=named)
    result = CliRunner().invoke(app, ["--config", str(config), "--dry-run"])
    assert result.exit_code == (0 if is_of_it else 2), result.output
    assert ("model_revision" in result.stderr) != is_of_it


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
