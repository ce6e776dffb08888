"""Attention over packed rows: the function that transformers calls instead of its own.

The model runs over one packed row of tokens, [1, T]; it knows nothing of prompts. For every layer it calls
`packed_attention` with that row's queries, keys and values. The `PackedBatch` that travels along says which stretch of
the row belongs to which cohort (attention/plan.py). Each cohort stores its keys and values and attends on its own. With
`triton`, the batch says what all of them attend to (attention/step_tables.py).

There are three backends. `eager` consists of plain matrix products, in tiles whose scores fit in the caches of a CPU.
`native` is a kernel in C++ (native/attention.cpp), for CPUs. It needs neither tiles nor masks: it decides by positions
and scopes which columns a token sees. `triton` is the same for GPUs (attention/triton.py), with one launch for all
cohorts.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from hpd_core.attention.eager import eager_attention
from hpd_core.attention.kv_cache import CacheOrder, CacheShape, LayerShape
from hpd_core.attention.native import NativeAttention
from hpd_core.attention.plan import AttentionPlan
from hpd_core.errors import ModelError
from hpd_core.native import library
from hpd_core.system.storage import prepare_compile_cache

if TYPE_CHECKING:
    from hpd_core.attention.triton_step import TritonStep

logger = logging.getLogger(__name__)

Way = Literal["eager", "native", "triton"]

ATTENTION_NAME = "hpd_packed"
"""Name under which the function is registered with transformers."""
NO_BATCH = "the model runs by packed attention, and nobody has said what the tokens attend to"


@dataclass(slots=True)
class PackedBatch:
    """Description of the packed row of one forward, for `packed_attention`.

    Attributes:
        plans: plans of the cohorts; none with `triton`.
        step: with `triton`, the step of all cohorts.
        calls: for each attention call in order, the layer whose keys and values it attends to (`CacheShape.calls`).
        num_calls: number of calls so far.
        seen: if not None, the batch only records the calls: shape, keys and values of each are appended, and nothing is
            attended to.
        positions: int64 [T], of the row's tokens, for queries that are scaled by position; set by `attending_to`.
    """

    plans: Sequence[AttentionPlan]
    way: Way = "eager"
    step: TritonStep | None = None
    calls: Sequence[int] = ()
    num_calls: int = 0
    seen: list[tuple[LayerShape, Tensor, Tensor]] | None = None
    positions: Tensor | None = None

    def forget_masks(self) -> None:
        """Drop masks once all layers were given to the device: they are large, and a plan lives until its step ends."""
        for plan in self.plans:
            plan.forget_masks()


_batch: ContextVar[PackedBatch | None] = ContextVar("batch", default=None)


@contextmanager
def attending_to(batch: PackedBatch, positions: Tensor) -> Iterator[None]:
    """Make this batch the current one of this thread, as long as the context is entered.

    It is not a keyword of the model's forward, because some families do not pass keywords on to their attention.

    Args:
        positions: int64 [T]
    """
    batch.positions = positions
    token = _batch.set(batch)
    try:
        yield
    finally:
        _batch.reset(token)


def current_batch() -> PackedBatch | None:
    """Return the batch of `attending_to`; None if the model runs by itself."""
    return _batch.get()


def way_to_attend(asked: Literal["auto"] | Way, shape: CacheShape) -> Way:
    """Return the backend for `engine.attention` and this cache: with 'auto' the fastest one available.

    Raises:
        ModelError: `native` or `triton` is asked for, but not available.
    """
    if asked == "eager" or (asked == "auto" and not shape.layers):  # no layer attends, and no kernel would be faster
        return "eager"
    on_cpu = shape.device.type == "cpu"
    ours: Way = asked if asked != "auto" else "native" if on_cpu else "triton"
    reason = why_not_native(shape) if ours == "native" else why_not_triton(shape)
    if reason is None:
        return ours
    if asked != "auto":
        raise ModelError(
            f"engine.attention is {asked!r}, but {reason}; 'auto' takes another way to attend where it must"
        )
    logger.warning("decoding is slower than it could be: %s", reason)
    return "eager"


def cache_order(way: Way, shape: CacheShape) -> CacheOrder:
    """Return the memory order of keys and values for this backend."""
    if way == "native":
        (block,) = value_blocks(shape)
        return CacheOrder(block, fills=False)
    return CacheOrder(fills=way == "eager", by_address=way == "triton")


def reach(module: Any, sliding_window: int | None) -> int | None:
    """Return the window of a layer as `layout.visible` takes it; negative: the size of its chunks.

    Models do not pass on chunks, which they implement by the mask alone."""
    if sliding_window is not None:
        return sliding_window
    if not hasattr(module, "hpd_is_chunked"):  # found once: a configuration is slow to ask
        kinds = getattr(getattr(module, "config", None), "layer_types", None) or ()
        module.hpd_is_chunked = "chunked_attention" in kinds and kinds[module.layer_idx] == "chunked_attention"
    return -module.config.attention_chunk_size if module.hpd_is_chunked else None


def _kernel_of(way: Way) -> Callable[[AttentionPlan], NativeAttention] | None:
    """Return the kernel that attends for one cohort; None if torch's operations do."""
    return NativeAttention if way == "native" else None


def packed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    hpd_batch: PackedBatch | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend in one layer (transformers' AttentionInterface).

    Args:
        query: [1, H, T, D]; key, value: [1, H_kv, T, D] and [1, H_kv, T, D_v].
        hpd_batch: None: the one of `attending_to`.
        sliding_window, softcap, s_aux: for model families that need them (Mistral; Gemma 2; gpt-oss sinks).

    Returns:
        [1, T, H, D_v] and None for the attention weights.

    Raises:
        RuntimeError: there is no batch.
    """
    hpd_batch = hpd_batch or current_batch()
    if hpd_batch is None:
        raise RuntimeError(NO_BATCH)
    value_size = value.shape[3]
    if hpd_batch.seen is not None:
        shape = LayerShape(key.shape[1], key.shape[3], value_size, query.shape[1])
        hpd_batch.seen.append((shape, key, value))
        return value.new_zeros(1, query.shape[2], query.shape[1], value_size), None
    if hpd_batch.num_calls == len(hpd_batch.calls):
        raise RuntimeError(f"attention is called more than {hpd_batch.num_calls} times, as when the model was loaded")
    # By the order of calls: a layer's number says nothing where it attends twice, or is run again.
    layer = hpd_batch.calls[hpd_batch.num_calls]
    hpd_batch.num_calls += 1
    window = reach(module, sliding_window)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)  # [T, H, D]
    out = q.new_empty(q.shape[0], q.shape[1], value_size)
    if hpd_batch.step is not None:
        hpd_batch.step.store(layer, q, k, v)
        hpd_batch.step.attend(layer, q, out, scale=scale, window=window, softcap=softcap, sinks=s_aux)
        return out[None], None
    kernel = _kernel_of(hpd_batch.way)
    for plan in hpd_batch.plans:
        span = slice(plan.start, plan.stop)
        if kernel is not None:
            plan.kernel(kernel).attend(
                layer, q[span], k[span], v[span], out[span], scale=scale, window=window, softcap=softcap, sinks=s_aux
            )
            continue
        keys, values = plan.keys[layer], plan.values[layer]
        keys[plan.kv_prompts, :, plan.kv_columns] = k[span]
        values[plan.kv_prompts, :, plan.kv_columns] = v[span]
        for tile in plan.tiles(window, q.shape[1] // keys.shape[1], keys.shape[1]):
            attended = eager_attention(
                tile.fold(q, keys.shape[1]),
                keys[tile.prompts, :, tile.columns],
                values[tile.prompts, :, tile.columns],
                tile.bias,
                scale,
                softcap=softcap,
                sinks=s_aux,
                prefix=(tile.prefix.keys[layer], tile.prefix.values[layer]) if tile.prefix else None,
                prefix_bias=tile.prefix_bias,
            )
            tile.unfold(attended, out)
    return out[None], None


def why_not_native(shape: CacheShape) -> str | None:
    """Return why the kernel in C++ is not available for this cache; None if it is."""
    if shape.device.type != "cpu":
        return f"the kernel in C++ runs on a CPU, not on {shape.device}"
    if shape.dtype not in library.DTYPES or any(layer.key_size % 2 for layer in shape.layers):
        size = f"{shape.dtype} and size {'/'.join(str(layer.key_size) for layer, _ in shape.parts)}"
        return f"the kernel in C++ takes heads of float32 or bfloat16 and of even size, not {size}"
    try:
        library.load()
    except library.NativeError as error:
        return f"the kernel in C++ cannot be had ({error}); install g++ 9 or newer, or name it by CXX"
    if len(value_blocks(shape)) > 1:
        sizes = ", ".join(f"{layer.key_size}/{layer.value_size}" for layer, _ in shape.parts)
        return f"the kernel in C++ reads heads of some sizes in tiles and others not, and the layers have both: {sizes}"
    return None


def value_blocks(shape: CacheShape) -> set[int]:
    """Return the numbers of columns per value block that the kernel in C++ reads."""
    return {library.columns_of_block(shape.dtype, layer.key_size, layer.value_size) for layer, _ in shape.parts} or {1}


def why_not_triton(shape: CacheShape) -> str | None:
    """Return why the kernel in Triton is not available for this cache; None if it is."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if shape.device.type != "cuda" and not interpreted:
        return f"the kernel in Triton runs on a GPU, not on {shape.device}"
    try:
        from hpd_core.attention.triton import DTYPES
    except ImportError as error:
        return f"Triton is not here ({error}): PyTorch for CUDA brings it along"
    if shape.dtype not in DTYPES:
        return f"the kernel in Triton takes no {shape.dtype}"
    if not shape.layers:
        return "the model attends to nothing"
    if not shape.is_uniform:
        return "the kernel in Triton takes one size of heads, and keys and values of its own in each layer"
    return None if interpreted else _why_triton_cannot_compile(shape.device)


def _why_triton_cannot_compile(device: torch.device) -> str | None:
    """Return what Triton lacks to compile here, or None. It compiles a C module of its own before any kernel."""
    from triton.runtime import driver

    prepare_compile_cache()  # that module is kept, too
    try:
        driver.active.get_current_target()
    except Exception as error:  # of whatever kind: a compiler's, the system's, Triton's own
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
        return f"Triton cannot compile here ({reason}); it needs a C compiler and Python's header files (python3-dev)"
    if torch.cuda.get_device_capability(device) < (8, 0):
        name = torch.cuda.get_device_name(device)
        return f"the kernel in Triton needs a GPU of compute capability 8.0 or newer, which {name} is not"
    return None
