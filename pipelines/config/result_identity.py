"""Identity of a job's results: the part of its configuration that a resume must not change."""

from __future__ import annotations

from typing import Any

from hpd_core.types import content_hash
from pipelines.config.extraction import JobConfig

# What cannot change a result, only where it goes, how fast it comes, or how it is judged.
_FREE_SECTIONS = (
    *("run_id", "output", "schemas", "executor", "shards", "actors", "retries"),
    *("cost", "max_dead_letter_share", "log_seconds"),
    # A run keeps those that it began with, so a resume cannot change them (job/wanted_confidence.py).
    *("calibration", "accept"),
)
LATER_INPUT_KEYS = ("copied", "language", "encoding", "delimiter", "quote", "escape", "sheet")
_FREE_ENGINE_KEYS = (
    *("max_tokens_per_step", "max_prompts_per_cohort", "max_cached_tokens", "max_cached_prefixes"),
    *("layers", "share_text", "cuda_graphs"),
)


def result_config(config: JobConfig) -> dict[str, Any]:
    """Return the part of the configuration that decides results, as plain data. A resume must not change it.

    The schema *file name* is excluded: the plan records the schemas' content hash instead.
    """
    data = config.model_dump(mode="json", exclude=set(_FREE_SECTIONS))
    data["engine"] = _result_engine(data["engine"])
    if config.cascade is None:
        del data["cascade"]  # likewise: see below
    else:
        del data["cascade"]["actors"], data["cascade"]["calibration"]
        data["cascade"]["engine"] = _result_engine(data["cascade"]["engine"])
    # How the catalog is reached does not change what is in it.
    data["input"].pop("anonymous")
    for key in LATER_INPUT_KEYS:
        # Runs that were planned before there was such a key can still be continued.
        if data["input"][key] in (None, {}):
            del data["input"][key]
    if config.input.html == "never":
        # As it was before there was a choice: a run that was begun then is continued with 'never'.
        del data["input"]["html"]
    for key in ("adapter", "base", "retry_failed"):
        if data[key] is None:
            # Runs that were planned before there was such a key can still be continued.
            del data[key]
    # The order of the fields is their order in the prompt; a hash does not see the order of a mapping.
    data["input"]["fields"] = [list(field) for field in data["input"]["fields"].items()]
    return data


def _result_engine(data: dict[str, Any]) -> dict[str, Any]:
    """Return an engine's settings that decide results."""
    found = {key: value for key, value in data.items() if key not in _FREE_ENGINE_KEYS}
    if found["tensor_parallel"] == 1:
        del found["tensor_parallel"]  # likewise
    if found["document_attention"] == "auto":
        del found["document_attention"]  # likewise
    if found["strings"] == "free":
        del found["strings"]  # likewise
    if found["answer_threshold"] is None:
        del found["answer_threshold"]  # likewise
    if found["max_scored_tokens"] == 0:
        # As it was before there was a choice: a run that was begun then is continued with 0.
        del found["max_scored_tokens"]
    return found


def config_hash(config: JobConfig) -> str:
    """Return a hash that is equal for configurations with the same results on the same input."""
    return content_hash(result_config(config))
