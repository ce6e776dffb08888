"""Forward of the model over a packed row: token ids in, logits out.

Any model of transformers runs by its own code (`transformers_logits`). Layers of the most used families (`LayerParts`)
run by ours: on a GPU those of layers/triton_layers.py, on a CPU `CpuLayers`. The latter uses the model's own linear
layers (with AMX whole MLPs, layers/packed_linears.py). Between them are norms, rotary embedding and gates in C++
(native/linear.cpp), one function each where transformers makes several copies. If all linear layers are ours, too
(AMX), C++ calls the same functions, all layers in one call (layers/native.py). The last layer after its attention is
computed only for tokens whose logits are wanted. Logits come in blocks, or are never stored (decoding/next_token.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
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

_GELU = type(ACT2FN["gelu_pytorch_tanh"])
_ACTIVATIONS = (type(ACT2FN["silu"]), torch.nn.SiLU, _GELU)


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
        if type(part).__name__.endswith("RMSNorm"):
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
    """Granite's factors of the embeddings and of the last norm's output; Gemma's soft cap of the logits."""

    embeddings: float = 1.0
    output: float = 1.0
    cap: float | None = None

    @classmethod
    def of(cls, model: Any) -> Factors:
        """Read them only where the family has them: a configuration of another may name them, too, to no effect."""
        if hasattr(decoder_layers(model)[0], "pre_feedforward_layernorm"):
            return cls(cap=model.config.final_logit_softcapping)
        if not hasattr(model.model, "embedding_multiplier"):
            return cls()
        return cls(model.model.embedding_multiplier, 1 / model.config.logits_scaling)

    def capped(self, logits: Tensor) -> Tensor:
        """Return the logits under the cap."""
        return logits if self.cap is None else torch.tanh(logits / self.cap) * self.cap


def scaled(x: Tensor, factor: float) -> Tensor:
    """Return `x` times `factor`, without a copy if that is 1."""
    return x if factor == 1 else x * factor


Angles = tuple[Tensor, Tensor]
"""Cosines and sines of rotary embedding."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerParts:
    """Decoder layer that runs by our code, whatever transformers calls its parts. Its modules may be trained meanwhile.

    Attributes:
        attention, mlp: modules, of which the linear layers are used.
        before_attention, before_mlp: norms of the residual stream; None in OLMo 2 and 3.
        after_attention, after_mlp: norms of what is added to it (Gemma 2 and 3, OLMo, GLM 4), or None.
        of_heads: norms of each head of the queries and of the keys, or None.
        of_all_heads: norms of all heads together of the queries and of the keys (OLMo), or None.
        is_gelu: the MLP's gate goes through GELU; else through SiLU.
        rotary: by which angles heads are turned: "" where the model has one kind, the layer's type where each type has
            its own (Gemma 3, OLMo 3), None where heads are not turned.
        order: int64 [D], the order of a head's numbers in which those that are turned together stand half a head apart;
            None if they do. Queries and keys are ordered alike, so that no score changes.
        softcap: of attention, or None.
        factor: of what is added to the residual stream (Granite).
    """

    attention: Any
    mlp: Any
    before_attention: Any | None
    after_attention: Any | None
    before_mlp: Any | None
    after_mlp: Any | None
    of_heads: tuple[Any, Any] | None
    of_all_heads: tuple[Any, Any] | None
    is_gelu: bool
    rotary: str | None
    order: Tensor | None
    softcap: float | None
    factor: float

    @property
    def window(self) -> int | None:
        """Window of attention, as it is now; in some families all layers have that of the configuration."""
        config = self.attention.config
        return getattr(config if config.model_type in ("mistral", "phi3") else self.attention, "sliding_window", None)

    @property
    def projections(self) -> tuple[Any, ...]:
        """Linear layers of queries, keys and values; Phi 3 has them in one."""
        attention = self.attention
        joined = getattr(attention, "qkv_proj", None)
        return (attention.q_proj, attention.k_proj, attention.v_proj) if joined is None else (joined,)

    @property
    def gates(self) -> tuple[Any, ...]:
        """Linear layers of gate and up; Phi 3 has them in one."""
        joined = getattr(self.mlp, "gate_up_proj", None)
        return (self.mlp.gate_proj, self.mlp.up_proj) if joined is None else (joined,)

    @property
    def head_norms(self) -> tuple[Norm, Norm] | None:
        """Norms of each head, as they are now."""
        return self.of_heads and (norm_of(self.of_heads[0]), norm_of(self.of_heads[1]))

    @property
    def is_as_in_llama(self) -> bool:
        """Whether it is as in Llama, but for norms of heads, windows, and Granite's and SmolLM3's peculiarities."""
        joined = len(self.projections) == 1 or len(self.gates) == 1
        if joined or self.is_gelu or self.after_mlp is not None or self.order is not None:
            return False
        return norm_of(self.before_attention).offset == 0


def parts_of(layer: Any) -> LayerParts:
    """Return the parts of a layer of a model for which `why_not_ours` is None."""
    attention, config = layer.self_attn, layer.self_attn.config
    kind = config.model_type
    before_attention, after_attention, before_mlp, after_mlp = _norms(layer)
    of_heads = (attention.q_norm, attention.k_norm) if hasattr(attention, "q_norm") else None
    goes_together = kind in ("olmo2", "olmo3")
    of_type = {"gemma3_text": "layer_type", "olmo3": "attention_type"}.get(kind)
    return LayerParts(
        attention,
        layer.mlp,
        before_attention,
        after_attention,
        before_mlp,
        after_mlp,
        of_heads=None if goes_together else of_heads,
        of_all_heads=of_heads if goes_together else None,
        is_gelu=isinstance(_activation(layer.mlp), _GELU),
        rotary=(getattr(attention, of_type) if of_type else "") if getattr(attention, "use_rope", True) else None,
        order=_order(attention, layer.post_attention_layernorm.weight.device),
        softcap=config.attn_logit_softcapping if kind == "gemma2" else None,
        factor=getattr(layer, "residual_multiplier", 1.0),
    )


def _order(attention: Any, device: torch.device) -> Tensor | None:
    """Return `LayerParts.order`. Phi 3 may turn a part of each head; GLM does, by pairs of neighbours."""
    kind, size = attention.config.model_type, attention.head_dim
    is_paired = kind in ("glm", "glm4")
    turned = int(size * attention.config.rope_parameters.get("partial_rotary_factor", 1.0))
    turned += turned % 2  # as transformers rounds it
    if not is_paired and (kind != "phi3" or turned == size):  # other families do not read the factor
        return None
    numbers = torch.arange(size, device=device)
    pairs = numbers[:turned].view(-1, 2).t() if is_paired else numbers[:turned].view(2, -1)
    return torch.cat([pairs, numbers[turned:].view(2, -1)], dim=1).flatten()


def angles_of(model: Any, layers: Sequence[LayerParts], x: Tensor, positions: Tensor) -> Sequence[Angles]:
    """Return the angles by which the heads of each layer are turned."""
    found: dict[str | None, Angles] = {}
    for layer in layers:
        if (kind := layer.rotary) not in found:
            of_type = (kind,) if kind else ()
            cos, sin = (angles[0] for angles in model.model.rotary_emb(x[None], positions[None], *of_type))
            cos, sin = (torch.ones_like(cos), torch.zeros_like(sin)) if kind is None else (cos, sin)
            size = 0 if layer.order is None else len(layer.order)
            found[kind] = (_of_heads(cos, size, 1.0), _of_heads(sin, size, 0.0)) if size else (cos, sin)
    return [found[layer.rotary] for layer in layers]


def _of_heads(angles: Tensor, size: int, rest: float) -> Tensor:
    """Return the angles of whole heads in `LayerParts.order`, of those of a part, [T, R]; `rest`: of what stays."""
    half = F.pad(angles[:, : angles.shape[1] // 2], (0, (size - angles.shape[1]) // 2), value=rest)
    return torch.cat([half, half], dim=1)


class CpuLayers:
    """Layers by our own code on a CPU, for models for which `why_not_ours` is None."""

    by: Literal["native"] = "native"

    def __init__(self, model: Any) -> None:
        self._model = model
        self._layers = [parts_of(layer) for layer in decoder_layers(model)]
        self._factors = Factors.of(model)
        self._is_plain = self._factors == Factors() and all(
            layer.is_as_in_llama and layer.factor == 1 and layer.rotary == "" for layer in self._layers
        )
        self._at_once: NativeLayers | None = None

    def forget(self) -> None:
        """Free the memory that is kept from step to step."""
        self._at_once = None

    @property
    def mlps(self) -> list[Any]:
        """MLPs with SwiGLU, which `linears` may compute."""
        return [layer.mlp for layer in self._layers if len(layer.gates) > 1 and not layer.is_gelu]

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
        # OLMo's are wider than the rest, which the library does not read.
        angles = [(cos.to(x), sin.to(x)) for cos, sin in angles_of(self._model, self._layers, x, positions)]
        at_once = self._layers_at_once(linears) if linears is not None and self._is_plain else None
        if at_once is not None:
            hidden = at_once.run(x, *angles[0], batch.plans, logit_rows)
            batch.num_calls += len(self._layers)
        else:
            hidden = self._one_by_one(x, angles, logit_rows, batch, linears)
            hidden = scaled(hidden, self._factors.output)
        head = self._model.lm_head
        if linears is not None and self._factors.cap is None and (tiled := linears.tiled(head)) is not None:
            return TiledLogits(hidden, tiled, head.weight)
        return self._in_blocks(hidden) if len(logit_rows) else []

    def _layers_at_once(self, linears: PackedLinears) -> NativeLayers | None:
        """Return all layers as one function, if all of their products are by tiles; checked anew for every step."""
        weights = []
        for layer in self._layers:
            mlp = linears.gated_mlp(layer.mlp)
            q, k, v, o = map(linears.tiled, (*layer.projections, layer.attention.o_proj))
            if q is None or k is None or v is None or o is None or mlp is None:
                return None
            norms = norm_of(layer.before_attention), norm_of(layer.before_mlp), layer.head_norms
            weights.append(LayerWeights(*norms, q, k, v, o, mlp, layer.window, layer.attention.scaling))
        last = norm_of(self._model.model.norm)
        if self._at_once is None or not self._at_once.is_made_of(weights, last):
            self._at_once = NativeLayers(weights, last, self._layers[0].attention.head_dim)
        return self._at_once

    def _one_by_one(
        self, x: Tensor, angles: Sequence[Angles], logit_rows: Tensor, batch: PackedBatch, linears: PackedLinears | None
    ) -> Tensor:
        """Compute all layers and the last norm, function by function; [n, D]."""
        attend = transformers.AttentionInterface()[ATTENTION_NAME]
        delta = None  # what the layer before adds to it
        for layer, turned_by in zip(self._layers, angles, strict=True):
            q, k, v = _heads(layer, _normed(x, delta, layer.before_attention))
            q, k = linear.rotary(q, k, *turned_by, layer.head_norms)
            attended, _ = attend(
                layer.attention,
                *(heads.transpose(0, 1)[None] for heads in (q, k, v)),
                None,
                scaling=layer.attention.scaling,
                sliding_window=layer.window,
                softcap=layer.softcap,
                hpd_batch=batch,
            )
            attended = attended[0].flatten(1)
            if layer is self._layers[-1]:
                # Nobody attends to what comes behind: keys and values are stored.
                if not len(logit_rows):
                    return x[:0]
                attended, x = attended.index_select(0, logit_rows), x.index_select(0, logit_rows)
            delta = _added(layer, layer.attention.o_proj(attended), layer.after_attention)
            normed = _normed(x, delta, layer.before_mlp)
            delta = _added(layer, _mlp(layer, normed, linears), layer.after_mlp)
        return linear.add_norm(x, delta, norm_of(self._model.model.norm))

    def _in_blocks(self, hidden: Tensor) -> Iterator[Tensor]:
        head = self._model.lm_head
        at_once = max(16, _block_bytes(hidden) // (head.out_features * hidden.element_size()))
        for first in range(0, len(hidden), at_once):
            yield self._factors.capped(head(hidden[first : first + at_once]))


def _normed(x: Tensor, delta: Tensor | None, norm: Any | None) -> Tensor:
    """Add `delta` to the residual stream `x`, in place, and return its norm, if there is one."""
    if norm is not None:
        return linear.add_norm(x, delta, norm_of(norm))
    return x if delta is None else x.add_(delta)


def _heads(layer: LayerParts, normed: Tensor) -> Sequence[Tensor]:
    """Return queries [T, H, D], keys and values [T, H_kv, D], before their rotary embedding."""
    made = [project(normed) for project in layer.projections]
    if len(made) == 1:
        size = made[0].shape[1] // (layer.attention.num_key_value_groups + 2)
        made = [part.contiguous() for part in made[0].split([made[0].shape[1] - 2 * size, size, size], dim=1)]
    if layer.of_all_heads is not None:
        made[:2] = (_normed(x, None, norm) for x, norm in zip(made, layer.of_all_heads, strict=False))
    heads = [x.view(len(x), -1, layer.attention.head_dim) for x in made]
    if layer.order is not None:
        heads[:2] = (x.index_select(2, layer.order) for x in heads[:2])
    return heads


def _mlp(layer: LayerParts, normed: Tensor, linears: PackedLinears | None) -> Tensor:
    mlp = layer.mlp
    if linears is not None and (gated_mlp := linears.gated_mlp(mlp)) is not None:
        return gated_mlp(normed)
    if len(layer.gates) == 1:
        made: Tensor = mlp(normed)
        return made
    gate, up = (project(normed) for project in layer.gates)
    return mlp.down_proj(linear.gated(gate, up, is_gelu=layer.is_gelu))  # type: ignore[no-any-return]


def _added(layer: LayerParts, made: Tensor, norm: Any | None) -> Tensor:
    """Return what the layer adds to the residual stream."""
    return scaled(_normed(made, None, norm), layer.factor)


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
        yield from (*filter(None, _norms(layer)), layer.self_attn, layer.mlp)
        yield _activation(layer.mlp)
        if hasattr(layer.self_attn, "q_norm"):
            yield from (layer.self_attn.q_norm, layer.self_attn.k_norm)


_NORMS = (
    ("input", "post_self_attn", "post_attention", "post_mlp"),  # GLM 4
    ("input", "post_attention", "pre_feedforward", "post_feedforward"),  # Gemma 2 and 3
    ("", "post_attention", "", "post_feedforward"),  # OLMo 2 and 3
    ("input", "", "post_attention", ""),
)
"""What transformers calls the norms before and after attention, and before and after the MLP."""


def _norms(layer: Any) -> Sequence[Any]:
    """Return a layer's norms in the order of `_NORMS`; None where there is none."""
    found = ([getattr(layer, f"{name}_layernorm", None) for name in names] for names in _NORMS)
    return next(
        norms
        for norms, names in zip(found, _NORMS, strict=True)
        if all(norm is not None for norm, name in zip(norms, names, strict=True) if name)
    )


def _activation(mlp: Any) -> Any:
    return mlp.activation_fn if hasattr(mlp, "activation_fn") else mlp.act_fn
