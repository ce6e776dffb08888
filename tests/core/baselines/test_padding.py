"""Padding before a prompt: who answers alike, whatever stands there, and who is never given any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from hpd_core import AutoregressiveBaseline, EngineConfig
from hpd_core.baselines.autoregressive import takes_padding
from tests.core.helpers import random_ids
from tests.core.products import SCHEMAS, products
from tests.core.sweep.configs import REACHES
from tests.core.sweep.outcome import build
from tests.tables import table
from tests.tiny_model import answering_model, answering_tokenizer

HEARS = ("llama4_text", "minimax_m3_vl_text", "recurrent_gemma")
QUICK = ("llama", "bloom", "gpt_neo", "lfm2")
"""Positions, a bias by position, windows, convolutions."""
OTHERS = (
    "mpt",
    "falcon",
    "gemma3_text",
    "gpt_oss",
    "qwen3_5_text",
    "falcon_h1",
    "mamba",
    "deepseek_v3",
    "biogpt",
    "opt",
)


def tight(name: str) -> Any:
    """With windows, chunks and scales of queries shorter than the texts."""
    model = build(name, REACHES["tight"])
    for module in model.modules():
        if getattr(module, "attn_temperature_tuning", False):
            module.attn_scale = 1.0
    model.generation_config.eos_token_id = None
    return model


def logits_of(model: Any, prompt: Sequence[int], padding: int) -> torch.Tensor:
    """Of the first tokens that `generate` writes, as long as they are those that it writes without padding."""
    output = model.generate(
        input_ids=torch.tensor([[0] * padding + [*prompt]]),
        attention_mask=torch.tensor([[0] * padding + [1] * len(prompt)]),
        do_sample=False,
        max_new_tokens=3,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    return torch.stack(output.logits)[:, 0]


def behind(name: str) -> float:
    """How far padding moves logits, in their deviations."""
    model = tight(name)
    prompt = random_ids(np.random.default_rng(1), 19, 19)
    alone, padded = logits_of(model, prompt, 0), logits_of(model, prompt, 6)
    return float((alone - padded).abs().max() / alone.std())


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(each, marks=pytest.mark.full) for each in OTHERS)])
def test_padding_is_not_heard_of(name: str) -> None:
    assert takes_padding(tight(name))
    assert behind(name) < 1e-3


@table("name", HEARS)
def test_who_hears_of_it_is_told(name: str) -> None:
    assert not takes_padding(tight(name))
    assert behind(name) > 1e-2


@table("pads", [True, False])
def test_batches_of_who_hears_of_it_hold_prompts_of_one_length(pads: bool) -> None:
    tokenizer = answering_tokenizer()
    sizes: list[set[int]] = []
    with AutoregressiveBaseline(answering_model(tokenizer), tokenizer, EngineConfig(device="cpu")) as baseline:
        baseline._pads = pads
        generate = baseline._generate

        def noting(prompts: list[list[int]], *rest: Any) -> Any:
            sizes.append({len(prompt) for prompt in prompts})
            return generate(prompts, *rest)

        baseline._generate = noting  # type: ignore[assignment, method-assign]
        records = products(8)
        assert [result.id for result in baseline.extract(records, SCHEMAS)] == [record.id for record in records]
    assert (max(map(len, sizes)) > 1) == pads
