"""Arguments of `attention.cpp`, from an attention plan."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hpd_core.layout import EVERYBODY, PUBLIC, IntArray
from hpd_core.native import library

if TYPE_CHECKING:
    from hpd_core.attention.plan import AttentionPlan, PrefixCache

_NO_WINDOW = 2**31 - 1
_NEVER = 2**31 - 1
"""Position that no token sees."""
_MOST_LANES = 32
"""Most lanes of vectors and of tiles."""


class _Problem(ctypes.Structure):
    """`Problem` of kernels.h, field by field."""

    _fields_ = [
        *((name, library.INT) for name in ("num_prompts", "num_kv_heads", "group", "key_size", "value_size", "window")),
        *((name, library.NUMBER) for name in ("scale", "softcap")),
        *((name, library.POINTER) for name in ("q", "k", "v")),
        *((name, library.INT) for name in ("q_token", "q_head", "k_token", "k_head", "v_token", "v_head")),
        *((name, library.POINTER) for name in ("out", "keys", "values")),
        ("capacity", library.INT),
        *((name, library.POINTER) for name in ("counts", "used", "q_scopes", "q_sights")),
        ("q_row", library.INT),
        *((name, library.POINTER) for name in ("k_scopes", "k_lasts", "k_positions")),
        ("k_row", library.INT),
        *((name, library.POINTER) for name in ("kv_columns", "prefix_of")),
        *(
            (name, library.POINTER)
            for name in ("prefix_keys", "prefix_values", "prefix_lengths", "prefix_capacities", "sinks")
        ),
        ("num_threads", library.INT),
    ]


class NativeAttention:
    """Attention of one cohort's tokens of one step, layer by layer."""

    def __init__(self, plan: AttentionPlan) -> None:
        """Prepare arguments. Raises `ValueError` for a plan whose arrays are not as the library reads them."""
        # The tensors whose addresses are below; not the plan, which holds this object.
        self._keys, self._values = plan.keys, plan.values
        self._held = (plan.counts, plan.used, plan.q_scopes, plan.q_sights)
        self._kv_columns = plan.kv_columns
        columns = (plan.k_scopes, plan.k_lasts, plan.k_positions)
        if len({of.shape for of in columns}) > 1:
            raise ValueError(f"scopes, last scopes and positions of {[tuple(of.shape) for of in columns]} columns")
        self._columns = [_padded(of, fill) for of, fill in zip(columns, (PUBLIC, EVERYBODY, _NEVER), strict=True)]
        # A finished prompt attends to nothing.
        groups = [(part, part.prefix) for part in plan.groups if plan.counts[part.start : part.stop].any()]
        self._prefixes = list(dict.fromkeys(prefix for _, prefix in groups if prefix is not None))
        self._prefix_of = np.full(len(plan.counts), -1, dtype=np.int64)
        for part, prefix in groups:
            if prefix is not None:
                self._prefix_of[part.start : part.stop] = self._prefixes.index(prefix)
        self._lengths = np.array([prefix.num_tokens for prefix in self._prefixes], dtype=np.int64)
        self._layers: IntArray | None = None
        self._problem = problem = _Problem()
        problem.num_prompts = len(plan.counts)
        problem.counts, problem.used = _address(plan.counts), _address(plan.used)
        problem.q_scopes, problem.q_sights = _address(plan.q_scopes), _address(plan.q_sights)
        problem.q_row = plan.q_scopes.shape[1]
        problem.k_scopes, problem.k_lasts, problem.k_positions = (of.ctypes.data for of in self._columns)
        problem.k_row = self._columns[0].shape[1]
        problem.kv_columns = _address(plan.kv_columns)
        problem.capacity = _room(plan.keys, plan.values)
        rooms, addresses = zip(*map(_places, self._prefixes), strict=True) if self._prefixes else ((), ())
        self._rooms = np.array(rooms, dtype=np.int64)
        self._addresses = np.array(addresses, dtype=np.int64).reshape(-1, len(plan.keys), 2).transpose(1, 2, 0).copy()
        problem.prefix_of, problem.prefix_lengths = _address(self._prefix_of), _address(self._lengths)
        problem.prefix_capacities = _address(self._rooms)

    @property
    def problem(self) -> int:
        """Address of the arguments that all layers share, for `hpd_layers`."""
        return ctypes.addressof(self._problem)

    @property
    def addresses(self) -> tuple[int, int, int]:
        """Addresses of the tables of the layers' key addresses, value addresses, and prefixes ([layers, 2, prefixes]).

        They are valid as long as this object lives.
        """
        if self._layers is None:
            pairs = [[x.data_ptr() for x in tensors] for tensors in (self._keys, self._values)]
            self._layers = np.array(pairs, dtype=np.int64)
        keys, values = (row.ctypes.data for row in self._layers)
        return keys, values, self._addresses.ctypes.data

    @property
    def num_prefixes(self) -> int:
        """Number of prefixes that prompts with tokens attend to."""
        return len(self._prefixes)

    def check_layers(self, num_layers: int, num_kv_heads: int, head_size: int, dtype: torch.dtype) -> None:
        """Raise `RuntimeError` if the cache is not for such layers."""
        keys, values = self._keys[0], self._values[0]
        if any(x.shape != first.shape for first, of in ((keys, self._keys), (values, self._values)) for x in of):
            raise RuntimeError("the cache of some layers is not like that of others")
        found = (len(self._keys), keys.shape[1], keys.shape[3], values.shape[3], keys.dtype, values.dtype)
        wanted = (num_layers, num_kv_heads, head_size, head_size, dtype, dtype)
        if found != wanted:
            raise RuntimeError(f"layers, heads, their sizes and types are {wanted}; the cache is for {found}")

    def attend(
        self,
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
        """Store the keys and values of the new tokens, and attend for them.

        Args:
            q: [t, H, D]; k, v: [t, H_kv, D] and [t, H_kv, D_v], in the dtype of the cache.
            out: [t, H, D_v], contiguous; it is written.
            window, softcap, sinks: as in `packed_attention`.

        Raises:
            RuntimeError: the model's heads are not those that the cache was made for, as torch's operations raise it.
            ValueError: the scale is not positive.
            MemoryError: out of memory.
        """
        keys, values = self._keys[layer], self._values[layer]
        check_sizes(q, k, v, out, keys, values, tuple(library.DTYPES))
        check_scale(scale)
        q, k, v = (x if x.stride(2) == 1 else x.contiguous() for x in (q, k, v))
        float_sinks = None if sinks is None else sinks.float().contiguous()
        problem = self._problem
        problem.num_kv_heads = k.shape[1]
        problem.group, problem.key_size, problem.value_size = q.shape[1] // k.shape[1], q.shape[2], v.shape[2]
        problem.window = window_of(window)
        problem.scale, problem.softcap = scale, softcap or 0.0
        problem.q, problem.k, problem.v = q.data_ptr(), k.data_ptr(), v.data_ptr()
        problem.q_token, problem.q_head, _ = q.stride()
        problem.k_token, problem.k_head, _ = k.stride()
        problem.v_token, problem.v_head, _ = v.stride()
        problem.out, problem.keys, problem.values = _address(out), _address(keys), _address(values)
        problem.prefix_keys, problem.prefix_values = (
            self._addresses[layer].ctypes.data,
            self._addresses[layer, 1].ctypes.data,
        )
        problem.sinks = None if float_sinks is None else _address(float_sinks)
        problem.num_threads = torch.get_num_threads()
        if library.function("attend", q.dtype)(ctypes.byref(problem)):
            raise MemoryError("attention found no memory for its scores")


def check_scale(scale: float) -> None:
    """Raise `ValueError` for a scale of scores that the library does not take."""
    if not scale > 0:
        raise ValueError(f"scores are multiplied by {scale}; they must keep their order")


def window_of(window: int | None) -> int:
    """Return the window as the library takes it: a number, even if there is none."""
    return _NO_WINDOW if window is None else min(window, _NO_WINDOW)


def check_sizes(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, keys: Tensor, values: Tensor, allowed: Sequence[torch.dtype]
) -> None:
    """Raise `RuntimeError` for wrong sizes or dtypes, which kernels do not check. Arguments as in `attend`."""
    num_prompts, num_kv_heads, capacity, key_size = keys.shape
    value_size = values.shape[3]
    expected = [
        (len(q), num_kv_heads * (q.shape[1] // num_kv_heads), key_size),
        (len(q), num_kv_heads, key_size),
        (len(q), num_kv_heads, value_size),
        (len(q), q.shape[1], value_size),
        (num_prompts, num_kv_heads, capacity * value_size),
    ]
    of_prompts = (*values.shape[:2], math.prod(values.shape[2:]))
    found = [*(tuple(x.shape) for x in (q, k, v, out)), of_prompts]
    if found != expected:
        raise RuntimeError(f"queries, keys, values, answers and cached values are {found}; the cache is for {expected}")
    dtypes = {x.dtype for x in (q, k, v, out, keys, values)}
    if len(dtypes) > 1 or q.dtype not in allowed:
        raise RuntimeError(f"queries, keys, values and the cache are of {', '.join(sorted(map(str, dtypes)))}")


def _address(x: Tensor | IntArray) -> int:
    """Return the address. Raises `ValueError` for gaps or another type: the library would read and write elsewhere."""
    if isinstance(x, Tensor):
        if not x.is_contiguous() or x.dtype not in (torch.int64, *library.DTYPES):
            raise ValueError(f"not contiguous, or of another type: {x.dtype} {tuple(x.shape)} by {x.stride()}")
        return x.data_ptr()
    if not x.flags.c_contiguous or x.dtype != np.int64:
        raise ValueError(f"not contiguous, or of another type: {x.dtype} {x.shape} by {x.strides}")
    return x.ctypes.data


def _padded(columns: Tensor, fill: int) -> npt.NDArray[np.int32]:
    """Pad each prompt's columns, int64 [P, C], to int32 [P, C + lanes], so that whole vectors can be read."""
    num_prompts, num_columns = columns.shape
    padded = np.full((num_prompts, num_columns + _MOST_LANES), fill, dtype=np.int32)
    padded[:, :num_columns] = columns.clamp(max=_NEVER).numpy()
    return padded


def _places(prefix: PrefixCache) -> tuple[int, IntArray]:
    """Return a prefix's capacity in columns, and the addresses of its keys and values, [layers, 2]."""
    if not prefix.places:  # looked up once
        room = _room(prefix.keys, prefix.values)
        addresses = [[x.data_ptr() for x in pair] for pair in zip(prefix.keys, prefix.values, strict=True)]
        prefix.places.append((room, np.array(addresses, dtype=np.int64)))
    found: tuple[int, IntArray] = prefix.places[0]
    return found


def _room(keys: Sequence[Tensor], values: Sequence[Tensor]) -> int:
    """Return a prompt's capacity in columns, the same in all layers.

    Args:
        keys: per layer [..., H_kv, C, D]
        values: per layer [..., H_kv, blocks, D_v, columns of a block]

    Raises `ValueError` if they are not in order: the library would read and write elsewhere.
    """
    room = values[0].shape[-3] * values[0].shape[-1]
    for k, v in zip(keys, values, strict=True):
        num_heads, num_columns, key_size = k.shape[-3:]
        num_blocks, value_size, block = v.shape[-3:]
        if block != library.columns_of_block(v.dtype, key_size, value_size) or num_columns > room:
            raise ValueError(f"values are {num_blocks} blocks of {block} columns, keys {num_columns} columns")
        if num_blocks * block != room or (k.shape[:-3], num_columns) != (keys[0].shape[:-3], keys[0].shape[-2]):
            raise ValueError(f"layers are stored in two ways: {tuple(k.shape)}, {tuple(v.shape)}")
        strides = (num_heads * room * key_size, room * key_size, key_size, 1)[-k.dim() :]
        places = zip(k.shape, k.stride(), strides, strict=True)
        if not v.is_contiguous() or any(size > 1 and found != wanted for size, found, wanted in places):
            raise ValueError(f"keys or values have gaps: {k.stride()}, {v.stride()}")
    return room
