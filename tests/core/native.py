"""Whether this machine can compile the kernel in C++, and which ways to attend there are therefore."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from hpd_core.native import library


def _missing() -> str | None:
    try:
        library.load()
    except library.NativeError as error:
        return str(error)
    return None


MISSING = _missing()

needs_native = pytest.mark.skipif(MISSING is not None, reason=f"the kernel in C++ cannot be compiled here: {MISSING}")

WAYS = ["eager", "sdpa"] if MISSING else ["native", "eager", "sdpa"]
EVERY_WAY = [pytest.param("native", marks=needs_native), "eager", "sdpa"]
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
