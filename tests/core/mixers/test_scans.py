"""Our scans over packed trees, fed in any steps, says what transformers' own says to each path alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.models.mamba import modeling_mamba

from hpd_core.mixers import scans
from hpd_core.mixers.running import LayerStep
from hpd_core.mixers.scans import packed_channel_scan
from hpd_core.mixers.states import MixerCache, MixerShape, TrunkState
from tests.examples import examples

from .test_packed_trees import CHANNELS, Text

HEADS, SIZE, NUMBERS = 2, CHANNELS // 2, 3
"""Two scans a layer, of half of its channels each, as Zamba has them."""
SCAN = MixerShape(CHANNELS, 2, torch.float32, torch.device("cpu"), HEADS, CHANNELS, NUMBERS, 1)


def original(name: str) -> Any:
    found = getattr(modeling_mamba, name)
    return getattr(found, "hpd_original", found)


class Scans:
    """Mamba's, with weights drawn at random."""

    shape = SCAN

    def __init__(self, rng: np.random.Generator) -> None:
        self.weight = torch.tensor(rng.standard_normal((CHANNELS, 2 + 2 * NUMBERS * HEADS)), dtype=torch.float32)
        self.decay = -torch.tensor(rng.uniform(0.01, 0.5, (CHANNELS, NUMBERS)), dtype=torch.float32)
        self.bias, self.skip = torch.tensor(rng.standard_normal((2, CHANNELS)), dtype=torch.float32)

    def said(self, x: Tensor, step: LayerStep | None = None) -> Tensor:
        """[T, channels] -> the same: ours in a step, else transformers'."""
        mixed = x @ self.weight
        found = []
        for head in range(HEADS):
            part, own = slice(head * SIZE, head * SIZE + SIZE), slice(2 + 2 * NUMBERS * head, None)
            b, c = mixed[:, own][:, :NUMBERS], mixed[:, own][:, NUMBERS : 2 * NUMBERS]
            given: dict[str, Any] = {
                "hidden_states": x[:, part].t()[None],
                "dt": mixed[:, head, None].expand(-1, SIZE).t()[None],
                "D": self.skip[part],
                "z": x[:, part].t()[None],
                "delta_bias": self.bias[part],
                "delta_softplus": True,
            }
            b, c = b.t()[None], c.t()[None]
            if step is not None:
                ours = packed_channel_scan(step, None, **given, decay=self.decay[part], into_state=b, out_of_state=c)
                found.append(ours)
            else:
                found.append(original("mamba_selective_scan")(**given, A=self.decay[part], B=b, C=c))
        return torch.cat(found, dim=1)[0].t()


def fed(mixer: Any, cache: MixerCache, given: list[tuple[int, Text, list[int]]]) -> Tensor:
    """What is said to some tokens of each text, in their order."""
    prompts = np.array([row for row, _, tokens in given for _ in tokens], dtype=np.int64)
    scopes, lasts, positions = (
        np.concatenate([getattr(text, name)[tokens] for _, text, tokens in given])
        for name in ("scopes", "lasts", "positions")
    )
    step = LayerStep(0, [cache.append(prompts, scopes, lasts, positions, 0)])
    said: Tensor = mixer.said(torch.cat([text.x[tokens] for _, text, tokens in given]), step)
    assert step.num_recurred == CHANNELS
    return said


@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_path_is_as_if_it_were_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mixer = Scans(rng)
    texts = [Text(rng, int(rng.choice([0, 0, 2, 5]))) for _ in range(3)]
    before: list[TrunkState | None] = []
    for text in texts:
        bare = MixerCache.for_prompts([SCAN], [None], 0, np.zeros(1, dtype=np.int64))
        if text.num_before:
            fed(mixer, bare, [(0, text, list(range(text.num_before)))])
        before += bare.trunk_states() if text.num_before else [None]
    cache = MixerCache.for_prompts([SCAN], before, int(rng.integers(0, 4)), np.full(len(before), 2**40))
    steps = [text.steps(rng) for text in texts]
    while given := [(row, text, tokens) for row, text in enumerate(texts) if (tokens := next(steps[row], []))]:
        found = iter(fed(mixer, cache, given))
        for _, text, tokens in given:
            for token in tokens:
                torch.testing.assert_close(next(found), mixer.said(text.x[text.path(token)])[-1], atol=1e-4, rtol=1e-4)


def test_pairs_of_tokens_are_taken_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    mixer, text = Scans(rng), Text(rng, 0)
    found = []
    for at_once in (1, 2**20):
        monkeypatch.setattr(scans, "_NUMBERS", at_once)
        cache = MixerCache.for_prompts([SCAN], [None], 0, np.zeros(1, dtype=np.int64))
        found.append(fed(mixer, cache, [(0, text, list(range(len(text.positions))))]))
    torch.testing.assert_close(*found)
