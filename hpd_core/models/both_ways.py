"""Models that cannot read documents both ways (`engine.document_attention`), and why."""

from __future__ import annotations

from typing import Any

from hpd_core.errors import ModelError
from hpd_core.mixers.families import layer_types_of
from hpd_core.models import attention_modules, sparse_attention

_WINDOWS = ("sliding_window", "attention_chunk_size")
"""Settings of a layer that sees a window or a chunk of that many positions, and depends on a token's position."""

_ANOTHER = "set it to 'causal', or take a model whose layers all see all tokens (Llama, Qwen, Granite and others)"


def refuse(model: Any) -> None:
    """Raise `ModelError` if the loaded model cannot read documents both ways."""
    refuse_config(model.config)
    if attention_modules.described(model):
        raise _refusal(model.config, "attends by code of its own, which may add to scores by how far tokens are apart")


def refuse_config(model_config: Any) -> None:
    """Raise `ModelError` for a model that is not loaded yet, if its configuration already shows why."""
    kinds = layer_types_of(model_config)
    if kinds:
        what = f"has layers of type {', '.join(sorted(kinds))}, whose tokens hear of others in the order of the text"
        raise _refusal(model_config, what)
    if sparse_attention.settings_of(model_config):
        raise _refusal(model_config, "picks the tokens that each token attends to")
    for name, reach in _reaches(model_config).items():
        raise _refusal(model_config, f"has layers that see no further than {name} {reach} before a token")


def _reaches(model_config: Any) -> dict[str, int]:
    """Return the windows that hide something, by their settings' names."""
    config = model_config.get_text_config()
    if set(getattr(config, "layer_types", None) or ["unknown"]) == {"full_attention"}:
        return {}
    most = getattr(config, "max_position_embeddings", None)
    found = {name: getattr(config, name, None) for name in _WINDOWS}
    return {name: reach for name, reach in found.items() if reach and (most is None or reach < most)}


def _refusal(model_config: Any, what: str) -> ModelError:
    return ModelError(f"engine.document_attention is 'bidirectional', and {model_config.model_type} {what}: {_ANOTHER}")
