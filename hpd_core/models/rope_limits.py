"""Rotary embeddings that change with the length of a text: `longrope` (Phi 3), `dynamic`.

Beyond some length a plain forward turns every earlier token anew. Nothing that was kept of a document would be right
for its values then, and one long record would change the answers of all that share a row with it. So texts are held to
the length up to which nothing changes.
"""

from __future__ import annotations

from typing import Any

_BY_LENGTH = frozenset({"longrope", "dynamic"})


def unchanged_up_to(model_config: Any) -> int | None:
    """The positions up to which the rotary embedding is the same for any text; None where it is for all."""
    config = model_config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    variants = [rope] if "rope_type" in rope else [each for each in rope.values() if isinstance(each, dict)]
    own = getattr(config, "original_max_position_embeddings", None)
    changing = [each for each in variants if each.get("rope_type") in _BY_LENGTH]
    limits = [each.get("original_max_position_embeddings") or own for each in changing]
    return min((limit for limit in limits if limit), default=None)


def warning(model_config: Any) -> str | None:
    """What to tell who loads a model that could read longer texts by itself."""
    limit = unchanged_up_to(model_config)
    claimed = getattr(model_config.get_text_config(), "max_position_embeddings", None)
    if limit is None or claimed is None or claimed <= limit:
        return None
    return (
        f"{model_config.model_type}'s rotary embedding changes for texts of more than {limit:,} positions: records "
        f"that need more are refused, though the model takes {claimed:,}; for those take a model of another family"
    )
