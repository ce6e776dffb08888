"""Whether this machine can compile the kernel in C++, and which ways to attend there are therefore."""

from __future__ import annotations

import pytest

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
