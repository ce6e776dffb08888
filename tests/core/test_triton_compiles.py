"""What a GPU would run, compiled without one: it fits there, spills nothing, and uses what the GPU has.

Whether it is fast only a GPU says (bench/measure_gpu.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.core.triton import needs_triton

SHARED_KIB = {80: 163, 89: 99, 90: 227, 100: 227, 120: 99}
"""Shared memory that a program may have: A100; L40S and L4; H100 and H200; B200; RTX PRO 6000."""


@needs_triton
@pytest.mark.parametrize(
    "capability", [89, *(pytest.param(each, marks=pytest.mark.full) for each in SHARED_KIB if each != 89)]
)
def test_what_is_launched_there_compiles_and_fits(capability: int) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.core.compile_kernels", str(capability)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kernels = {facts["name"]: facts for facts in map(json.loads, done.stdout.splitlines())}
    assert len(kernels) == (15 if capability < 89 else 20)
    for name, facts in kernels.items():
        assert facts["shared"] <= SHARED_KIB[capability] * 1024, name
        # 64 Ki registers are all that a processor has for the threads of one program.
        assert facts["registers"] * facts["threads"] <= 2**16, name
        is_attention, is_fp32 = name.startswith("attention"), "fp32" in name
        if not is_fp32:  # which is for those who compare answers
            assert facts["spilt"] <= 64, f"{name}: {facts['spilt']} bytes"
        assert facts["uses tensor cores"] == (is_attention and not is_fp32), name
        assert facts["copies 16 bytes ahead"] == is_attention, name
        assert facts["loads 16 bytes"] == (name != "note"), "the addresses are known to be aligned"
        writes_rows = name not in ("note", "choose")
        assert facts["stores 16 bytes"] == writes_rows, name
