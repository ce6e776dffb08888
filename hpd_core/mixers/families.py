"""Modules of each model family that mix tokens in another way than attention."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hpd_core.errors import ModelError
from hpd_core.mixers import shapes
from hpd_core.mixers.channel_scan import packed_channel_scan, packed_gated_recurrence
from hpd_core.mixers.convolution import packed_convolution, packed_convolution_module
from hpd_core.mixers.delta_rule import packed_delta_rule
from hpd_core.mixers.lightning import packed_lightning
from hpd_core.mixers.ngrams import packed_gaps, packed_ngrams
from hpd_core.mixers.running import LayerStep, PackedFunction, install, running
from hpd_core.mixers.selective_scan import packed_scan
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
_NGRAMS = MixerFamily(_LINEAR, "Qwen4ExpTextNGramEmbedding", {}, shapes.ngrams, {"forward": packed_ngrams})
_GAPS = MixerFamily(_LINEAR, "Qwen4ExpTextPLELayer", {}, shapes.gaps, {"_short_conv": packed_gaps})

_FAMILIES: Mapping[str, MixerFamily] = {
    "lfm2": MixerFamily(_CONV, "Lfm2ShortConv", _CONVOLUTION, shapes.convolution),
    "lfm2_moe": MixerFamily(_CONV, "Lfm2MoeShortConv", _CONVOLUTION, shapes.convolution),
    "lfm3": MixerFamily(_CONV, "Lfm3ShortConv", _CONVOLUTION, shapes.convolution),
    "qwen3_next": MixerFamily(_LINEAR, "Qwen3NextGatedDeltaNet", _DELTA_RULE, shapes.delta_rule),
    "qwen3_5_text": MixerFamily(_LINEAR, "Qwen3_5GatedDeltaNet", _DELTA_RULE, shapes.delta_rule),
    "qwen3_5_moe_text": MixerFamily(_LINEAR, "Qwen3_5MoeGatedDeltaNet", _DELTA_RULE, shapes.delta_rule),
    "olmo_hybrid": MixerFamily(_LINEAR, "OlmoHybridGatedDeltaNet", _DELTA_RULE, shapes.delta_rule),
    "kimi_linear": MixerFamily(_LINEAR, "KimiLinearDeltaAttention", _KIMI, shapes.kimi),
    "bailing_hybrid": MixerFamily(_LINEAR, "BailingHybridDeltaAttention", _KIMI, shapes.kimi),
    "glm5_next_text": MixerFamily(_LINEAR, "Glm5NextTextLinearAttention", _KIMI, shapes.kimi),
    "granitemoehybrid": MixerFamily(_LINEAR, "GraniteMoeHybridMambaLayer", _SCAN, shapes.scan),
    "falcon_h1": MixerFamily(_HYBRID, "FalconH1Mixer", _SCAN, shapes.scan),
    "mamba2": MixerFamily(_LINEAR, "Mamba2Mixer", _SCAN, shapes.scan),
    "bamba": MixerFamily(_LINEAR, "BambaMixer", _SCAN, shapes.scan),
    "nemotron_h": MixerFamily(_LINEAR, "NemotronHMamba2Mixer", _SCAN, shapes.scan),
    "zamba2": MixerFamily(_LINEAR | _HYBRID, "Zamba2MambaMixer", _SCAN, shapes.scan),
    "mamba": MixerFamily(_LINEAR, "MambaMixer", _CHANNELS, shapes.channels),
    "falcon_mamba": MixerFamily(_LINEAR, "FalconMambaMixer", _CHANNELS, shapes.channels),
    "jamba": MixerFamily(_LINEAR, "JambaMambaMixer", _CHANNELS, shapes.channels),
    "zamba": MixerFamily(_LINEAR | _HYBRID, "ZambaMambaMixer", _CHANNELS, shapes.channels),
    "recurrent_gemma": MixerFamily(_LINEAR, "RecurrentGemmaRecurrentBlock", {}, shapes.gated, _GATED),
    "minimax": MixerFamily(_LINEAR, "MiniMaxLightningAttention", {}, shapes.lightning, _LIGHTNING),
    "qwen4_exp_text": MixerFamily(
        _LINEAR, "Qwen4ExpTextGatedDeltaNet", _DELTA_RULE, shapes.delta_rule, others=(_NGRAMS, _GAPS)
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
