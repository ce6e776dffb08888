"""Checks of the models and adapters that a job names, before anything is started.

A folder on this machine or in a storage is checked. A hub's model is looked up only when the run starts, perhaps on
another machine, and the plan says so.

Check of named calibrations against the job's models, before anything is stored or an engine is loaded.

Only the contents of the model's files are compared here. The rest is compared once the engine is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hpd_core import EngineConfig, HPDError
from hpd_core.models.embedded import EMBEDDED_MODELS
from hpd_core.models.model_files import (
    NO_ADAPTER_FOLDER,
    NO_FOLDER,
    adapter_files_problem,
    adapter_problem,
    local_folder,
    local_place,
    model_files_problem,
    model_problem,
    what_models_are,
)
from pipelines.config.extraction import JobConfig
from pipelines.config.operation import AUTO
from pipelines.errors import UsageError
from pipelines.quality.both_answers import larger_model
from pipelines.quality.calibration_file import CALIBRATION_NAME, NOT_SAID, CalibratedModel, Calibration
from pipelines.quality.run_confidence import (
    CONFIDENCE_NAME,
    NamedCalibration,
    RunAcceptance,
    RunConfidence,
    forget_confidence,
    run_confidence,
)
from pipelines.store.folders import Folder, open_filesystem


def check_named_models(config: JobConfig) -> list[str]:
    """Return notes on unusable folders that need not be on this machine. Raises `UsageError` for other unusable ones.

    A model may exist only in the image of a cluster's nodes (docs/s3-and-clusters.md). That is assumed of an absolute
    path that does not exist here, in a job whose output every machine can reach.
    """
    notes = []
    for key, name, place in _named(config):
        if place is None:
            if "://" in name:
                _check_storage(config, key, name)
        elif problem := _problem(config, key, name, place):
            if os.path.exists(place) or not ("://" in config.output and name.startswith(("/", "~", "file:"))):
                raise UsageError(problem)
            notes.append(f"{problem}. A run starts only where it is there, as in the image of a cluster's nodes")
    return notes


def _check_storage(config: JobConfig, key: str, uri: str) -> None:
    try:
        names = Folder(uri).list("")
    except Exception as error:  # each storage has errors of its own
        raise UsageError(f"{key}: cannot look into {uri}: {error}") from error
    if problem := _files_problem(config, key, names):
        raise UsageError(_refusal(key, uri, problem))


def _files_problem(config: JobConfig, key: str, names: Collection[str]) -> str | None:
    if key.endswith("adapter"):
        return adapter_files_problem(names) if names else NO_ADAPTER_FOLDER
    if not names:
        return NO_FOLDER
    return None if config.decoding == "made-up" else model_files_problem(names)


def sought_later(config: JobConfig) -> list[tuple[str, str]]:
    """Return keys and names of the models and adapters that are looked up when the run starts: those on the hub."""
    return [(key, name) for key, name, place in _named(config) if place is None and "://" not in name]


def _named(config: JobConfig) -> Iterator[tuple[str, str, Path | None]]:
    """Yield the job's models and adapters: key, name and place on a disk. Embedded models are skipped: they always
    exist."""
    named = [("model", config.model), ("adapter", config.adapter)]
    if config.cascade is not None:
        named += [("cascade.model", config.cascade.model), ("cascade.adapter", config.cascade.adapter)]
    for key, name in named:
        if name is not None and not (key.endswith("model") and name in EMBEDDED_MODELS):
            yield key, name, local_place(name)


def _problem(config: JobConfig, key: str, name: str, place: Path) -> str | None:
    if key.endswith("adapter"):
        reason = adapter_problem(place)
    elif config.decoding == "made-up" and os.path.isdir(place):
        reason = None  # it needs no more of it than the tokenizer
    else:
        reason = model_problem(place)
    return None if reason is None else _refusal(key, name, reason)


def _refusal(key: str, name: str, reason: str) -> str:
    if key.endswith("adapter"):
        return f"{key}: cannot use the adapter {name!r}: {reason}"
    return f"{key}: cannot load the model {name!r}: {reason} ({what_models_are()})"


def check_named(config: JobConfig, confidence: RunConfidence) -> None:
    """Raise `UsageError` if a named calibration was made for another model than the one that it is named for."""
    if config.decoding == "made-up":
        return  # it has no model
    for of_larger in (False, True):
        if any(each.is_named and each.of_larger == of_larger for each in confidence.calibrations):
            try:
                model = _known(larger_model(config) if of_larger else config)
            except HPDError as error:
                raise UsageError(str(error)) from error
            confidence.check(model, of_larger=of_larger)


def _known(config: JobConfig) -> CalibratedModel:
    """Return the known identity of the model that `config` names; unknown parts are `NOT_SAID`."""
    # These import torch, which takes seconds: commands that read a run do without.
    from hpd_core.models.adapter_folder import AdapterRecord, as_trained, open_adapter
    from hpd_core.models.loading import load_tokenizer, resolve_source

    settings, revision = config.engine, _revision(config)
    source = resolve_source(config.model, weights=False)
    with nullcontext() if config.adapter is None else open_adapter(config.adapter) as adapter:
        record = AdapterRecord.read(Path(source)) if adapter is None else adapter.record
        asked = as_trained(settings, record)
    is_hpd = config.decoding == "hpd"
    return CalibratedModel(
        model_id=NOT_SAID,
        model_revision=revision,
        adapter_revision=None if adapter is None else adapter.revision,
        prompt_hash=asked.prompt.rendered_hash(load_tokenizer(config.model, settings)) if is_hpd else NOT_SAID,
        decoding=config.decoding,
        layout=settings.layout if is_hpd else NOT_SAID,
        # Weights may be stored in FP8: nobody has to ask for it.
        quantization=settings.quantization or NOT_SAID,
        max_scored_tokens=_scored_tokens(settings) if is_hpd else NOT_SAID,
        document_attention=asked.document_attention if is_hpd else NOT_SAID,
        strings=settings.strings if is_hpd else NOT_SAID,
        numbers="stated" if is_hpd and settings.chooses_numbers else "free",
        answer_threshold=settings.answer_threshold if is_hpd else NOT_SAID,
    )


def _scored_tokens(settings: EngineConfig) -> int:
    """Return `max_scored_tokens` as the engine describes itself; 0 if it does not score."""
    return settings.max_scored_tokens if settings.layout == "tree" and settings.constrain_values else 0


def _revision(config: JobConfig) -> str | None:
    if "://" in config.model:
        return NOT_SAID  # its weights are not fetched for this
    from hpd_core.models.description import model_revision
    from hpd_core.models.loading import load_config, resolve_source

    loaded = SimpleNamespace(config=load_config(config.model, config.engine))
    return model_revision(loaded, resolve_source(config.model, weights=False))


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
            f"with. `hpd evaluate {output.uri} --apply` decides a finished run anew"
        ]
    return []


def finished_notes(output: Folder, config: JobConfig) -> list[str]:
    """Return notes if the configuration asks for another calibration, or other decisions, than the finished run in
    `output` has."""
    if _is_wanted(RunConfidence.read(output) or RunConfidence(), config):
        return []
    return [
        "the calibration or accept.precision of the configuration is not what this finished run was decided by; "
        f"`hpd evaluate {output.uri} --apply` (--precision P) decides it anew"
    ]


def _is_wanted(kept: RunConfidence, config: JobConfig) -> bool:
    with suppress(UsageError):  # what it went by may be gone; it has its own copy
        return wanted_confidence(config).describe() == kept.describe()
    return True


def confidence_notes(output: Folder, engine: Mapping[str, Any]) -> list[str]:
    """Return reasons why answers of a run's engine have no confidence, or all need review; empty if there are none."""
    return run_confidence(output).notes(CalibratedModel.of(engine)) if "model_id" in engine else []
