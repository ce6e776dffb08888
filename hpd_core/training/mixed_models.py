"""Training of models with layers beside attention: which of them it runs, and which it refuses."""

from __future__ import annotations

from typing import Any

from hpd_core.errors import ModelError
from hpd_core.mixers.channel_scan import packed_channel_scan
from hpd_core.mixers.families import Mixers, layer_types_of
from hpd_core.mixers.selective_scan import packed_scan
from hpd_core.training.mixing import MADE_OF_OTHERS, TRAINED


def calls_of(model: Any) -> int:
    """Return how often a forward of the model calls functions of ours at least: 0 if it is all attention.

    Raises:
        ModelError: the engine runs such layers, and training does not.
    """
    mixers = Mixers.of(model)
    if mixers is None:
        return 0
    if not TRAINED.keys() | MADE_OF_OTHERS >= set(mixers.functions):
        raise ModelError(
            f"{model.config.model_type} has layers of type {', '.join(sorted(layer_types_of(model.config)))}, through "
            f"which no gradient is computed here. Fine-tune a model of another family"
        )
    return mixers.num_calls


def num_attending(model_config: Any) -> int:
    """Return the number of layers with attention, in a model that has others."""
    config = model_config.get_text_config()
    kinds = (getattr(config, "layer_types", None) or ())[: config.num_hidden_layers]
    return sum(kind == "hybrid" or (kind.endswith("_attention") and kind != "linear_attention") for kind in kinds)


def bypassed_linears(model: Any) -> list[str]:
    """Return the names of linear layers that get no adapter. Mamba's modules or their fused kernels take the weights
    out of them and multiply by themselves, bypassing anything put around the layer.
    """
    mixers = Mixers.of(model)
    functions = mixers.functions if mixers is not None else ()
    of_scan = ["out_proj"] if packed_scan in functions else []
    return ["dt_proj", "out_proj"] if packed_channel_scan in functions else of_scan


def refuse_layout(model_config: Any, layout: str) -> None:
    """Raise `ModelError` if the layers cannot be trained in this layout."""
    kinds = layer_types_of(model_config)
    if kinds and layout == "stacked":
        raise ModelError(
            f"{model_config.model_type} has layers of type {', '.join(sorted(kinds))}, whose tokens hear of others in "
            f"the order of the text: in the layout 'stacked', values stand between keys that are fed before them. Set "
            f"layout to 'tree' or 'ar'"
        )
