"""The file: what is read back, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import UsageError
from pipelines.quality.calibration_file import Calibration
from tests.pipelines.quality.test_decider import SCORE, attribute, calibration
from tests.tables import table


def taken(counts: Any) -> dict[str, Any]:
    return {"A": {"b": {"definition": "d", "taken": counts}}}


def damaged(**changes: Any) -> str:
    return json.dumps({**calibration(good=attribute(4, 3)).model_dump(mode="json"), **changes})


@table(
    ("content", "says"),
    [
        ("{", "cannot read"),
        ("{}", "is no calibration"),
        (damaged(format=2), "another version"),
        (damaged(thresholds=[0.5]), "another version"),
        (damaged(score={}), "damaged"),
        (damaged(curve={"kind": "platt", "slope": -1, "intercept": 0}), "slope: .*greater than or equal to 0"),
        (damaged(curve={"kind": "isotonic", "scores": [0, 1], "probabilities": [0.5, 1.5]}), "less than or equal to 1"),
        (damaged(curve={"kind": "linear"}), "curve: "),
        (damaged(attributes=taken([[500.9, 500]] * 14)), "valid integer"),
        (damaged(attributes=taken([[9, 9]] * 13 + [[8, 8]])), "do not fit"),
        (damaged(score={**SCORE.model_dump(), "intercept": math.nan}), "finite"),
        (damaged(curve={"kind": "isotonic", "scores": [0, math.nan], "probabilities": [0, 1]}), "finite"),
        (damaged(about=None), "about: "),
        (damaged(about={"labels": "x"}), "'about'"),
        (damaged(model={"model_id": "m"}), "damaged"),
        (damaged(model={**asdict(calibration().model), "new_setting": "x"}), "new_setting"),
    ],
)
def test_what_is_no_calibration_is_refused_with_its_name(content: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=says) as error:
        Calibration.read(str(path))
    assert str(path) in str(error.value)
