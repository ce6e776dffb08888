"""Availability of our kernels on this machine, for a cache of this shape, and the reasons if they are not."""

from __future__ import annotations

import os

import torch

from hpd_core.attention.kv_cache import CacheShape
from hpd_core.native import library
from hpd_core.system.compile_cache import prepare_compile_cache


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
