"""Calibrations that a job's configuration asks for, and how a run stores them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hpd_core.models.model_files import local_folder
from pipelines.confidence.calibration_file import CALIBRATION_NAME, CalibratedModel, Calibration
from pipelines.confidence.run_confidence import (
    CONFIDENCE_NAME,
    NamedCalibration,
    RunAcceptance,
    RunConfidence,
    forget_confidence,
    run_confidence,
)
from pipelines.config.extraction import JobConfig
from pipelines.config.operation import AUTO
from pipelines.errors import UsageError
from pipelines.store.folders import Folder, open_filesystem


def wanted_confidence(config: JobConfig) -> RunConfidence:
    """Return the calibrations and acceptance that the configuration asks for. Raises `UsageError` if one cannot be
    read."""
    found = []
    for model, of_larger in ((config, False), (config.cascade, True)):
        if model is None or model.calibration is None:
            continue
        is_named = model.calibration != AUTO
        uri = model.calibration if is_named else beside(model.adapter or model.model)
        if uri is not None:
            found.append(NamedCalibration(uri, Calibration.read(uri), is_named, of_larger))
    accept = config.accept
    return RunConfidence(tuple(found), None if accept is None else RunAcceptance(accept.precision))


def beside(folder: str) -> str | None:
    """Return the URI of the calibration in an adapter's or model's folder; None if there is none, or for a hub's
    model. Raises `UsageError` if the folder cannot be read."""
    if "://" not in folder and local_folder(folder) is None:
        return None
    uri = f"{os.path.expanduser(folder).rstrip('/')}/{CALIBRATION_NAME}"
    filesystem, path = open_filesystem(uri)
    try:
        return uri if filesystem.exists(path) else None
    except OSError as error:
        raise UsageError(f"cannot look for {uri}: {error}") from error


def keep_confidence(output: Folder, config: JobConfig, *, has_answers: bool) -> list[str]:
    """Store the confidence settings of the run in `output`, whose lease must be held; return notes for the user.

    Args:
        has_answers: answers are committed already, so the run keeps its stored settings. If it has none, an older
            version began it, without a calibration.

    Raises `UsageError` as `wanted_confidence` as long as nothing is committed.
    """
    if not has_answers:
        # This also replaces an earlier session's settings: it may have stopped because they did not fit its model.
        output.write(CONFIDENCE_NAME, wanted_confidence(config).to_json())
        forget_confidence()
        return []
    kept = RunConfidence.read(output)
    if kept is None:
        kept = RunConfidence()
        output.create(CONFIDENCE_NAME, kept.to_json())
    if not _is_wanted(kept, config):
        return [
            "the calibration or what is accepted has changed since this run began; it goes on with what it began "
            f"with. `hpd calibrate {output.uri} --apply` decides a finished run anew"
        ]
    return []


def finished_notes(output: Folder, config: JobConfig) -> list[str]:
    """Return notes if the configuration asks for another calibration, or other decisions, than the finished run in
    `output` has."""
    if _is_wanted(RunConfidence.read(output) or RunConfidence(), config):
        return []
    return [
        "the calibration or accept.precision of the configuration is not what this finished run was decided by; "
        f"`hpd calibrate {output.uri} --apply` (--precision P) decides it anew"
    ]


def _is_wanted(kept: RunConfidence, config: JobConfig) -> bool:
    with suppress(UsageError):  # what it went by may be gone; it has its own copy
        return wanted_confidence(config).describe() == kept.describe()
    return True


def confidence_notes(output: Folder, engine: Mapping[str, Any]) -> list[str]:
    """Return reasons why answers of a run's engine have no confidence, or all need review; empty if there are none."""
    return run_confidence(output).notes(CalibratedModel.of(engine)) if "model_id" in engine else []
