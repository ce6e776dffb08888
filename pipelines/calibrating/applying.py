"""Application of a calibration to a finished run."""

from __future__ import annotations

from rich.console import Console

from pipelines.confidence.calibration_file import CalibratedModel, Calibration
from pipelines.confidence.run_confidence import NamedCalibration, RunAcceptance, RunConfidence
from pipelines.errors import UsageError
from pipelines.job.run_plan import find_finished
from pipelines.job.wanted_confidence import beside
from pipelines.rewriting.decided_run import DecidedRun, decide_run


def apply_calibration(
    run: str,
    uri: str | None,
    calibration: Calibration | None,
    precision: float | None,
    console: Console,
    *,
    larger: bool = False,
    is_trial: bool,
) -> DecidedRun:
    """Set the run's confidences and decisions.

    Args:
        uri: place of the calibration; None: beside the run's adapter.
        larger: the calibration is for the larger model of the run's cascade, and is beside that model's adapter.
        calibration: its content, if already read.
        precision: None: as set in the run.

    Raises `UsageError` if there is no calibration, or it belongs to none of the run's models.
    """
    folder, _, manifest = find_finished(run)
    config, cascade = manifest["config"], manifest.get("cascade")
    if larger and cascade is None:
        raise UsageError(f"--larger: {run} has no cascade")
    beside_it = config["cascade"] if larger else config
    place = uri or beside(beside_it.get("adapter") or beside_it["model"])
    if place is None:
        raise UsageError(f"--calibration is needed: there is none beside the adapter of {run}")
    learned = calibration or Calibration.read(place)
    models = [CalibratedModel.of(each["engine"]) for each in (manifest, cascade) if each is not None]
    differences = [learned.model.differences(model) for model in models]
    if larger:
        differences[0] = differences[0] or ["--larger says that it is of the other model"]
    if all(differences):
        raise UsageError(f"{place} was learned from other answers than those of {run}: {'; '.join(differences[0])}")
    before = RunConfidence.read(folder) or RunConfidence()
    named = NamedCalibration(place, learned, is_named=uri is not None, of_larger=bool(differences[0]))
    # That of the run's other model stays.
    others = [each for each in before.calibrations if each.of_larger != named.of_larger]
    accept = before.accept if precision is None else RunAcceptance(precision)
    pair = sorted([named, *others], key=lambda each: each.of_larger)
    return decide_run(run, RunConfidence(tuple(pair), accept), console, is_trial=is_trial)
