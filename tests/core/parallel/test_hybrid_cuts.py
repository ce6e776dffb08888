"""Layers beside attention, cut between processes: the parts add up to the whole, and engines of them answer alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpd_core import Engine
from tests.core.engines import answers, config
from tests.core.mixers.hybrids import build_hybrid
from tests.core.products import SCHEMAS, products
from tests.tiny_model import build_tokenizer

CUTTABLE = ("lfm2", "qwen3_5")


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
