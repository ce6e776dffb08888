"""Whether this machine can compile the kernel in C++, for which processors, and which ways to attend that leaves."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from hpd_core.layers.native import NativeLayers
from hpd_core.native import library


def _missing() -> str | None:
    try:
        library.load()
    except library.NativeError as error:
        return str(error)
    return None


MISSING = _missing()

needs_native = pytest.mark.skipif(MISSING is not None, reason=f"the kernel in C++ cannot be compiled here: {MISSING}")

WAYS = ["eager"] if MISSING else ["native", "eager"]
EVERY_WAY = [pytest.param("native", marks=needs_native), "eager"]
"""For parametrized tests, which tell what they skip."""


@contextmanager
def threads(number: int) -> Iterator[None]:
    """For as long as the block runs, torch and the kernels have so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def layers_at_once() -> Iterator[list[int]]:
    """The tokens of each step whose layers are one call, while the block runs."""
    calls: list[int] = []
    run = NativeLayers.run

    def counting(layers: NativeLayers, x: torch.Tensor, *args: Any) -> torch.Tensor:
        calls.append(len(x))
        return run(layers, x, *args)

    with patch.object(NativeLayers, "run", counting):
        yield calls


_IS_X86 = platform.machine() == "x86_64"
_HAS_AVX2 = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
PROCESSORS = [
    "native",
    pytest.param("haswell", marks=pytest.mark.skipif(not _HAS_AVX2, reason="no AVX2 here: vectors of 8 numbers")),
    pytest.param("x86-64", marks=pytest.mark.skipif(not _IS_X86, reason="no x86: vectors of 4 numbers")),
]
"""This one, and older ones whose instructions it has: vectors are of other sizes there."""


def _has_tiles() -> bool:
    """Whether processor and compiler know them."""
    try:
        return "__AMX_BF16__" in library.macros_of(library.compiler_command())
    except (OSError, ValueError, library.NativeError):
        return False


needs_tiles = pytest.mark.skipif(not _has_tiles(), reason="no AMX here, or the compiler does not know it")
WITHOUT_TILES = pytest.param("cooperlake", marks=needs_tiles)
"""The newest processor that multiplies bf16 in vectors and has no tiles."""


@contextmanager
def compiled_for(processor: str, cache: Path) -> Iterator[None]:
    """For as long as the block runs, the library is one for this processor; but for `native` compiled into `cache`."""
    if processor == "native":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HPD_CACHE", str(cache))
        patch.setattr(library, "_FLAGS", (*library._FLAGS, f"-march={processor}"))
        library._load.cache_clear()
        try:
            yield
        finally:
            library._load.cache_clear()
