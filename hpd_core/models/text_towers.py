"""Checkpoints of multimodal models: only their text tower is loaded, and nothing that reads images or sound.

The model's own class is used, without the parts beside the text tower, so that transformers finds the weights whatever
their names. Weights without a place in the model are never read. If transformers has a class for such a tower alone (a
Llama within a LLaVA), the loaded tower is put into one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from transformers import AutoModel
from transformers.modeling_outputs import MoeModelOutputWithPast
from transformers.models.auto import modeling_auto as auto

from hpd_core.errors import ModelError

_MULTIMODAL = (auto.MODEL_FOR_CAUSAL_LM_MAPPING, auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING)


def multimodal_class(model_config: Any) -> Any | None:
    """Return the class of a multimodal model of this configuration; None if `AutoModelForCausalLM` takes the text tower
    alone.

    Raises:
        ModelError: transformers has no class that could be decoded.
    """
    text_config = model_config.get_text_config()
    if text_config is model_config or "AutoModelForCausalLM" in (getattr(model_config, "auto_map", None) or {}):
        return None
    found = next((each[type(model_config)] for each in _MULTIMODAL if type(model_config) in each), None)
    if found is None:
        raise ModelError(
            f"{model_config.model_type} is a multimodal model, and transformers has no class for it that answers in "
            f"text: take a model of a family in docs/models.md"
        )
    takes_text_alone = getattr(found, "config_class", None) in (type(text_config), None)
    return None if takes_text_alone else found


def without_towers(kind: Any) -> Any:
    """Return a subclass of a class from `multimodal_class` without the parts that text does not go through."""

    class TextTower(kind):  # type: ignore[misc]
        def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
            with _nothing_by_timm():
                super().__init__(config, *args, **kwargs)
            _drop_towers(self)

    # By its name transformers knows what weights were called in older checkpoints.
    TextTower.__name__, TextTower.__module__ = kind.__name__, kind.__module__
    return TextTower


@contextmanager
def _nothing_by_timm() -> Iterator[None]:
    """Skip towers that the package timm makes: it is not needed for parts that are left out."""
    make = AutoModel.from_config

    def from_config(config: Any, *args: Any, **kwargs: Any) -> Any:
        is_by_timm = getattr(auto.MODEL_MAPPING.get(type(config), None), "__name__", None) == "TimmWrapperModel"
        return nn.Module() if is_by_timm else make(config, *args, **kwargs)

    with patch.object(AutoModel, "from_config", from_config):
        yield


def _drop_towers(model: Any) -> None:
    decoder = model.get_decoder()
    head = model.get_output_embeddings()
    for owner in {id(each): each for each in (model, model.base_model)}.values():
        for name, part in list(owner.named_children()):
            inside = set(part.modules())
            if part is not head and decoder not in inside and owner is not decoder:
                delattr(owner, name)


def alone(model: Any) -> Any:
    """Return the loaded tower as a text model, if transformers has a class for it that makes the same logits.

    Otherwise return the model unchanged: around a Granite, which scales its logits, a LLaVA does not.
    """
    config, decoder = model.config.get_text_config(), model.get_decoder()
    kind = auto.MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    is_quantized = getattr(model, "is_quantized", False)
    if type(decoder) is kind:  # with a head of its own
        alone, alone.is_quantized = decoder, is_quantized
    elif kind is None or is_quantized:
        return model
    else:
        with torch.device("meta"):
            alone = kind(config)
        prefix = alone.base_model_prefix
        if type(getattr(alone, prefix)) is not type(decoder):
            return model
        setattr(alone, prefix, decoder)
        alone.set_output_embeddings(model.get_output_embeddings())
    if not _make_the_same_logits(model, alone):
        return model
    alone.generation_config = model.generation_config
    config._commit_hash = getattr(model.config, "_commit_hash", None)
    return alone.eval()


@torch.inference_mode()
def _make_the_same_logits(model: Any, alone: Any) -> bool:
    """Return whether two models around the same decoder and head treat their inputs and outputs in the same way.

    Decoder and head are replaced by identities, so that it can be checked without weights, too.
    """
    decoder, head = alone.get_decoder(), alone.get_output_embeddings()
    decoder.forward = lambda *_, inputs_embeds, **__: MoeModelOutputWithPast(last_hidden_state=inputs_embeds)
    head.forward = lambda hidden_states: hidden_states
    try:
        with torch.device("cpu"):
            given = torch.linspace(-50, 50, 3 * model.config.get_text_config().hidden_size).view(1, 3, -1)
            theirs, ours = (each(inputs_embeds=given, use_cache=False).logits for each in (model, alone))
            return torch.allclose(theirs, ours, rtol=1e-3)
    except (AttributeError, IndexError, RuntimeError):
        return True  # it looks at parts that are not there, or at weights: alone, it need not
    finally:
        del decoder.forward, head.forward
