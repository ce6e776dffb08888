"""Modules of each model family that mix tokens in another way than attention."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from hpd_core.errors import ModelError
from hpd_core.mixers.convolution import packed_convolution, packed_convolution_module, packed_gaps, packed_ngrams
from hpd_core.mixers.delta_rule import packed_delta_rule
from hpd_core.mixers.running import LayerStep, PackedFunction, install, running
from hpd_core.mixers.scans import packed_channel_scan, packed_gated_recurrence, packed_lightning, packed_scan
from hpd_core.mixers.states import MixerPlan, MixerShape


@dataclass(frozen=True, slots=True)
class MixerFamily:
    """Modules of one kind: how they are found and run.

    Attributes:
        layer_types: names in `config.layer_types` of layers that have one, with attention beside it or not.
        module: the name of their class.
        functions: ours, by the names of the transformers functions that they replace.
        shape: returns the sizes of what a module keeps.
        methods: ours, by the names of methods of the module ("forward") or of parts of it ("part.method").
        others: modules of other kinds, which the same models may have beside it.
    """

    layer_types: frozenset[str]
    module: str
    functions: Mapping[str, PackedFunction]
    shape: Callable[[Any], MixerShape]
    methods: Mapping[str, PackedFunction] = field(default_factory=dict)
    others: tuple[MixerFamily, ...] = ()


def _convolution_shape(module: Any) -> MixerShape:
    """Return the shape of a module that keeps only the inputs of its one convolution."""
    (found,) = (part for part in module.children() if isinstance(part, torch.nn.Conv1d))
    weight = found.weight
    return MixerShape(found.in_channels, found.kernel_size[0], weight.dtype, weight.device)


def _delta_rule_shape(module: Any) -> MixerShape:
    """Return the shape of a gated delta rule, whose states decay as a whole."""
    return replace(
        _convolution_shape(module),
        key_heads=module.num_k_heads,
        heads=module.num_v_heads,
        key_size=module.head_k_dim,
        value_size=module.head_v_dim,
    )


def _kimi_shape(module: Any) -> MixerShape:
    """Return the shape of a delta rule whose states decay in each dimension of the keys by itself."""
    heads, size = module.num_heads, module.head_dim
    return replace(
        _convolution_shape(module),
        key_heads=heads,
        heads=heads,
        key_size=size,
        value_size=size,
        decay_size=size,
    )


def _scan_shape(module: Any) -> MixerShape:
    """Return the shape of Mamba 2."""
    return replace(
        _convolution_shape(module),
        key_heads=module.n_groups,
        heads=module.num_heads,
        key_size=module.ssm_state_size,
        value_size=module.head_dim,
        chunk=module.chunk_size,
    )


def _channels_shape(module: Any) -> MixerShape:
    """Return the shape of Mamba 1."""
    return replace(
        _convolution_shape(module),
        key_heads=getattr(module, "n_mamba_heads", 1),
        heads=module.intermediate_size,
        key_size=module.ssm_state_size,
        value_size=1,
    )


def _gated_shape(module: Any) -> MixerShape:
    """Return the shape of RecurrentGemma's recurrence: one number per channel."""
    return replace(_convolution_shape(module), key_heads=1, heads=module.lru_width, key_size=1, value_size=1)


def _lightning_shape(module: Any) -> MixerShape:
    """Return the shape of lightning attention, which has no convolution."""
    weight, heads, size = module.out_proj.weight, module.num_attention_heads, module.head_dim
    return MixerShape(0, 1, weight.dtype, weight.device, heads, heads, size, size)


def _ngrams_shape(module: Any) -> MixerShape:
    """Return the shape of a memory of token ids."""
    return MixerShape(1, module.ngram_size, torch.int64, module.ngram_embedding.weight.device)


def _gaps_shape(module: Any) -> MixerShape:
    """Return the shape of a convolution with gaps: it reaches back to its last tap."""
    return replace(_convolution_shape(module), kernel=module.short_conv_state_len + 1)


_CONVOLUTION: Mapping[str, PackedFunction] = {"causal_conv1d_fn": packed_convolution}

_KIMI = {**_CONVOLUTION, "chunk_kimi_delta_attention": packed_delta_rule}
_SCAN = {**_CONVOLUTION, "mamba2_chunk_scan": packed_scan}
_CHANNELS = {**_CONVOLUTION, "mamba_selective_scan": packed_channel_scan}
_DELTA_RULE = {**_CONVOLUTION, "torch_chunk_gated_delta_rule": packed_delta_rule}
_GATED: Mapping[str, PackedFunction] = {
    "conv_1d.forward": packed_convolution_module,
    "rg_lru._rnn_scan": packed_gated_recurrence,
}
_LIGHTNING: Mapping[str, PackedFunction] = {"forward": packed_lightning}

_CONV, _LINEAR, _HYBRID = (frozenset({kind}) for kind in ("conv", "linear_attention", "hybrid"))
_NGRAMS = MixerFamily(_LINEAR, "Qwen4ExpTextNGramEmbedding", {}, _ngrams_shape, {"forward": packed_ngrams})
_GAPS = MixerFamily(_LINEAR, "Qwen4ExpTextPLELayer", {}, _gaps_shape, {"_short_conv": packed_gaps})

_FAMILIES: Mapping[str, MixerFamily] = {
    "lfm2": MixerFamily(_CONV, "Lfm2ShortConv", _CONVOLUTION, _convolution_shape),
    "lfm2_moe": MixerFamily(_CONV, "Lfm2MoeShortConv", _CONVOLUTION, _convolution_shape),
    "lfm3": MixerFamily(_CONV, "Lfm3ShortConv", _CONVOLUTION, _convolution_shape),
    "qwen3_next": MixerFamily(_LINEAR, "Qwen3NextGatedDeltaNet", _DELTA_RULE, _delta_rule_shape),
    "qwen3_5_text": MixerFamily(_LINEAR, "Qwen3_5GatedDeltaNet", _DELTA_RULE, _delta_rule_shape),
    "qwen3_5_moe_text": MixerFamily(_LINEAR, "Qwen3_5MoeGatedDeltaNet", _DELTA_RULE, _delta_rule_shape),
    "olmo_hybrid": MixerFamily(_LINEAR, "OlmoHybridGatedDeltaNet", _DELTA_RULE, _delta_rule_shape),
    "kimi_linear": MixerFamily(_LINEAR, "KimiLinearDeltaAttention", _KIMI, _kimi_shape),
    "bailing_hybrid": MixerFamily(_LINEAR, "BailingHybridDeltaAttention", _KIMI, _kimi_shape),
    "glm5_next_text": MixerFamily(_LINEAR, "Glm5NextTextLinearAttention", _KIMI, _kimi_shape),
    "granitemoehybrid": MixerFamily(_LINEAR, "GraniteMoeHybridMambaLayer", _SCAN, _scan_shape),
    "falcon_h1": MixerFamily(_HYBRID, "FalconH1Mixer", _SCAN, _scan_shape),
    "mamba2": MixerFamily(_LINEAR, "Mamba2Mixer", _SCAN, _scan_shape),
    "bamba": MixerFamily(_LINEAR, "BambaMixer", _SCAN, _scan_shape),
    "nemotron_h": MixerFamily(_LINEAR, "NemotronHMamba2Mixer", _SCAN, _scan_shape),
    "zamba2": MixerFamily(_LINEAR | _HYBRID, "Zamba2MambaMixer", _SCAN, _scan_shape),
    "mamba": MixerFamily(_LINEAR, "MambaMixer", _CHANNELS, _channels_shape),
    "falcon_mamba": MixerFamily(_LINEAR, "FalconMambaMixer", _CHANNELS, _channels_shape),
    "jamba": MixerFamily(_LINEAR, "JambaMambaMixer", _CHANNELS, _channels_shape),
    "zamba": MixerFamily(_LINEAR | _HYBRID, "ZambaMambaMixer", _CHANNELS, _channels_shape),
    "recurrent_gemma": MixerFamily(_LINEAR, "RecurrentGemmaRecurrentBlock", {}, _gated_shape, _GATED),
    "minimax": MixerFamily(_LINEAR, "MiniMaxLightningAttention", {}, _lightning_shape, _LIGHTNING),
    "qwen4_exp_text": MixerFamily(
        _LINEAR, "Qwen4ExpTextGatedDeltaNet", _DELTA_RULE, _delta_rule_shape, others=(_NGRAMS, _GAPS)
    ),
}
"""Families by the `model_type` of the text's configuration."""


def layer_types_of(model_config: Any) -> frozenset[str]:
    """Return the names of the model's layer types that we run beside attention; empty if it has none."""
    family = _FAMILIES.get(model_config.get_text_config().model_type)
    return frozenset() if family is None else family.layer_types


def refuse_layout(model_config: Any, layout: str) -> None:
    """Raise `ModelError` for a layout that does not support such layers."""
    kinds, name = ", ".join(sorted(layer_types_of(model_config))), model_config.model_type
    if kinds and layout != "tree":
        raise ModelError(
            f"{name} has layers of type {kinds}, whose tokens hear of others in the order of the text. In the layout "
            f"{layout!r} values stand between keys that are fed before them; set engine.layout to 'tree'"
        )


class Mixers:
    """Layers of one model that are not attention."""

    def __init__(self, model: Any, family: MixerFamily) -> None:
        """Find and patch the modules. Raise `ModelError` if this version of transformers lacks them."""
        by_name = {kind.module: kind for kind in (family, *family.others)}
        self._modules = [part for part in model.modules() if type(part).__name__ in by_name]
        self._kinds = [by_name[type(module).__name__] for module in self._modules]
        if family not in self._kinds:
            raise ModelError(f"{model.config.model_type} has no {family.module} in this version of transformers")
        self.shapes: Sequence[MixerShape] = [
            kind.shape(module) for kind, module in zip(self._kinds, self._modules, strict=True)
        ]
        """Shape of each layer."""
        for kind, module in zip(self._kinds, self._modules, strict=True):
            install([module], kind.functions, kind.methods)

    @classmethod
    def of(cls, model: Any) -> Mixers | None:
        """Return the mixers of a model, or None if its configuration names none."""
        config = model.config.get_text_config()
        family = _FAMILIES.get(config.model_type)
        kinds = getattr(config, "layer_types", None) or ()  # where it names none, all are alike
        if family is None or (kinds and not family.layer_types.intersection(kinds[: config.num_hidden_layers])):
            return None
        return cls(model, family)

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return len(self._modules)

    @property
    def functions(self) -> Collection[PackedFunction]:
        """Functions of ours that they call."""
        return {ours for kind in self._kinds for ours in (*kind.functions.values(), *kind.methods.values())}

    @property
    def num_calls(self) -> int:
        """Least number of such calls in a forward."""
        return sum(len(kind.functions) + len(kind.methods) for kind in self._kinds)

    @contextmanager
    def running(self, plans: Sequence[MixerPlan]) -> Iterator[None]:
        """Run one forward of the model over a packed row while the context is entered.

        Raises:
            ModelError: one of them has not called our functions, so its tokens have heard of others.
        """
        steps = [LayerStep(layer, plans) for layer in range(self.num_layers)]
        with running({id(module): step for module, step in zip(self._modules, steps, strict=True)}):
            yield
        for step in steps:
            shape = self.shapes[step.layer]
            if step.has_convolved != (shape.channels > 0) or step.has_recurred != (shape.heads > 0):
                kind = self._kinds[step.layer]
                names = ", ".join([*kind.functions, *kind.methods])
                raise ModelError(f"a {kind.module} has not called {names}")
