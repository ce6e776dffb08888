"""Messages about what a run waits for while an engine is made."""

from __future__ import annotations

from pipelines.config.extraction import JobConfig

FIRST_SHARDS = "first shards"
"""Message after an engine is made."""
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def loading_note(config: JobConfig) -> str:
    """Return the steps of making an engine: loading, and what is fetched or compiled first if it is not here yet."""
    from hpd_core.system.storage import cache_folder

    parts = [f"loading the model {config.model}"]
    if _is_elsewhere(config.model):
        parts.insert(0, f"fetching the model {config.model}")
    if config.engine.device.startswith("cuda"):
        parts.append("compiling its kernels")
    elif config.decoding == "hpd" and not any((cache_folder() / "native").glob("kernels-*.so")):
        parts.append("compiling kernels for this processor")
    return ", ".join(parts)


def _is_elsewhere(model: str) -> bool:
    """Return whether weights come over the network: neither local nor in the hub's cache."""
    from hpd_core.models.embedded import EMBEDDED_MODELS
    from hpd_core.models.model_files import local_place

    if model in EMBEDDED_MODELS or local_place(model) is not None:
        return False
    if "://" in model:
        return True
    from huggingface_hub import try_to_load_from_cache

    return not any(isinstance(try_to_load_from_cache(model, name), str) for name in _WEIGHTS)
