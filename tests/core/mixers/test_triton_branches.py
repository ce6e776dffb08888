"""The kernel for branches behind a trunk's state, by Triton's interpreter, against torch's operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hpd_core.config import EngineConfig
from hpd_core.layout import IntArray
from hpd_core.mixers.delta_rule import Tokens, fork
from hpd_core.mixers.states import LayerMemory, MixerCache, MixerShape
from hpd_core.mixers.step_plan import BranchTokens
from tests.core.helpers import decode, random_case, random_endings, random_ids
from tests.core.triton import needs_interpreter
from tests.examples import examples

from .hybrids import build_hybrid
from .trees import chain_to, random_parents, scopes_of

pytestmark = needs_interpreter

CPU = torch.device("cpu")
NUM_BEFORE = 2
"""Rows of other cohorts, in front."""


class Trees:
    """Random trees of tokens behind several trunks, fed some at a time; children come behind their parents."""

    def __init__(self, rng: np.random.Generator, num_prompts: int, most: int) -> None:
        self._rng = rng
        parents = [random_parents(rng, int(rng.integers(1, most + 1))) for _ in range(num_prompts)]
        self._sizes = np.array([len(each) for each in parents])
        self._scopes, self._lasts = zip(*map(scopes_of, parents), strict=True)
        self._positions = [np.array([9 + len(chain_to(node, each)) for node in range(len(each))]) for each in parents]

    def steps(self, cache: MixerCache) -> Iterator[BranchTokens]:
        """Of all prompts that have tokens left."""
        fed = np.zeros_like(self._sizes)
        while np.any(fed < self._sizes):
            spans, fed = list(zip(fed, stops := self._rng.integers(fed, self._sizes + 1), strict=True)), stops

            def host(trees: Sequence[IntArray], spans: list[tuple[int, int]] = spans) -> IntArray:
                return np.concatenate([tree[slice(*span)] for tree, span in zip(trees, spans, strict=True)])

            prompts = host([np.full(size, row) for row, size in enumerate(self._sizes)])
            if len(prompts):
                given = (prompts, host(self._scopes), host(self._lasts), host(self._positions))
                branches = cache.append(*given, NUM_BEFORE).branches
                assert branches is not None
                yield branches


def copied(memory: LayerMemory) -> LayerMemory:
    columns = {name: tensor.clone() for name, tensor in memory.columns.items()}
    return LayerMemory(columns, {name: tensor.clone() for name, tensor in memory.states.items()})


def random_tokens(rng: np.random.Generator, count: int, shape: MixerShape, *, corrects: bool) -> Tokens:
    def normal(*sizes: int) -> Tensor:
        return torch.tensor(rng.standard_normal((count, *sizes)), dtype=torch.float32)

    # Queries and keys lie among others, as a projection leaves them.
    both = normal(2 * shape.key_heads, shape.key_size) / shape.key_size**0.5
    beta = 2 * normal(shape.heads).sigmoid() if corrects else None
    g = -normal(shape.heads, 1).abs() / 4
    return Tokens(both[:, ::2], both[:, 1::2], normal(shape.heads, shape.value_size), g, beta)


@settings(max_examples=examples(12), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_prompts=st.integers(1, 3),
    most=st.sampled_from([1, 6, 50]),
    sizes=st.sampled_from([(1, 1, 5, 3), (2, 4, 20, 17), (1, 2, 16, 40), (2, 2, 129, 70)]),
    corrects=st.booleans(),
)
def test_the_kernel_says_what_torch_says(
    seed: int, num_prompts: int, most: int, sizes: tuple[int, int, int, int], corrects: bool
) -> None:
    """And writes the same columns: of more tokens than are computed side by side, whose ancestors are among them."""
    rng = np.random.default_rng(seed)
    shape = MixerShape(1, 4, torch.float32, CPU, *sizes)
    cache = MixerCache.for_prompts([shape], [None] * num_prompts, int(rng.integers(most + 1)), by_triton=True)
    for columns in cache.layers[0].columns.values():
        columns.fill_(-3)  # what nobody has written, nobody reads
    cache.layers[0].states["state"].copy_(torch.tensor(rng.standard_normal((num_prompts, *sizes[1:]))))
    for branches in Trees(rng, num_prompts, most).steps(cache):
        tokens = random_tokens(rng, NUM_BEFORE + len(branches.rows), shape, corrects=corrects)
        ours, theirs = copied(cache.layers[0]), cache.layers[0]
        found, expected = (torch.full(tokens.v.shape, 7.0) for _ in range(2))
        fork(tokens, replace(branches, tables=None), theirs, expected)
        fork(tokens, branches, ours, found)
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5)
        for name, columns in theirs.columns.items():
            torch.testing.assert_close(ours.columns[name], columns, atol=2e-5, rtol=2e-5)


def test_it_is_used_where_one_launch_attends_for_all() -> None:
    """Of what fades as a whole; what fades by dimensions goes through torch."""
    from hpd_core.mixers import triton_branches

    rng = np.random.default_rng(7)
    case, endings = random_case(rng, "tree", [random_ids(rng, 3, 5)], branches=2, k_max=2), random_endings(rng)
    for family, way, is_called in (
        ("qwen3_5", "triton", True),
        ("kimi_linear", "triton", False),
        ("qwen3_5", "eager", False),
    ):
        with patch.object(triton_branches, "fork", wraps=triton_branches.fork) as kernel:
            decode(build_hybrid(family), [case], endings, EngineConfig(attention=way))
        assert kernel.called == is_called, (family, way)
