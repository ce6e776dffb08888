"""Description of an engine, to trace how an answer came about."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, TypedDict


class EngineDescription(TypedDict):
    """Description of an engine in `manifest.json` under `engine`: all that answers and speed depend on.

    A setting that is 'auto' is given as resolved; a value that does not apply is null.
    """

    model_id: Annotated[str, "the model, as the user named it"]
    model_revision: Annotated[str | None, "what names exactly its weights: the hub's commit, or a digest of its files"]
    adapter_id: Annotated[str | None, "the adapter, likewise"]
    adapter_revision: Annotated[str | None, "what names exactly its weights"]
    decoding: Annotated[str, "'hpd', 'ar' or 'made-up'"]
    layout: Annotated[str, "of prompts and answers"]
    dtype: Annotated[str | None, "in which it computes"]
    attention: Annotated[str, "how it attends; with 'ar' by transformers' name"]
    layers: Annotated[str, "whose code runs the model's layers"]
    quantization: Annotated[str | None, "of the weights"]
    max_scored_tokens: Annotated[int, "of the setting; 0 where closed answers are decoded token by token"]
    strings: Annotated[str | None, "of the setting: 'free' or 'verbatim'"]
    answer_threshold: Annotated[float | None, "of the setting"]
    limits: Annotated[
        dict[str, int] | None,
        "how much is decoded at a time, when it has been loaded: max_tokens_per_step, max_prompts_per_cohort, "
        "max_cached_tokens, max_cached_prefixes. Where memory is missing later, it goes on with less",
    ]
    overlap_steps: Annotated[bool, "whether two steps are under way at a time"]
    model_size: Annotated[
        dict[str, int] | None,
        "layer_parameters, which a token goes through; head_parameters, which make logits; weight_bytes; of layers "
        "beside attention state_operations for a token, state_bytes of a prompt and column_bytes of a value's token; "
        "cached_bytes of a token in the KV cache",
    ]
    tensor_parallel: Annotated[int, "GPUs that share every layer"]
    device: Annotated[str, "cpu, or the GPU's number"]
    device_name: Annotated[str | None, "the GPU's name, or the number of CPU cores"]
    keys: Annotated[str | None, "how keys are written, 'full' or 'short'"]
    document_attention: Annotated[str | None, "what a document's tokens see of each other, as set"]
    prompt_hash: Annotated[str, "a hash of all that the model reads around a document, the schema apart"]
    notes: Annotated[list[str], "what a user should know about this combination of settings"]
    versions: Annotated[dict[str, str], "of hpd, torch and transformers"]


def versions() -> dict[str, str]:
    """Return the versions of the packages that compute the answers; "source" if one is not installed."""
    found = {}
    for name, package in (("hpd", "hyper-parallel-decoding"), ("torch", "torch"), ("transformers", "transformers")):
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            found[name] = "source"
    return found
