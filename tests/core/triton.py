"""Whether Triton is here, and runs its kernels on the CPU.

`make test` installs one. PyTorch for CUDA brings one along.
"""

from __future__ import annotations

import importlib.util
import os

import pytest

MISSING = importlib.util.find_spec("triton") is None
if MISSING and os.environ.get("HPD_NEEDS_TRITON"):
    raise ImportError("Triton was installed for these tests, and is not found")

_WHY_NOT = "no Triton here (make test installs one)"
needs_triton = pytest.mark.skipif(MISSING, reason=_WHY_NOT)

# tests/conftest.py asks for it, before anybody imports Triton.
IS_INTERPRETED = not MISSING and os.environ.get("TRITON_INTERPRET") == "1"
needs_interpreter = pytest.mark.skipif(
    not IS_INTERPRETED, reason=_WHY_NOT if MISSING else "Triton's interpreter is not used: there is a GPU"
)
