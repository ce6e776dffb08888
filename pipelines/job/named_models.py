"""Checks of the models and adapters that a job names, before anything is started.

A folder on this machine or in a storage is checked. A hub's model is looked up only when the run starts, perhaps on
another machine, and the plan says so.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from hpd_core.models.embedded import EMBEDDED_MODELS
from hpd_core.models.model_files import (
    NO_ADAPTER_FOLDER,
    NO_FOLDER,
    adapter_files_problem,
    adapter_problem,
    local_place,
    model_files_problem,
    model_problem,
    what_models_are,
)
from pipelines.config.extraction import JobConfig
from pipelines.errors import UsageError
from pipelines.store.folders import Folder


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
