"""Forward of the model over a packed row: token ids in, logits out.

Any model of transformers runs by its own code (`transformers_logits`). Layers as in Llama run by ours (`why_not_ours`):
on a GPU those of layers/triton_layers.py, on a CPU `CpuLayers`. The latter uses the model's own linear layers (with AMX
whole MLPs, layers/packed_linears.py). Between them are norms, rotary embedding and SwiGLU in C++
(native/linear.cpp), one function each where transformers makes several copies. If all linear layers are ours, too
(AMX), C++ calls the same functions, all layers in one call (layers/native.py). The last layer after its attention is
computed only for tokens whose logits are wanted. Logits come in blocks, or are never stored (decoding/next_token.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch
import transformers
from torch import Tensor
from transformers.activations import ACT2FN

from hpd_core.attention.dispatch import ATTENTION_NAME, PackedBatch, attending_to
from hpd_core.families.table import FAMILIES
from hpd_core.layers.native import LayerWeights, NativeLayers
from hpd_core.layers.packed_linears import PackedLinears, TiledLogits
from hpd_core.native import library, linear
from hpd_core.native.linear import Norm, norm_of

OurLayers = Literal["native", "triton"]

_ACTIVATIONS = (type(ACT2FN["silu"]), torch.nn.SiLU)


def transformers_logits(
    model: Any, token_ids: Tensor, positions: Tensor, logit_rows: Tensor, batch: PackedBatch
) -> Iterable[Tensor]:
    """Compute logits of some tokens, by the model's own code.

    Args:
        model: attached (`steering.attach`).
        token_ids, positions: int64 [T]
        logit_rows: int64 [n], the tokens whose logits are wanted.

    Returns:
        Blocks of rows of [n, vocabulary], in order. Attention has run when this returns.
    """
    with attending_to(batch, positions):
        output = model(
            input_ids=token_ids[None],
            position_ids=positions[None],
            attention_mask=None,
            use_cache=False,
            logits_to_keep=logit_rows,
        )
    return [wanted_logits(model, output.logits[0], logit_rows, len(token_ids))]


def wanted_logits(model: Any, logits: Tensor, rows: Tensor, num_tokens: int) -> Tensor:
    """Return the logits of `rows`, int64 [n], [n, vocabulary], from the output of a model that was asked for them. Some
    models return those of all `num_tokens` tokens anyway.
    """
    if len(rows) == num_tokens and "logits_to_keep" in inspect.signature(type(model).forward).parameters:
        return logits
    return logits.index_select(0, rows) if len(logits) == num_tokens else logits


def why_not_ours(model: Any, by: OurLayers) -> str | None:
    """Return why `CpuLayers` or `TritonLayers` cannot compute what the model does, or not here; None if they can."""
    name = type(model).__name__
    if not _is_known(model):
        return f"there is no code of ours for {name}"
    if getattr(model, "is_quantized", False):
        return "quantized weights round one row in another way than several"
    norms: list[Any] = []
    for part in _replaced_parts(model):
        of_family = type(part).__module__ == type(model).__module__
        if not of_family and type(part) not in _ACTIVATIONS:
            return f"a part of {name} is a {type(part).__name__}"
        if "forward" in part.__dict__ or part._forward_hooks or part._forward_pre_hooks:
            return f"somebody has changed or hooked a {type(part).__name__}"
        if hasattr(part, "variance_epsilon"):
            norms.append(part.weight)
    dtypes = {weight.dtype for weight in (model.model.embed_tokens.weight, *norms)}
    if len(dtypes) > 1 or (by == "native" and not dtypes <= library.DTYPES.keys()):
        return f"its weights are of {', '.join(sorted(map(str, dtypes)))}"
    if len({weight.device for weight in (model.model.embed_tokens.weight, *norms)}) > 1:
        return "its weights are on several devices"
    if any(not weight.is_contiguous() for weight in norms):
        return "its norms are not in order"
    if by == "native" and any(weight.device.type != "cpu" for weight in norms):
        return "its norms are not on the CPU"
    return None


class Factors(NamedTuple):
    """Granite's factors of the embeddings, of each layer's outputs and of the last norm's output; 1 in others."""

    embeddings: float
    added: float
    output: float

    @classmethod
    def of(cls, model: Any) -> Factors:
        """Read them from Granite's modules: a configuration of another family may name them, too, to no effect."""
        if not hasattr(model.model, "embedding_multiplier"):
            return cls(1.0, 1.0, 1.0)
        added = decoder_layers(model)[0].residual_multiplier
        return cls(model.model.embedding_multiplier, added, 1 / model.config.logits_scaling)


def scaled(x: Tensor, factor: float) -> Tensor:
    """Return `x` times `factor`, without a copy if that is 1."""
    return x if factor == 1 else x * factor


Angles = tuple[Tensor, Tensor]
"""Cosines and sines of rotary embedding."""


def angles_of(model: Any, x: Tensor, positions: Tensor) -> tuple[Angles, Angles]:
    """Return the angles by which heads are turned: in layers without rotary embedding, and in others."""
    cos, sin = (angles[0] for angles in model.model.rotary_emb(x[None], position_ids=positions[None]))
    is_alike = all(map(is_turned, decoder_layers(model)))
    return (cos, sin) if is_alike else (torch.ones_like(cos), torch.zeros_like(sin)), (cos, sin)


def is_turned(layer: Any) -> bool:
    """Return whether a layer has rotary embedding."""
    return bool(getattr(layer.self_attn, "use_rope", True))


class CpuLayers:
    """Layers by our own code on a CPU, for models for which `why_not_ours` is None."""

    by: Literal["native"] = "native"

    def __init__(self, model: Any) -> None:
        self._model = model
        self._layers = list(decoder_layers(model))
        self._factors = Factors.of(model)
        self._is_plain = set(self._factors) == {1.0} and all(map(is_turned, self._layers))
        self._at_once: NativeLayers | None = None

    def forget(self) -> None:
        """Free the memory that is kept from step to step."""
        self._at_once = None

    @property
    def mlps(self) -> list[Any]:
        """MLPs of the layers, which `linears` may compute."""
        return [layer.mlp for layer in self._layers]

    def logits(
        self,
        token_ids: Tensor,
        positions: Tensor,
        logit_rows: Tensor,
        batch: PackedBatch,
        linears: PackedLinears | None = None,
    ) -> Iterable[Tensor] | TiledLogits:
        """Compute as `transformers_logits`, or without storing logits. `linears`: packed weights, active."""
        x = scaled(self._model.model.embed_tokens(token_ids), self._factors.embeddings)  # the residual stream, [T, D]
        angles = angles_of(self._model, x, positions)
        at_once = self._layers_at_once(linears) if linears is not None and self._is_plain else None
        if at_once is not None:
            hidden = at_once.run(x, *angles[True], batch.plans, logit_rows)
            batch.num_calls += len(self._layers)
        else:
            hidden = self._one_by_one(x, angles, logit_rows, batch, linears)
            hidden = scaled(hidden, self._factors.output)
        head = self._model.lm_head
        if linears is not None and (tiled := linears.tiled(head)) is not None:
            return TiledLogits(hidden, tiled, head.weight)
        return self._in_blocks(hidden) if len(logit_rows) else []

    def _layers_at_once(self, linears: PackedLinears) -> NativeLayers | None:
        """Return all layers as one function, if all of their products are by tiles; checked anew for every step."""
        weights = []
        for layer in self._layers:
            attention, mlp = layer.self_attn, linears.gated_mlp(layer.mlp)
            q, k, v, o = map(linears.tiled, (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj))
            if q is None or k is None or v is None or o is None or mlp is None:
                return None
            before_attention, before_mlp = norm_of(layer.input_layernorm), norm_of(layer.post_attention_layernorm)
            norms, window = norms_of_heads(attention), window_of(attention)
            weights.append(
                LayerWeights(before_attention, before_mlp, norms, q, k, v, o, mlp, window, attention.scaling)
            )
        last = norm_of(self._model.model.norm)
        if self._at_once is None or not self._at_once.is_made_of(weights, last):
            self._at_once = NativeLayers(weights, last, self._layers[0].self_attn.head_dim)
        return self._at_once

    def _one_by_one(
        self, x: Tensor, angles: Sequence[Angles], logit_rows: Tensor, batch: PackedBatch, linears: PackedLinears | None
    ) -> Tensor:
        """Compute all layers and the last norm, function by function; [n, D]."""
        layers = self._layers
        attend = transformers.AttentionInterface()[ATTENTION_NAME]
        delta = None  # what the layer before adds to it
        for layer in layers:
            attention, mlp = layer.self_attn, layer.mlp
            normed = linear.add_norm(x, delta, *norm_of(layer.input_layernorm))
            q, k, v = (
                project(normed).view(len(x), -1, attention.head_dim)
                for project in (attention.q_proj, attention.k_proj, attention.v_proj)
            )
            q, k = linear.rotary(q, k, *angles[is_turned(layer)], norms_of_heads(attention))
            attended, _ = attend(
                attention,
                *(heads.transpose(0, 1)[None] for heads in (q, k, v)),
                None,
                scaling=attention.scaling,
                sliding_window=window_of(attention),
                hpd_batch=batch,
            )
            attended = attended[0].flatten(1)
            if layer is layers[-1]:
                # Nobody attends to what comes behind: keys and values are stored.
                if not len(logit_rows):
                    return x[:0]
                attended, x = attended.index_select(0, logit_rows), x.index_select(0, logit_rows)
            delta = scaled(attention.o_proj(attended), self._factors.added)
            normed = linear.add_norm(x, delta, *norm_of(layer.post_attention_layernorm))
            if linears is not None and (gated_mlp := linears.gated_mlp(mlp)) is not None:
                delta = gated_mlp(normed)
            else:
                delta = mlp.down_proj(linear.swiglu(mlp.gate_proj(normed), mlp.up_proj(normed)))
            delta = scaled(delta, self._factors.added)
        return linear.add_norm(x, delta, *norm_of(self._model.model.norm))

    def _in_blocks(self, hidden: Tensor) -> Iterator[Tensor]:
        head = self._model.lm_head
        at_once = max(16, _block_bytes(hidden) // (head.out_features * hidden.element_size()))
        for first in range(0, len(hidden), at_once):
            yield head(hidden[first : first + at_once])


def _block_bytes(hidden: Tensor) -> int:
    """Return the bytes of logits to compute at a time.

    malloc reuses the same 16 MiB, where for more it would ask the system for new pages each time. But weights that are
    not packed (layers/packed_linears.py) are reordered for every product. That costs more than pages if few rows are
    multiplied with many columns.
    """
    return 2**24 if hidden.dtype == torch.bfloat16 else 2**27


def _is_known(model: Any) -> bool:
    """Return whether it is transformers' class of a family of ours: a subclass may do anything."""
    own_class = transformers.MODEL_FOR_CAUSAL_LM_MAPPING.get(type(model.config), None)
    family = FAMILIES.get(model.config.model_type)
    return family is not None and family.our_layers and type(model) is own_class and len(decoder_layers(model)) > 0


def decoder_layers(model: Any) -> Any:
    """Return the layers that run: a configuration may name fewer than there are."""
    return model.model.layers[: model.config.num_hidden_layers]


def _replaced_parts(model: Any) -> Iterator[torch.nn.Module]:
    """Yield the modules that are no longer called: all but embeddings and linear layers, which may be of any kind.

    They come one by one, because a part's children exist only if the part is of the expected class.
    """
    yield model
    base = model.model
    yield base
    yield from (base.rotary_emb, base.norm)
    for layer in decoder_layers(model):
        yield layer
        yield from (layer.input_layernorm, layer.post_attention_layernorm, layer.self_attn, layer.mlp)
        yield layer.mlp.act_fn
        if hasattr(layer.self_attn, "q_norm"):
            yield from (layer.self_attn.q_norm, layer.self_attn.k_norm)


def norms_of_heads(attention: Any) -> tuple[Norm, Norm] | None:
    """Return the norms of queries and of keys, or None."""
    return (norm_of(attention.q_norm), norm_of(attention.k_norm)) if hasattr(attention, "q_norm") else None


def window_of(attention: Any) -> int | None:
    """Return the sliding window of a layer, or None."""
    window: int | None = getattr(attention, "sliding_window", None)
    if attention.config.model_type == "mistral":  # all of its layers have the same
        window = getattr(attention.config, "sliding_window", None)
    return window
