"""The arguments of `attention.cpp`, from an attention plan."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hpd_core.layout import IntArray
from hpd_core.native.library import library

if TYPE_CHECKING:
    from hpd_core.attention import AttentionPlan

DTYPES = (torch.float32, torch.bfloat16)

_NO_WINDOW = 2**31 - 1
_INT, _NUMBER, _POINTER = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


class _Problem(ctypes.Structure):
    """`Problem` of attention.cpp, field by field."""

    _fields_ = [
        *((name, _INT) for name in ("num_prompts", "num_kv_heads", "group", "key_size", "value_size", "num_tokens")),
        *((name, _INT) for name in ("num_prefixes", "window")),
        *((name, _NUMBER) for name in ("scale", "softcap")),
        *((name, _POINTER) for name in ("q", "k", "v")),
        *((name, _INT) for name in ("q_token", "q_head", "k_token", "k_head", "v_token", "v_head")),
        *((name, _POINTER) for name in ("out", "keys", "values")),
        ("capacity", _INT),
        *((name, _POINTER) for name in ("counts", "used", "q_scopes", "q_positions")),
        ("q_row", _INT),
        *((name, _POINTER) for name in ("k_scopes", "k_positions")),
        ("k_row", _INT),
        *((name, _POINTER) for name in ("kv_prompts", "kv_columns", "prefix_of")),
        *((name, _POINTER) for name in ("prefix_keys", "prefix_values", "prefix_lengths", "sinks")),
        ("num_threads", _INT),
    ]


def native_attention(
    plan: AttentionPlan,
    layer: int,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> None:
    """Stores the keys and values of a cohort's new tokens, and attends for them.

    Args:
        q: [t, H, D]; k, v: [t, H_kv, D] and [t, H_kv, D_v], in fp32 or bf16, numbers of one head side by side.
        out: [t, H, D_v], contiguous; it is written.
        window, softcap, sinks: as `packed_attention` has them.

    Raises:
        NativeError: the library cannot be had.
    """
    keys, values = plan.keys[layer], plan.values[layer]
    q, k, v = (x if x.stride(2) == 1 else x.contiguous() for x in (q, k, v))
    prefixes = list(dict.fromkeys(group.prefix for group in plan.groups if group.prefix is not None))
    prefix_of = np.full(len(keys), -1, dtype=np.int64)
    for group in plan.groups:
        if group.prefix is not None:
            prefix_of[group.start : group.stop] = prefixes.index(group.prefix)
    lengths = np.array([prefix.num_tokens for prefix in prefixes], dtype=np.int64)
    prefix_keys = np.array([_address(prefix.keys[layer]) for prefix in prefixes], dtype=np.int64)
    prefix_values = np.array([_address(prefix.values[layer]) for prefix in prefixes], dtype=np.int64)
    float_sinks = None if sinks is None else sinks.float().contiguous()
    problem = _Problem(
        *keys.shape[:2],
        q.shape[1] // keys.shape[1],
        q.shape[2],
        v.shape[2],
        len(q),
        len(prefixes),
        window or _NO_WINDOW,
        scale,
        softcap or 0.0,
        *(x.data_ptr() for x in (q, k, v)),
        *(x.stride(axis) for x in (q, k, v) for axis in (0, 1)),
        *(_address(x) for x in (out, keys, values)),
        keys.shape[2],
        *(_address(x) for x in (plan.counts, plan.used, plan.q_scopes, plan.q_positions)),
        plan.q_scopes.shape[1],
        plan.k_scopes.data_ptr(),
        plan.k_positions.data_ptr(),
        plan.k_positions.stride(0),
        *(_address(x) for x in (plan.kv_prompts, plan.kv_columns, prefix_of, prefix_keys, prefix_values, lengths)),
        None if float_sinks is None else _address(float_sinks),
        torch.get_num_threads(),
    )
    attend = library().hpd_attend_float32 if q.dtype == torch.float32 else library().hpd_attend_bfloat16
    attend(ctypes.byref(problem))


def _address(x: Tensor | IntArray) -> int:
    """Of what has no gaps: the library would read and write elsewhere."""
    if isinstance(x, Tensor):
        if not x.is_contiguous():
            raise ValueError(f"not contiguous: {tuple(x.shape)} by {x.stride()}")
        return x.data_ptr()
    if not x.flags.c_contiguous or x.dtype != np.int64:
        raise ValueError(f"not contiguous int64: {x.dtype} {x.shape} by {x.strides}")
    return x.ctypes.data
