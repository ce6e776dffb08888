"""The kernel in Triton against attention as it is written down, run by Triton's interpreter, and compiled for GPUs.

Where there is no Triton, all but what is said then is skipped. PyTorch for CUDA brings one along; for others `make
test` installs one, and runs these tests with it behind all others.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import EngineConfig
from hpd_core.attention.dispatch import way_to_attend
from hpd_core.attention.kv_cache import CacheShape
from hpd_core.errors import ModelError
from tests.core.attention.attention_problems import SHAPES, Shape, check, check_cache, problem
from tests.core.families import build_model
from tests.core.helpers import assert_equals_oracle, decode, random_case, random_endings, random_ids
from tests.examples import examples

MISSING = importlib.util.find_spec("triton") is None
if MISSING and os.environ.get("HPD_NEEDS_TRITON"):
    raise ImportError("Triton was installed for these tests, and is not found")
WHY_NOT = "no Triton here (make test runs these tests once more with one)"
needs_triton = pytest.mark.skipif(MISSING, reason=WHY_NOT)
# tests/conftest.py asks for it, before anybody imports Triton.
needs_interpreter = pytest.mark.skipif(
    MISSING or os.environ.get("TRITON_INTERPRET") != "1",
    reason=WHY_NOT if MISSING else "Triton's interpreter is not used: there is a GPU",
)

# The interpreter multiplies no bfloat16.
INTERPRETED = SHAPES.filter(lambda shape: shape.dtype == torch.float32)


def cpu(dtype: torch.dtype) -> CacheShape:
    return CacheShape(2, 2, 16, 16, dtype, torch.device("cpu"))


@needs_interpreter
@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), shape=INTERPRETED)
def test_the_kernel_computes_attention(seed: int, shape: Shape) -> None:
    """Prompts with and without tokens and prefixes, columns nobody may see, sizes that fill no block."""
    from hpd_core.attention.triton import TritonAttention

    item = problem(np.random.default_rng(seed), shape, is_native=False)
    before = item.plan.keys[0].clone()
    found = item.run(TritonAttention)
    check(item, found)
    check_cache(item, before)


@needs_interpreter
def test_what_is_not_in_use_is_not_read() -> None:
    """Behind the columns in use the cache may hold anything: NaN times nothing would be NaN."""
    from hpd_core.attention.triton import TritonAttention

    item = problem(np.random.default_rng(3), Shape([5, 30, 1], 50, prefix_lengths=(33,)), is_native=False)
    for prompt, used in enumerate(item.plan.used.tolist()):
        item.plan.keys[0][prompt, :, used:] = torch.nan
        item.plan.values[0][prompt, :, used:] = torch.nan
    check(item, item.run(TritonAttention))


@needs_interpreter
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2", "gpt_oss"])
@pytest.mark.parametrize("layout", ["tree", "stacked"])
def test_decoding_equals_the_oracle(family: str, layout: str) -> None:
    """Shared prefixes, windows, softcap and sinks, in cohorts that shrink and merge."""
    rng = np.random.default_rng(11)
    endings = random_endings(rng, share=0.1)
    prefixes = [[], random_ids(rng, 9, 15)]
    cases = [random_case(rng, layout, prefixes, branches=3, k_max=4) for _ in range(4)]
    config = EngineConfig(attention="triton", max_tokens_per_step=60, max_prompts_per_cohort=3)
    prompts = decode(build_model(family), cases, endings, config)
    oracle = build_model(family)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)


COMPILE = """
import json, sys
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from hpd_core.attention.triton import LAUNCH, block_sizes, kernel

capability, dtype, name, size, rows, has_all = json.loads(sys.argv[1])
pointers = dict.fromkeys(("q", "out", "keys", "values", "prefix_keys", "prefix_values", "sinks"), "*" + name)
pointers |= dict.fromkeys(("bounds", "q_scopes", "q_positions", "k_scopes", "k_positions"), "*i64")
pointers |= {"scale": "fp32", "softcap": "fp32"}
constants = block_sizes(rows, size, size, getattr(torch, dtype)) | {"GROUP": 2, "KEY_SIZE": size, "VALUE_SIZE": size}
constants |= {"HAS_PREFIX": True, "HAS_WINDOW": has_all, "HAS_SOFTCAP": has_all, "HAS_SINKS": has_all}
types = {name: "constexpr" if name in constants else pointers.get(name, "i32") for name in kernel.arg_names}
# What Triton sees of torch's tensors at a launch: they begin at multiples of 16 bytes, and their rows, too.
aligned = [i for i, n in enumerate(kernel.arg_names) if types[n].startswith("*") or n in ("q_token", "q_head")]
source = ASTSource(kernel, types, constexprs=constants, attrs={(i,): [["tt.divisibility", 16]] for i in aligned})
compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=LAUNCH)
print(compiled.metadata.shared, "mma" in compiled.asm["ptx"], "cp.async" in compiled.asm["ptx"])
"""


@needs_triton
@pytest.mark.parametrize(
    ("capability", "dtype", "name", "size", "rows", "has_all"),
    [
        (89, "bfloat16", "bf16", 128, 200, False),  # an L40S, Qwen3
        (90, "bfloat16", "bf16", 64, 20, True),  # an H100 or H200, gpt-oss
        (89, "float32", "fp32", 256, 200, True),  # as large as it gets
    ],
)
def test_it_compiles_for_gpus(capability: int, dtype: str, name: str, size: int, rows: int, has_all: bool) -> None:
    """No GPU is needed for that; whether it is fast only a GPU says (bench/measure-gpu.sh)."""
    arguments = json.dumps([capability, dtype, name, size, rows, has_all])
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    shared, uses_tensor_cores, loads_ahead = done.stdout.split()
    assert int(shared) <= 99 * 1024
    assert uses_tensor_cores == str(dtype == "bfloat16")
    assert loads_ahead == "True", "copies of 4 bytes at least: the addresses are known to be aligned"


def test_where_it_cannot_be_had_somebody_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ModelError, match=r"attention is 'triton', but the kernel in Triton runs on a GPU, not on cpu"):
        way_to_attend("triton", cpu(torch.float32))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setitem(sys.modules, "hpd_core.attention.triton", None)
    with pytest.raises(ModelError, match="Triton is not here"):
        way_to_attend("triton", cpu(torch.float32))


@needs_interpreter
def test_what_it_takes() -> None:
    assert way_to_attend("triton", cpu(torch.float32)) == "triton"
    with pytest.raises(ModelError, match=r"takes no torch\.float64"):
        way_to_attend("triton", cpu(torch.float64))
    assert way_to_attend("auto", cpu(torch.float32)) != "triton"
