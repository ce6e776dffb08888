"""Check that a model's answers do not depend on padding before a prompt, as batches of `generate` need it."""

from __future__ import annotations

from typing import Any


def takes_padding(model: Any) -> bool:
    """Return whether padding changes no answer, as for nearly all models: masks hide it, and positions are counted
    after it.

    Llama 4 scales queries by the number of tokens before them. MiniMax M3 picks blocks counted from the first token.
    RecurrentGemma's state goes through padding as through text.
    """
    if model.config.get_text_config().model_type == "recurrent_gemma":
        return False
    modules = list(model.modules())
    scales = any(getattr(each, "attn_temperature_tuning", False) for each in modules)
    return not scales and not any(hasattr(each, "build_block_mask") for each in modules)
