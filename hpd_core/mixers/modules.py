"""Modules that mix tokens in another way than attention: what is replaced in them, and the sizes of what they keep."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from hpd_core.errors import ModelError
from hpd_core.mixers.convolution import packed_convolution, packed_gaps, packed_ngrams
from hpd_core.mixers.delta_rule import packed_delta_rule
from hpd_core.mixers.running import LayerStep, PackedFunction, install, running
from hpd_core.mixers.scans import packed_channel_scan, packed_lightning, packed_scan
from hpd_core.mixers.states import MixerPlan, MixerShape


@dataclass(frozen=True, slots=True)
class MixerKind:
    """Kind of module that mixes tokens.

    Attributes:
        functions: ours, by the names of the transformers functions that they replace.
        shape: returns the sizes of what a module keeps.
        methods: ours, by the names of methods of the module.
    """

    functions: Mapping[str, PackedFunction]
    shape: Callable[[Any], MixerShape]
    methods: Mapping[str, PackedFunction] = field(default_factory=dict)


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

CONVOLUTION = MixerKind(_CONVOLUTION, _convolution_shape)
DELTA_RULE = MixerKind({**_CONVOLUTION, "torch_chunk_gated_delta_rule": packed_delta_rule}, _delta_rule_shape)
KIMI = MixerKind({**_CONVOLUTION, "chunk_kimi_delta_attention": packed_delta_rule}, _kimi_shape)
MAMBA_2 = MixerKind({**_CONVOLUTION, "mamba2_chunk_scan": packed_scan}, _scan_shape)
MAMBA_1 = MixerKind({**_CONVOLUTION, "mamba_selective_scan": packed_channel_scan}, _channels_shape)
LIGHTNING = MixerKind({}, _lightning_shape, {"forward": packed_lightning})
NGRAMS = MixerKind({}, _ngrams_shape, {"forward": packed_ngrams})
GAPS = MixerKind({}, _gaps_shape, {"_short_conv": packed_gaps})


class Mixers:
    """Layers of one model that are not attention."""

    def __init__(self, model: Any, kinds: Mapping[str, MixerKind]) -> None:
        """Find and patch the modules. Raise `ModelError` if this version of transformers lacks the first kind.

        Args:
            kinds: by the names of the modules' classes.
        """
        self._modules = [part for part in model.modules() if type(part).__name__ in kinds]
        self._kinds = [kinds[type(module).__name__] for module in self._modules]
        first = next(iter(kinds))
        if all(type(module).__name__ != first for module in self._modules):
            raise ModelError(f"{model.config.model_type} has no {first} in this version of transformers")
        self.shapes: Sequence[MixerShape] = [
            kind.shape(module) for kind, module in zip(self._kinds, self._modules, strict=True)
        ]
        """Shape of each layer."""
        for kind, module in zip(self._kinds, self._modules, strict=True):
            install([module], kind.functions, kind.methods)

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
        steps = [LayerStep(layer, plans) for layer in range(len(self._modules))]
        with running({id(module): step for module, step in zip(self._modules, steps, strict=True)}):
            yield
        for step in steps:
            shape = self.shapes[step.layer]
            if step.has_convolved != (shape.channels > 0) or step.num_recurred != shape.heads:
                kind = self._kinds[step.layer]
                names = ", ".join([*kind.functions, *kind.methods])
                raise ModelError(f"a {type(self._modules[step.layer]).__name__} has not called {names}")
