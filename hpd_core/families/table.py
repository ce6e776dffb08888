"""Table of the model families that HPD does not run as it runs all others.

A decoder of transformers is run by its own code, its attention goes through transformers' attention interface to ours,
and keys and values are cached. `FAMILIES` says, by `model_type`, what differs: which layers are ours, what is kept
beside keys and values, and what is refused. docs/models.md shows this table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpd_core.errors import ModelError
from hpd_core.mixers import modules as mixing
from hpd_core.mixers.modules import MixerKind, Mixers


@dataclass(frozen=True, slots=True)
class Family:
    """How models of one `model_type` are run.

    Attributes:
        refused: why they cannot be used; "" if they can.
        our_layers: layers/forward.py runs their layers (`LayerParts`).
        mixers: modules that mix tokens beside attention, by the names of their classes. All but the first are optional.
        mixed: names in `config.layer_types` of the layers that have one, with attention beside it or not.
        picked: settings whose product is the number of tokens that an indexer picks for each token to attend to.
        tensor_parallel: which linear layers are cut and how, if transformers has no `base_model_tp_plan`.
    """

    refused: str = ""
    our_layers: bool = False
    mixers: Mapping[str, MixerKind] = field(default_factory=dict)
    mixed: frozenset[str] = frozenset()
    picked: tuple[str, ...] = ()
    tensor_parallel: Mapping[str, str] = field(default_factory=dict)


def _refused(why: str, *names: str) -> dict[str, Family]:
    return dict.fromkeys(names, Family(refused=why))


def _mixing(layer_types: str, *mixers: tuple[str, MixerKind], **others: Any) -> Family:
    return Family(mixers=dict(mixers), mixed=frozenset(layer_types.split()), **others)


_ANOTHER = "take a model of a family in docs/models.md"
_DISTANCES = (
    "each token learns how much it wants to hear from every distance, and adds that to its scores; our attention adds "
    f"to scores what a key brings along, and nothing that depends on both: {_ANOTHER}"
)
_COMPRESSED = (
    "behind a window, tokens see entries that each stand for several tokens, in which the end of a document and the "
    "begin of a branch would stand together: each branch would need entries of its own. Take DeepSeek V3.2, or another "
    "model of a family in docs/models.md"
)
_ABOUT_IMAGES = "it answers about an image, and takes no text without one: take the language model that it was made of"
_CONV, _LINEAR, _BOTH = "conv", "linear_attention", "linear_attention hybrid"
_LFM2_CUTS = {
    **{f"layers.*.self_attn.{name}_proj": "colwise" for name in "qkv"},
    "layers.*.self_attn.out_proj": "rowwise",
    **{"layers.*.feed_forward.w1": "colwise", "layers.*.feed_forward.w3": "colwise"},
    "layers.*.feed_forward.w2": "rowwise",
}

FAMILIES: Mapping[str, Family] = {
    **dict.fromkeys(
        (
            *("cwm", "gemma", "gemma2", "gemma3_text", "glm", "glm4", "granite", "internlm3", "llama", "ministral"),
            *("mistral", "olmo2", "olmo3", "phi3", "qwen2", "qwen3", "seed_oss", "smollm3"),
        ),
        Family(our_layers=True),
    ),
    # Layers beside attention.
    "bailing_hybrid": _mixing(_LINEAR, ("BailingHybridDeltaAttention", mixing.KIMI)),
    "bamba": _mixing(_LINEAR, ("BambaMixer", mixing.MAMBA_2)),
    "falcon_h1": _mixing("hybrid", ("FalconH1Mixer", mixing.MAMBA_2)),
    "falcon_mamba": _mixing(_LINEAR, ("FalconMambaMixer", mixing.MAMBA_1)),
    "glm5_next_text": _mixing(_LINEAR, ("Glm5NextTextLinearAttention", mixing.KIMI)),
    "granitemoehybrid": _mixing(_LINEAR, ("GraniteMoeHybridMambaLayer", mixing.MAMBA_2)),
    "jamba": _mixing(_LINEAR, ("JambaMambaMixer", mixing.MAMBA_1)),
    "kimi_linear": _mixing(_LINEAR, ("KimiLinearDeltaAttention", mixing.KIMI)),
    "lfm2": _mixing(_CONV, ("Lfm2ShortConv", mixing.CONVOLUTION), tensor_parallel=_LFM2_CUTS),
    "lfm2_moe": _mixing(_CONV, ("Lfm2MoeShortConv", mixing.CONVOLUTION)),
    "lfm3": _mixing(_CONV, ("Lfm3ShortConv", mixing.CONVOLUTION)),
    "mamba": _mixing(_LINEAR, ("MambaMixer", mixing.MAMBA_1)),
    "mamba2": _mixing(_LINEAR, ("Mamba2Mixer", mixing.MAMBA_2)),
    "minimax": _mixing(_LINEAR, ("MiniMaxLightningAttention", mixing.LIGHTNING)),
    "nemotron_h": _mixing(_LINEAR, ("NemotronHMamba2Mixer", mixing.MAMBA_2)),
    "olmo_hybrid": _mixing(_LINEAR, ("OlmoHybridGatedDeltaNet", mixing.DELTA_RULE)),
    "qwen3_5_moe_text": _mixing(_LINEAR, ("Qwen3_5MoeGatedDeltaNet", mixing.DELTA_RULE)),
    "qwen3_5_text": _mixing(_LINEAR, ("Qwen3_5GatedDeltaNet", mixing.DELTA_RULE)),
    "qwen3_next": _mixing(_LINEAR, ("Qwen3NextGatedDeltaNet", mixing.DELTA_RULE)),
    "qwen4_exp_text": _mixing(
        _LINEAR,
        ("Qwen4ExpTextGatedDeltaNet", mixing.DELTA_RULE),
        ("Qwen4ExpTextNGramEmbedding", mixing.NGRAMS),
        ("Qwen4ExpTextPLELayer", mixing.GAPS),
        picked=("indexer_budget",),
    ),
    "zamba": _mixing(_BOTH, ("ZambaMambaMixer", mixing.MAMBA_1)),
    "zamba2": _mixing(_BOTH, ("Zamba2MambaMixer", mixing.MAMBA_2)),
    # Refused.
    **_refused(_DISTANCES, "inkling_text", "inkling2_text"),
    **_refused(_COMPRESSED, "deepseek_v4"),
    **_refused(
        f"HPD no longer runs their layers beside attention: {_ANOTHER}", "rwkv", "xlstm", "zaya", "recurrent_gemma"
    ),
    **_refused(
        f"they attend by code of their own and not through transformers' attention interface: {_ANOTHER}",
        *("bloom", "codegen", "cpmant", "doge", "falcon", "gpt_neo", "gpt_neox_japanese", "gptj", "mpt", "openai-gpt"),
        "xglm",
    ),
    **_refused(_ABOUT_IMAGES, "blip-2", "instructblip", "instructblipvideo", "idefics"),
    **_refused(
        "its prompt is read in both directions, where decoding goes from left to right: take a Gemma", "paligemma"
    ),
    **_refused("it answers yes or no about an image, and nothing in text: take a Gemma 3", "shieldgemma2"),
}
"""Families by the `model_type` of their text's configuration; those refused for pictures, by that of the whole."""

_PICKING_LAYERS: Mapping[str, tuple[str, ...]] = {
    "indexed_attention": ("index_topk",),
    "minimax_m3_sparse": ("index_topk_blocks", "index_block_size"),
}
"""`Family.picked` of models of any type with layers of these names in `config.layer_types`."""
_STEERED_LAYERS = frozenset(
    {
        *("full_attention", "sliding_attention", "chunked_attention"),
        "reference_sliding_attention",  # whose window is of generated tokens alone: a plain forward has none
        *("mlp", "moe"),
    }
)
"""Layer types that our masks steer, and those in which tokens do not see others."""
_EVERY_OTHER = Family()


def family_of(model_config: Any) -> Family:
    """Return the family of a model's text."""
    return FAMILIES.get(model_config.get_text_config().model_type, _EVERY_OTHER)


def _layer_types(model_config: Any) -> Sequence[str]:
    return getattr(model_config.get_text_config(), "layer_types", None) or ()


def refuse_unsupported(model_config: Any) -> None:
    """Raise `ModelError` for a model that cannot be used."""
    whole = FAMILIES.get(model_config.model_type, _EVERY_OTHER)
    if why := whole.refused or family_of(model_config).refused:
        raise ModelError(f"{model_config.model_type} models cannot be used: {why}")
    kinds = set(_layer_types(model_config)) - _STEERED_LAYERS - family_of(model_config).mixed
    if most_seen(model_config) is not None:
        kinds -= _PICKING_LAYERS.keys()
    if kinds:
        raise ModelError(
            f"{model_config.model_type} has layers of type {', '.join(sorted(kinds))}. HPD steers what each token sees "
            f"through the attention mask; these layers do not obey it. Use a model with plain "
            f"(or sliding-window) attention in every layer"
        )
    if getattr(model_config.get_text_config(), "is_encoder_decoder", False):
        raise ModelError(f"{model_config.model_type} is an encoder-decoder model; HPD needs a decoder-only one")


def refuse_layout(model_config: Any, layout: str, way_out: str = "engine.layout to 'tree'") -> None:
    """Raise `ModelError` if the model has layers beside attention and the layout is not for them.

    Args:
        way_out: what to set, for the message.
    """
    kinds = ", ".join(sorted(family_of(model_config).mixed))
    if kinds and layout == "stacked":
        raise ModelError(
            f"{model_config.model_type} has layers of type {kinds}, whose tokens hear of others in the order of the "
            f"text. In the layout {layout!r} values stand between keys that are fed before them; set {way_out}"
        )


def mixers_of(model: Any) -> Mixers | None:
    """Return the layers of a model beside attention; None if its configuration names none."""
    family, kinds = family_of(model.config), _layer_types(model.config)
    num_layers = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    # Where it names no types, all layers are alike.
    if not family.mixers or (kinds and not family.mixed.intersection(kinds[:num_layers])):
        return None
    return Mixers(model, family.mixers)


def picked_by(model_config: Any) -> Sequence[Sequence[str]]:
    """Return, for each kind of layer that picks, the settings whose product is the number of tokens."""
    if picked := family_of(model_config).picked:
        return [picked]
    return [_PICKING_LAYERS[kind] for kind in sorted(_PICKING_LAYERS.keys() & set(_layer_types(model_config)))]


def most_seen(model_config: Any) -> int | None:
    """Return the number of tokens up to which all are picked; None if nothing is picked, or it is unknown."""
    config = model_config.get_text_config()
    settings: list[list[Any]] = [[getattr(config, name, None) for name in names] for names in picked_by(model_config)]
    leaves_tail = getattr(config, "index_kpool", 1) > 1 and not config.index_kpool_always_select_tail
    if not settings or leaves_tail or any(value is None for values in settings for value in values):
        return None
    return int(min(math.prod(values) for values in settings))


def moving_ropes(model_config: Any) -> list[dict[str, Any]]:
    """Return the settings of rotary embeddings that change with the length of a text, of all types of layers."""
    rope = getattr(model_config.get_text_config(), "rope_parameters", None) or {}
    variants = [rope] if "rope_type" in rope else [each for each in rope.values() if isinstance(each, dict)]
    return [each for each in variants if each.get("rope_type") in ("longrope", "dynamic")]


def refuse_both_ways(model_config: Any) -> None:
    """Raise `ModelError` if the model cannot read documents both ways."""
    config, family = model_config.get_text_config(), family_of(model_config)
    windows = {name: getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")}
    longest = getattr(config, "max_position_embeddings", None)
    limits = [f"{name} {reach}" for name, reach in windows.items() if reach and (longest is None or reach < longest)]
    if family.mixed:
        kinds = ", ".join(sorted(family.mixed))
        why = f"has layers of type {kinds}, whose tokens hear of others in the order of the text"
    elif picked_by(model_config):
        why = "picks the tokens that each token attends to"
    elif limits and set(_layer_types(model_config)) != {"full_attention"}:
        why = f"has layers that see no further than {limits[0]} before a token"
    else:
        return
    raise ModelError(
        f"engine.document_attention is 'bidirectional', and {model_config.model_type} {why}: set it to 'causal', or "
        f"take a model whose layers all see all tokens (Llama, Qwen, Granite and others)"
    )
