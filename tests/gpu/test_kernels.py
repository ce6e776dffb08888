"""The kernels of our own on a GPU against fp64: half precision, tensor cores, sizes of real models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.core.attention.step_problems import Shape, check, check_cache, copies, step_problem
from tests.core.attention.test_triton_kv import check_rotary
from tests.core.layers.test_triton_pointwise import check_choice, check_gated, check_norm
from tests.examples import examples

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]
CUDA = torch.device("cuda")
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
PHASES = (Phase.explicit, Phase.generate)
"""A GPU's time is dear: the example that fails is told, the smallest one is not searched for."""

# Each of them is compiled for some seconds; what may change without that is drawn.
KINDS = {
    "qwen3": Shape([[1]], 0, 8, 4, 128, 128, dtype=torch.bfloat16, scale=0.1),
    "qwen3 1.7b, windows": Shape([[1]], 0, 8, 2, 128, 128, dtype=torch.bfloat16, scale=0.1, window=60),
    "gpt-oss": Shape([[1]], 0, 8, 8, 64, 64, dtype=torch.bfloat16, scale=0.1, window=60, sinks=0.0),
    "gemma2": Shape([[1]], 0, 4, 2, 256, 256, dtype=torch.float16, scale=0.1, window=60, softcap=3.0),
    "fp32": Shape([[1]], 0, 2, 3, 64, 64),
    "large fp32": Shape([[1]], 0, 2, 1, 256, 256, softcap=3.0),
    "odd fp32": Shape([[1]], 0, 3, 5, 80, 40, window=9, softcap=3.0, sinks=100.0),
    "odd bf16": Shape([[1]], 0, 1, 7, 24, 8, dtype=torch.bfloat16),
    "smallest": Shape([[1]], 0, 3, 1, 2, 1),
    "many heads": Shape([[1]], 0, 1, 200, 16, 16, dtype=torch.bfloat16),
}
DRAWN = {
    "seed": st.integers(0, 2**32 - 1),
    "cohorts": st.lists(
        st.lists(st.one_of(st.integers(0, 7), st.integers(8, 200)), min_size=1, max_size=4).filter(any),
        min_size=1,
        max_size=3,
    ),
    "earlier": st.sampled_from([0, 1, 14, 90, 500]),
    "prefix_lengths": st.lists(st.sampled_from([1, 15, 64, 130]), max_size=2).map(tuple),
}


def drawn(kind: str, cohorts: list[list[int]], earlier: int, prefix_lengths: tuple[int, ...]) -> Shape:
    return replace(KINDS[kind], cohorts=cohorts, earlier=earlier, prefix_lengths=prefix_lengths)


@pytest.mark.parametrize("small_steps", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(20), deadline=None, phases=PHASES)
@given(**DRAWN)
def test_attention(
    kind: str, small_steps: bool, seed: int, cohorts: list[list[int]], earlier: int, prefix_lengths: tuple[int, ...]
) -> None:
    item = step_problem(np.random.default_rng(seed), drawn(kind, cohorts, earlier, prefix_lengths), CUDA)
    before = copies(item)
    found = item.run(small_steps=small_steps)
    check(item, found)
    check_cache(item, before, item.k, item.v)


@pytest.mark.parametrize("has_norms", [True, False])
@pytest.mark.parametrize("kind", ["qwen3", "gemma2", "odd fp32", "odd bf16", "smallest"])
@settings(max_examples=examples(12), deadline=None, phases=PHASES)
@given(**DRAWN)
def test_norms_of_heads_rotary_embedding_and_the_cache(
    kind: str, has_norms: bool, seed: int, cohorts: list[list[int]], earlier: int, prefix_lengths: tuple[int, ...]
) -> None:
    check_rotary(seed, drawn(kind, cohorts, earlier, prefix_lengths), has_norms, "cuda")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [48, 1024, 2048, 4096, 5120])
def test_norms(size: int, dtype: torch.dtype) -> None:
    for num_tokens in (1, 7, 300):
        check_norm(num_tokens, size, True, dtype, "cuda")
    check_norm(5, size, False, dtype, "cuda")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [64, 3072, 6144, 12_288])
def test_gated(size: int, dtype: torch.dtype) -> None:
    for num_tokens, is_gelu in ((1, False), (7, True), (300, False)):
        check_gated(num_tokens, size, is_gelu, dtype, "cuda")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocabulary", [160, 8193, 151_936])
def test_choices(vocabulary: int, dtype: torch.dtype) -> None:
    """In bf16 many logits are equal: of these the lowest id."""
    torch.manual_seed(vocabulary)
    rows = torch.randn(40, vocabulary).to(dtype).cuda()
    rows[3, ::2] = -torch.inf
    allowed = [torch.randperm(vocabulary)[: 1 + 37 * i].tolist() if i % 3 else None for i in range(40)]
    check_choice(rows, [None] * 40)
    check_choice(rows, allowed)
