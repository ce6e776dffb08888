"""Models with layers beside attention, as a training sees them: what of them it runs, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hpd_core.errors import ModelError
from hpd_core.mixers.families import Mixers, layer_types_of
from hpd_core.mixers.selective_scan import packed_scan
from hpd_core.training.mixing import TRAINED


def calls_of(model: Any) -> int:
    """How often a forward of the model calls functions of mixing.py: 0 if it is all attention.

    Raises:
        ModelError: the engine runs such layers, and training does not.
    """
    mixers = Mixers.of(model)
    if mixers is None:
        return 0
    if any(function not in TRAINED for function in mixers.functions):
        raise ModelError(
            f"{model.config.model_type} has layers of type {', '.join(sorted(layer_types_of(model.config)))}, through "
            f"which no gradient is computed here. Fine-tune a model with attention in every layer, or beside "
            f"convolutions, delta rules or Mamba 2"
        )
    return mixers.num_layers * len(mixers.functions)


@contextmanager
def handed_on(model: Any, batch: Any) -> Iterator[None]:
    """While it is entered, the decoder within `model` is given the batch, which Mamba 2's model keeps from it."""

    def hand_on(_module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {"hpd_training": batch, **kwargs}

    hook = model.base_model.register_forward_pre_hook(hand_on, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


def num_attending(model_config: Any) -> int:
    """Layers with attention."""
    config = model_config.get_text_config()
    kinds = config.layer_types[: config.num_hidden_layers] if layer_types_of(model_config) else ()
    return sum(kind == "hybrid" or (kind.endswith("_attention") and kind != "linear_attention") for kind in kinds)


def bypassed_linears(model: Any) -> list[str]:
    """Names of linear layers that get no adapter: fused kernels of Mamba 2 multiply by their weights themselves, and
    peft refuses them in some families."""
    mixers = Mixers.of(model)
    return ["out_proj"] if mixers is not None and packed_scan in mixers.functions else []


def refuse_layout(model_config: Any, layout: str) -> None:
    """Raises `ModelError` where the layers cannot be trained in it."""
    kinds = layer_types_of(model_config)
    if kinds and layout == "stacked":
        raise ModelError(
            f"{model_config.model_type} has layers of type {', '.join(sorted(kinds))}, whose tokens hear of others in "
            f"the order of the text: in the layout 'stacked', values stand between keys that are fed before them. Set "
            f"layout to 'tree' or 'ar'"
        )
