"""Families that attend by code of their own, not through transformers' attention interface: made to call ours.

Each is described in a few lines: which method of its attention module computes attention, and how to get queries, keys
and values from that method's arguments. While our decoder runs the model, the description is called instead of the
method. Otherwise the method is called, so that the model by itself is unchanged.

ALiBi: scores that grow by a slope per head with a key's position (BLOOM, MPT, Falcon RW), in every backend.

A softmax does not change if the same number is added to all of its scores. So ALiBi's penalty for the distance is a
bonus for the key's position, which does not depend on the query. It is stored in extra dimensions of the keys, which
queries multiply with the inverse of the scale. So kernels, caches and prefixes do not know of it.

Models with multi-head latent attention: made to hand us latents, which are kept in place of keys and values.

In all families of transformers that have it, an attention module has a method of its own, `expand_kv`. It makes keys
and values from latents as the last thing before attention. While our decoder runs the model with a cache of latents,
the method passes them on unchanged (attention/latent.py).

Query scaling of Llama 4: queries of layers without rotary embeddings are scaled by a token's place in the row.

A packed row holds many texts. So while our decoder or our training runs the model, these layers learn each token's
position from the value that they ask a cache for: the number of tokens before the row.

Models in which an indexer picks a limited number of tokens, or of blocks of them, that each token attends to.

While no token sees more than that, all are picked, and attention is like any other: the indexer is skipped while our
decoder runs the model. Longer texts are refused, as those beyond a model's context are.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hpd_core.attention.dispatch import ATTENTION_NAME, NO_BATCH, current_batch, packed_attention
from hpd_core.system.device import is_waited_for


@dataclass(frozen=True, slots=True)
class AttentionMethod:
    """Attention of a module that does not call transformers' interface, as we call it.

    Attributes:
        method: name of the method that computes attention.
        attend: called in its place, with the module before its arguments.
        slopes: returns a module's ALiBi slopes by head, fp32 [H], or None if it has none.
    """

    method: str
    attend: Callable[..., Any]
    slopes: Callable[[Any], Tensor | None] = lambda _: None


def _attend(
    module: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, *, window: int | None = None, bias: Tensor | None = None
) -> Tensor:
    """Return the attention, [1, T, H, D_v]. Some families compute queries and keys in fp32 whatever the model's dtype.

    Args:
        q: [1, H, T, D]; k, v: [1, H_kv, T, D] and [1, H_kv, T, D_v].
        bias: fp32 [T, H or H_kv], of the keys, added after the scale: ALiBi's, or Doge's.
    """
    q, k = q.to(v.dtype), k.to(v.dtype)
    if bias is not None:
        q, k = with_key_bias(q, k, bias, scale)
    has_bias = bias is not None
    return packed_attention(module, q, k, v, None, scaling=scale, sliding_window=window, exact_scores=has_bias)[0]


def _position_bias(module: Any, rounded_to: torch.dtype) -> Tensor:
    """Return ALiBi's bias, fp32 [T, H], rounded as the family rounds it."""
    batch = current_batch()
    assert batch is not None
    assert batch.positions is not None
    # Moved once, if at all: the host would wait for it in every layer of every step.
    slopes: Tensor = module.hpd_slopes.to(batch.positions.device)
    module.hpd_slopes = slopes
    return (slopes.to(rounded_to) * batch.positions[:, None]).float()


def _inner(scale: Callable[[Any], float], window: Callable[[Any], int | None] = lambda _: None) -> AttentionMethod:
    """Describe a module with a method `_attn` from queries, keys and values [1, H, T, D] to answers [1, H, T, D]."""

    def attend(module: Any, q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
        return _attend(module, q, k, v, scale(module), window=window(module)).transpose(1, 2), None

    return AttentionMethod("_attn", attend)


def _openai_gpt(module: Any, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> list[Tensor]:
    scale = v.shape[-1] ** -0.5 if module.scale else 1.0
    return [_attend(module, q, k.transpose(2, 3), v, scale).transpose(1, 2)]


def _xglm(module: Any, hidden_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
    shape = (*hidden_states.shape[:2], -1, module.head_dim)
    projections = (module.q_proj, module.k_proj, module.v_proj)
    q, k, v = (project(hidden_states).view(shape).transpose(1, 2) for project in projections)
    return module.out_proj(_attend(module, q, k, v, module.scaling).flatten(2)), None


def _mpt(module: Any, hidden_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
    mixed = module.Wqkv(hidden_states)
    if module.clip_qkv:
        mixed = mixed.clamp(-module.clip_qkv, module.clip_qkv)
    shape = (*hidden_states.shape[:2], module.n_heads, module.head_dim)
    q, k, v = (part.reshape(shape).transpose(1, 2) for part in mixed.chunk(3, dim=2))
    bias = _position_bias(module, torch.float32)
    return module.out_proj(_attend(module, q, k, v, module.softmax_scale, bias=bias).flatten(2)), None


def _bloom(module: Any, hidden_states: Tensor, residual: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
    q, k, v = module._reshape(module.query_key_value(hidden_states))
    bias = _position_bias(module, torch.float32).to(v.dtype).float()
    attended = _attend(module, q, k, v, module.inv_norm_factor, bias=bias)
    return module.dense(attended.flatten(2)) + residual, None


def _falcon(module: Any, hidden_states: Tensor, *_: Any, **arguments: Any) -> tuple[Tensor, None]:
    mixed = module.query_key_value(hidden_states)
    heads, scale, bias = module.num_heads, module.head_dim**-0.5, None
    if module.new_decoder_architecture or module.multi_query:  # a KV head behind the query heads that share it
        group = heads // module.num_kv_heads
        parts = mixed.view(*mixed.shape[:2], module.num_kv_heads, group + 2, module.head_dim)
        q, k, v = parts[..., :-2, :].flatten(2, 3), parts[..., -2, :], parts[..., -1, :]
    else:
        q, k, v = module._split_heads(mixed)
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    if module.hpd_slopes is None:
        rotate = sys.modules[type(module).__module__].apply_rotary_pos_emb
        q, k = rotate(q, k, *arguments["position_embeddings"])
    else:  # each query head has a bias of its own
        k, v = (part.repeat_interleave(heads // part.shape[1], dim=1) for part in (k, v))
        bias = _position_bias(module, torch.bfloat16) * scale
    return module.dense(_attend(module, q, k, v, scale, bias=bias).flatten(2)), None


def _doge(
    module: Any, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor], *_: Any, **__: Any
) -> tuple[Tensor, None]:
    shape = (*hidden_states.shape[:2], -1, module.head_dim)
    q, k = module.q_proj(hidden_states).view(shape), module.k_proj(hidden_states).view(shape)
    rotate = sys.modules[type(module).__module__].apply_rotary_pos_emb
    q, k = rotate(module.q_norm(q).transpose(1, 2), module.k_norm(k).transpose(1, 2), *position_embeddings)
    values = module.v_proj(hidden_states)
    # What a token adds to its scores, whoever looks at it: the mask of the family's own, where no token is left out.
    bias = torch.exp(module.A * F.softplus(module.dt_proj(values)))[0].float()
    v, window = values.view(shape).transpose(1, 2), module.config.sliding_window
    return module.o_proj(_attend(module, q, k, v, module.scaling, window=window, bias=bias).flatten(2)), None


def _bloom_slopes(module: Any) -> Tensor | None:
    """Return the slopes of the family's own function: its values at the second position. None without ALiBi."""
    if not getattr(getattr(module, "config", None), "alibi", True):
        return None
    build = sys.modules[type(module).__module__].build_alibi_tensor
    found: Tensor = build(torch.ones(1, 2, dtype=torch.long), module.num_heads, torch.float32)[:, 0, 1]
    return found


def _mpt_slopes(module: Any) -> Tensor | None:
    build = sys.modules[type(module).__module__].build_mpt_alibi_tensor
    table: Tensor = build(module.n_heads, 2)
    return -table[:, 0, 0]


GPTJ = _inner(lambda module: 1 / module.scale_attn)
GPT_NEOX_JAPANESE = _inner(lambda module: 1 / module.norm_factor)
GPT_NEO = _inner(lambda _: 1.0, lambda module: module.config.window_size if module.attention_type == "local" else None)
OPENAI_GPT = AttentionMethod("_attn", _openai_gpt)
XGLM = AttentionMethod("forward", _xglm)
BLOOM = AttentionMethod("forward", _bloom, _bloom_slopes)
MPT = AttentionMethod("forward", _mpt, _mpt_slopes)
FALCON = AttentionMethod("forward", _falcon, _bloom_slopes)
DOGE = AttentionMethod("forward", _doge)


def steer_method(model: Any, modules: Sequence[Any], ours: AttentionMethod) -> None:
    """Make the model's attention modules, layer by layer, call `ours` while our decoder runs."""
    for number, module in enumerate(modules):
        if not hasattr(module, "layer_idx"):
            module.layer_idx = number
        if not hasattr(module, "hpd_slopes"):
            slopes = ours.slopes(module)
            module.hpd_slopes = None if slopes is None else slopes.to(model.device)
        module.hpd_config = model.config
        setattr(module, ours.method, MethodType(_method(type(module), ours), module))
        if ours is MPT and _with_mask not in model.base_model._forward_pre_hooks.values():
            model.base_model.register_forward_pre_hook(_with_mask, with_kwargs=True)


def _method(kind: type, ours: AttentionMethod) -> Callable[..., Any]:
    own = getattr(kind, ours.method)

    @functools.wraps(own)
    def method(module: Any, *args: Any, **kwargs: Any) -> Any:
        call = ours.attend if _is_steered(module.hpd_config) else own
        return call(module, *args, **kwargs)

    return method


def _with_mask(model: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """Give MPT a mask while our decoder runs: it processes the mask that it makes itself, but uses a given one as it
    is.
    """
    return (args, {**kwargs, "attention_mask": torch.zeros(1, 1, 1, 1)}) if _is_steered(model.config) else None


def _is_steered(model_config: Any) -> bool:
    """Return whether our decoder runs the model.

    Raises:
        RuntimeError: another caller runs it without restoring its own attention: there is no mask, and tokens would see
            later ones.
    """
    if current_batch() is not None:
        return True
    if model_config._attn_implementation == ATTENTION_NAME:
        raise RuntimeError(NO_BATCH)
    return False


EXTRA_SIZE = 8
"""Number of dimensions that keys grow by: three are used, and heads stay aligned."""


def with_key_bias(q: Tensor, k: Tensor, bias: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Extend queries and keys, so that their scores include the keys' bias.

    In half precision bias and inverse scale are sums of two numbers each. The product of the two small ones is omitted:
    it is below the resolution of fp32.

    Args:
        q, k: [1, H, T, D]
        bias: fp32 [T, H], added to the scores of a key after scaling.
        scale: factor of the scores.

    Returns:
        The same with `EXTRA_SIZE` more dimensions.
    """
    keys = k.new_zeros(*k.shape[:3], EXTRA_SIZE)
    large = bias.T.to(k.dtype)
    keys[..., 0] = keys[..., 2] = large
    keys[..., 1] = bias.T - large
    queries = torch.zeros(EXTRA_SIZE, dtype=torch.float32, device=q.device)
    queries[:2] = torch.tensor(1 / scale).to(q.dtype)
    queries[2] = 1 / scale - queries[0]
    return torch.cat([q, queries.to(q.dtype).expand(*q.shape[:3], -1)], -1), torch.cat([k, keys], -1)


def steer_latents(model: Any) -> None:
    """Make the model's attention modules pass on latents while our decoder asks for them."""
    for module in model.modules():
        if type(module).__module__.startswith("transformers.models.") and hasattr(type(module), "expand_kv"):
            module.expand_kv = MethodType(_handing_on(type(module)), module)


def _handing_on(kind: Any) -> Any:
    own = kind.expand_kv

    @functools.wraps(own)
    def expand_kv(module: Any, latents: Tensor, rotated: Tensor) -> tuple[Tensor, Tensor]:
        """Concatenate latents [1, 1, T, r] and rotated parts [1, 1, T, d] of keys; return that, and values of size
        0.
        """
        batch = current_batch()
        if batch is not None and batch.keeps_latents and _is_matrix(module.kv_b_proj):
            return torch.cat([latents, rotated], dim=3), latents[..., :0]
        expanded: tuple[Tensor, Tensor] = own(module, latents, rotated)
        return expanded

    return expand_kv


def _is_matrix(layer: Any) -> bool:
    """Return whether a layer is a product with its weight and nothing else. An 8-bit layer rounds its inputs, so that
    multiplying the query with its weight would give another result.
    """
    return type(layer) is torch.nn.Linear and layer.bias is None and not is_waited_for(layer)


@dataclass(frozen=True, slots=True)
class _Before:
    """Stand-in for transformers' cache: the offset from each token's place in the row to its position, int64 [T]."""

    distances: Tensor

    def get_seq_length(self, _layer: int) -> Tensor:
        return self.distances

    def update(self, keys: Tensor, values: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
        return keys, values


def steer_query_scales(model: Any) -> None:
    """Make the layers count positions while a packed row goes through the model."""
    for module in model.modules():
        is_scaled = getattr(module, "attn_temperature_tuning", False) and not getattr(module, "use_rope", True)
        if is_scaled and _with_positions not in module._forward_pre_hooks.values():
            module.register_forward_pre_hook(_with_positions, with_kwargs=True)


def _with_positions(_module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    batch = kwargs.get("hpd_training") or current_batch()
    if batch is None:
        return None
    assert batch.positions is not None
    positions = batch.positions.flatten()
    before = _Before(positions - torch.arange(len(positions), device=positions.device))
    return args, {**kwargs, "past_key_values": before}


_EVERYTHING = {
    "Qwen4ExpTextQSAIndexer": torch.ones(1, 1, 1, 1, dtype=torch.bool),
    "Glm5NextTextIndexer": torch.zeros(1, 0, 0, dtype=torch.int32),
}
"""Placeholder output by class of indexer, for runs that ignore it; other classes return no indices."""


def steer_sparse(model: Any) -> None:
    """Skip the model's indexers while our decoder runs it."""
    for module in model.modules():
        indexer = getattr(module, "indexer", None)
        if isinstance(indexer, torch.nn.Module) and "forward" not in indexer.__dict__:
            indexer.forward = MethodType(_without_picking(type(indexer), model.device), indexer)
            mask = torch.zeros(1, 1, 1, 1, device=model.device)
            module.register_forward_pre_hook(functools.partial(_with_own_mask, mask), with_kwargs=True)


def _without_picking(kind: Any, device: torch.device) -> Any:
    own = kind.forward
    everything = _EVERYTHING.get(kind.__name__, torch.zeros(0, dtype=torch.int32)).to(device)

    @functools.wraps(own)
    def forward(indexer: Any, *args: Any, **kwargs: Any) -> Tensor:
        is_ours = current_batch() is not None
        picked: Tensor = everything if is_ours else own(indexer, *args, **kwargs)
        return picked

    return forward


def _with_own_mask(mask: Tensor, _module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """Pass a mask while our decoder runs: the modules need one to slice for their indexers, or to join with their
    picks.
    """
    return None if current_batch() is None else (args, {**kwargs, "attention_mask": mask})
