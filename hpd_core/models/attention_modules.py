"""Families that attend by code of their own, not through transformers' attention interface: made to call ours.

Each is described in a few lines: which method of its attention module computes attention, and how to get queries, keys
and values from that method's arguments. While our decoder runs the model, the description is called instead of the
method. Otherwise the method is called, so that the model by itself is unchanged.

ALiBi: scores that grow by a slope per head with a key's position (BLOOM, MPT, Falcon RW), in every backend.

A softmax does not change if the same number is added to all of its scores. So ALiBi's penalty for the distance is a
bonus for the key's position, which does not depend on the query. It is stored in extra dimensions of the keys, which
queries multiply with the inverse of the scale. So kernels, caches and prefixes do not know of it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hpd_core.attention.dispatch import ATTENTION_NAME, NO_BATCH, current_batch, packed_attention


@dataclass(frozen=True, slots=True)
class Description:
    """Attention of a module, as we call it.

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


def _of_inner(scale: Callable[[Any], float], window: Callable[[Any], int | None] = lambda _: None) -> Description:
    """Describe a module with a method `_attn` from queries, keys and values [1, H, T, D] to answers [1, H, T, D]."""

    def attend(module: Any, q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
        return _attend(module, q, k, v, scale(module), window=window(module)).transpose(1, 2), None

    return Description("_attn", attend)


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


_DESCRIPTIONS = {
    "GPTJAttention": _of_inner(lambda module: 1 / module.scale_attn),
    "CodeGenAttention": _of_inner(lambda module: 1 / module.scale_attn),
    "GPTNeoXJapaneseAttention": _of_inner(lambda module: 1 / module.norm_factor),
    "GPTNeoSelfAttention": _of_inner(
        lambda _: 1.0, lambda module: module.config.window_size if module.attention_type == "local" else None
    ),
    "Attention": Description("_attn", _openai_gpt),
    "XGLMAttention": Description("forward", _xglm),
    "BloomAttention": Description("forward", _bloom, _bloom_slopes),
    "MptAttention": Description("forward", _mpt, _mpt_slopes),
    "FalconAttention": Description("forward", _falcon, _bloom_slopes),
    "DogeAttention": Description("forward", _doge),
}
"""Descriptions by the name of transformers' class."""


def described(model: Any) -> list[Any]:
    """Return the model's attention modules, layer by layer, if they are of the families above."""
    return [module for module in model.modules() if _description_of(module) is not None]


def steer(model: Any) -> bool:
    """Make the model's attention modules call ours while our decoder runs. Return whether they are of the families
    above.
    """
    modules = described(model)
    for number, module in enumerate(modules):
        description = _description_of(module)
        assert description is not None
        if not hasattr(module, "layer_idx"):
            module.layer_idx = number
        if not hasattr(module, "hpd_slopes"):
            slopes = description.slopes(module)
            module.hpd_slopes = None if slopes is None else slopes.to(model.device)
        module.hpd_config = model.config
        setattr(module, description.method, MethodType(_method(type(module), description), module))
        is_mpt = type(module).__name__ == "MptAttention"
        if is_mpt and _with_mask not in model.base_model._forward_pre_hooks.values():
            model.base_model.register_forward_pre_hook(_with_mask, with_kwargs=True)
    return bool(modules)


def _description_of(module: Any) -> Description | None:
    is_transformers = type(module).__module__.startswith("transformers.models.")
    return _DESCRIPTIONS.get(type(module).__name__) if is_transformers else None


def _method(kind: type, description: Description) -> Callable[..., Any]:
    own = getattr(kind, description.method)

    @functools.wraps(own)
    def method(module: Any, *args: Any, **kwargs: Any) -> Any:
        call = description.attend if _is_steered(module.hpd_config) else own
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
