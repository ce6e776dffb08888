"""Our functions over packed trees, fed in any steps, say what transformers' own say to each path alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen

from hpd_core.layout import EVERYBODY, PUBLIC, IntArray
from hpd_core.mixers import step_plan
from hpd_core.mixers.convolution import packed_convolution
from hpd_core.mixers.delta_rule import packed_delta_rule
from hpd_core.mixers.running import LayerStep
from hpd_core.mixers.states import MixerCache, MixerShape, TrunkState
from tests.examples import examples

from .trees import chain_to, random_parents, scopes_of

CHANNELS, KERNEL, H_K, H, D, D_V = 6, 4, 2, 4, 5, 3
SHAPE = MixerShape(CHANNELS, KERNEL, torch.float32, torch.device("cpu"), H_K, H, D, D_V)


def weights(rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Of the convolution, and its bias."""
    found = rng.standard_normal((CHANNELS, KERNEL + 1)).astype(np.float32)
    return torch.from_numpy(found[:, 1:]), torch.from_numpy(found[:, 0])


def original(name: str) -> Any:
    found = getattr(qwen, name)
    return getattr(found, "hpd_original", found)


def delta_rule(q: Tensor, k: Tensor, *others: Tensor, **options: Any) -> Any:
    """transformers' own, in versions, too, that do not know of keys which heads share."""
    q, k = (each.repeat_interleave(H // each.shape[2], dim=2) for each in (q, k))
    return original("torch_chunk_gated_delta_rule")(q, k, *others, **options)


class Text:
    """One prompt: a trunk, a tree behind it, and what each token brings along."""

    def __init__(self, rng: np.random.Generator, num_before: int) -> None:
        """`num_before`: tokens of a prefix, computed apart."""
        self.num_before = num_before
        self.num_trunk = int(rng.integers(0 if num_before else 1, 9))
        self.parents = random_parents(rng, int(rng.integers(1, 9)))
        self.first = num_before + self.num_trunk
        size = self.first + len(self.parents)

        def normal(*sizes: int) -> Tensor:
            return torch.tensor(rng.standard_normal((size, *sizes)), dtype=torch.float32)

        self.x = normal(CHANNELS)
        self.q, self.k, self.v = normal(H_K, D), normal(H_K, D), normal(H, D_V)
        self.g, self.beta = -normal(H).abs() / 4, normal(H).sigmoid()
        scopes, lasts = scopes_of(self.parents)
        depths = [len(chain_to(node, self.parents)) for node in range(len(self.parents))]
        self.scopes = np.concatenate([np.full(self.first, PUBLIC), scopes])
        self.lasts = np.concatenate([np.full(self.first, EVERYBODY), lasts])
        self.positions = np.concatenate([np.arange(self.first), self.first - 1 + np.array(depths)])

    def path(self, token: int) -> list[int]:
        """The tokens up to this one, as it sees them."""
        if token < self.first:
            return list(range(token + 1))
        return [*range(self.first), *(self.first + node for node in chain_to(token - self.first, self.parents))]

    def steps(self, rng: np.random.Generator) -> Iterator[list[int]]:
        """All tokens behind the prefix, in order, some at a time."""
        token, size = self.num_before, len(self.positions)
        while token < size:
            stop = token + int(rng.integers(1, size - token + 1))
            yield list(range(token, stop))
            token = stop


def fed(cache: MixerCache, given: list[tuple[int, Text, list[int]]], weight: Tensor, bias: Tensor) -> list[Tensor]:
    """What both functions say to some tokens of each text, [t, ...] in their order."""
    prompts = np.array([row for row, _, tokens in given for _ in tokens], dtype=np.int64)

    def host(name: str) -> IntArray:
        return np.concatenate([getattr(text, name)[tokens] for _, text, tokens in given])

    def device(name: str) -> Tensor:
        return torch.cat([getattr(text, name)[tokens] for _, text, tokens in given])[None]

    # Another cohort's tokens come first.
    plan = cache.append(prompts, host("scopes"), host("lasts"), host("positions"), 2)
    step = LayerStep(0, [plan])

    def behind_others(tokens: Tensor) -> Tensor:
        return torch.cat([torch.full_like(tokens[:, :1], 7.0).expand(-1, 2, *tokens.shape[2:]), tokens], dim=1)

    x = behind_others(device("x")).transpose(1, 2)
    mixed = packed_convolution(step, None, x, weight, bias, activation="silu")
    q, k, v, g, beta = (behind_others(device(name)) for name in ("q", "k", "v", "g", "beta"))
    said, _ = packed_delta_rule(step, delta_rule, q, k, v, g, beta, use_qk_l2norm_in_kernel=True)
    return [mixed[0].t()[2:], said[0, 2:]]


def alone(text: Text, token: int, weight: Tensor, bias: Tensor) -> list[Tensor]:
    path = text.path(token)
    mixed = original("causal_conv1d_fn")(text.x[path].t()[None], weight, bias, activation="silu")
    arguments = (getattr(text, name)[path][None] for name in ("q", "k", "v", "g", "beta"))
    said, _ = delta_rule(*arguments, use_qk_l2norm_in_kernel=True)
    return [mixed[0, :, -1], said[0, -1]]


@pytest.fixture(params=[1, 64], ids=["apart", "together"])
def units(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts with unequally many tokens in a step, which these short texts are not by the usual measure."""
    monkeypatch.setattr(step_plan, "_TRUNK_UNIT", request.param)
    monkeypatch.setattr(step_plan, "_BRANCH_UNIT", request.param)


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.usefixtures("units")
def test_every_path_is_as_if_it_were_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight, bias = weights(rng)
    texts = [Text(rng, int(rng.choice([0, 0, 2, 5]))) for _ in range(3)]
    before: list[TrunkState | None] = []
    for text in texts:
        if not text.num_before:
            before.append(None)
            continue
        bare = MixerCache.for_prompts([SHAPE], [None], 0, np.zeros(1, dtype=np.int64))
        fed(bare, [(0, text, list(range(text.num_before)))], weight, bias)
        before += bare.trunk_states()
    cache = MixerCache.for_prompts([SHAPE], before, int(rng.integers(0, 4)), np.full(len(before), 2**40))
    steps = [text.steps(rng) for text in texts]
    rows = list(range(len(texts)))  # the texts that the cache still has, in its order
    while True:
        given = [(row, texts[which], next(steps[which], [])) for row, which in enumerate(rows)]
        given = [each for each in given if each[2]]
        if not given:
            break
        found = fed(cache, given, weight, bias)
        place = 0
        for _, text, tokens in given:
            for token in tokens:
                for ours, theirs in zip(found, alone(text, token, weight, bias), strict=True):
                    torch.testing.assert_close(ours[place], theirs, atol=1e-4, rtol=1e-4)
                place += 1
        if rng.random() < 0.3:
            order = rng.permutation(len(rows))
            if rng.random() < 0.5:
                cache.keep(order)
            else:
                cache = MixerCache.merge([cache], [np.arange(len(rows))], order)
            rows = [rows[row] for row in order]
