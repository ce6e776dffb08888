"""Rotary embeddings that change with the length of a text: `longrope` (Phi 3), `dynamic`.

Beyond some length a plain forward rotates every earlier token anew. Keys and values kept of a document would then be
wrong. One long record would also change the answers of all that share a row with it. So texts are limited to the length
up to which nothing changes.
"""

from __future__ import annotations

from typing import Any

_BY_LENGTH = frozenset({"longrope", "dynamic"})


def unchanged_up_to(model_config: Any) -> int | None:
    """Return the number of positions up to which the rotary embedding is the same for any text; None if it never
    changes.
    """
    config = model_config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    variants = [rope] if "rope_type" in rope else [each for each in rope.values() if isinstance(each, dict)]
    own = getattr(config, "original_max_position_embeddings", None)
    changing = [each for each in variants if each.get("rope_type") in _BY_LENGTH]
    limits = [each.get("original_max_position_embeddings") or own for each in changing]
    return min((limit for limit in limits if limit), default=None)


def warning(model_config: Any) -> str | None:
    """Return a warning for models that could read longer texts by themselves, or None."""
    limit = unchanged_up_to(model_config)
    claimed = getattr(model_config.get_text_config(), "max_position_embeddings", None)
    if limit is None or claimed is None or claimed <= limit:
        return None
    return (
        f"{model_config.model_type}'s rotary embedding changes for texts of more than {limit:,} positions: records "
        f"that need more are refused, though the model takes {claimed:,}; for those take a model of another family"
    )
