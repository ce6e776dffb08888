"""Layers beside attention, cut between processes: the parts add up to the whole, and engines of them answer alike."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hpd_core import Engine, ModelError
from hpd_core.mixers.families import Mixers
from hpd_core.parallel.tensor_parallel import cut, plan_cuts
from tests.core.engines import answers, config
from tests.core.mixers.hybrids import build_hybrid
from tests.core.parallel.test_tensor_parallel import Sum
from tests.core.products import SCHEMAS, products
from tests.tables import table
from tests.tiny_model import build_tokenizer

CUTTABLE = ("lfm2", "qwen3_5")
REFUSED = {
    "lfm3": "have no plan for it in transformers",
    "lfm2_moe": "their plan asks for",
    "qwen3_next": "their plan asks for",
    "olmo_hybrid": "their plan asks for",
    "granitemoehybrid_dense": "their plan leaves out",
    "falcon_h1": "have no plan for it in transformers",
    "mamba2": "have no plan for it in transformers",
}


@table("family", CUTTABLE)
def test_parts_add_up_to_the_whole(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_hybrid(family)
    ids = torch.arange(3, 43)[None]
    with torch.inference_mode():
        expected = model(input_ids=ids, use_cache=False).logits
    parts = [copy.deepcopy(model) for _ in range(2)]
    for rank, part in enumerate(parts):
        cut(part, rank, 2)
    monkeypatch.setattr(dist, "all_reduce", Sum(2))

    def logits(part: Any) -> torch.Tensor:
        with torch.inference_mode():
            found: torch.Tensor = part(input_ids=ids, use_cache=False).logits
        return found

    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(logits, parts):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)
    numbers = [
        sum(p.numel() for name, p in each.named_parameters() if ".layers." in name) for each in (model, parts[0])
    ]
    assert numbers[1] < numbers[0] / 2 * 1.1  # norms are whole
    whole, half = (Mixers.of(each) for each in (model, parts[0]))
    assert whole is not None
    assert half is not None
    for before, after in zip(whole.shapes, half.shapes, strict=True):
        assert (after.bytes_per_trunk, after.bytes_per_column) == (
            before.bytes_per_trunk / 2,
            before.bytes_per_column / 2,
        )


@pytest.mark.parametrize("family", [CUTTABLE[0], pytest.param(CUTTABLE[1], marks=pytest.mark.full)])
def test_answers_are_those_of_the_whole_model(family: str, tmp_path: Path) -> None:
    """Real processes; each keeps the states of its own channels or heads."""
    tokenizer = build_tokenizer()
    build_hybrid(family, vocab_size=len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)

    def found(**options: Any) -> Any:
        with Engine.from_pretrained(str(tmp_path), config(**options)) as engine:
            return answers(engine.extract(products(12), SCHEMAS))

    expected = found()
    assert len({answer for record in expected for answer in record}) > 10
    small = {"max_tokens_per_step": 64, "max_prompts_per_cohort": 3}  # many steps, merges, waiting prompts
    assert found(tensor_parallel=2, **small) == expected


@table("family", REFUSED)
def test_families_that_cannot_be_cut(family: str) -> None:
    with pytest.raises(ModelError, match=f"{REFUSED[family]}.* set tensor_parallel to 1"):
        plan_cuts(build_hybrid(family), 2)


def test_channels_and_heads_have_to_be_divisible() -> None:
    with pytest.raises(ModelError, match=r"key heads of linear attention \(2\) cannot be divided by tensor_parallel 4"):
        plan_cuts(build_hybrid("qwen3_5", num_key_value_heads=4), 4)
    with pytest.raises(ModelError, match=r"channels of a convolution \(44\) cannot be divided by tensor_parallel 8"):
        plan_cuts(build_hybrid("lfm2", hidden_size=44, num_attention_heads=8, num_key_value_heads=8, head_dim=8), 8)
