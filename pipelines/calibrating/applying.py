"""A calibration used on a finished run."""

from __future__ import annotations

from rich.console import Console

from pipelines.confidence.calibration_file import CalibratedModel, Calibration
from pipelines.confidence.run_confidence import Acceptance, NamedCalibration, RunConfidence
from pipelines.errors import UsageError
from pipelines.job.decided_run import DecidedRun, decide_run
from pipelines.job.run_plan import find_finished
from pipelines.job.wanted_confidence import beside


def apply_calibration(
    run: str,
    uri: str | None,
    calibration: Calibration | None,
    precision: float | None,
    pools_rare: bool,
    console: Console,
    *,
    is_trial: bool,
) -> DecidedRun:
    """Fills the run's confidences and decisions.

    Args:
        uri: of the calibration; None: that beside the run's adapter.
        calibration: what is in it, if that is at hand.
        precision: None: as the run has it.

    Raises `UsageError` if there is no calibration, or none of the run's models is the one that it is of.
    """
    folder, _, manifest = find_finished(run)
    config, cascade = manifest["config"], manifest.get("cascade")
    place = uri or beside(config.get("adapter") or config["model"])
    if place is None:
        raise UsageError(f"--calibration is needed: there is none beside the adapter of {run}")
    named = NamedCalibration(place, calibration or Calibration.read(place), uri is not None)
    models = [CalibratedModel.of(engine["engine"]) for engine in (manifest, cascade) if engine is not None]
    differences = [named.calibration.model.differences(model) for model in models]
    if all(differences):
        raise UsageError(f"{place} was learned from other answers than those of {run}: {'; '.join(differences[0])}")
    before = RunConfidence.read(folder) or RunConfidence()
    # Those of the run's other model stay.
    others = tuple(each for each in before.calibrations if each.calibration.model.differences(named.calibration.model))
    accept = before.accept if precision is None else Acceptance(precision, pools_rare)
    pair = (named, *others) if not differences[0] else (*others, named)
    return decide_run(run, RunConfidence(pair, accept), console, is_trial=is_trial)
