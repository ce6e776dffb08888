"""What a forecast takes a hybrid's work to be, against what real steps multiply and keep."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from torch.utils.flop_counter import FlopCounterMode

from hpd_core import Engine
from pipelines.reporting.machines import Work, work_per_row
from tests.core.engines import config
from tests.core.mixers.hybrids import build_hybrid
from tests.core.products import SCHEMAS, products
from tests.pipelines.reporting.forecasts import job
from tests.tiny_model import build_tokenizer

NUM_PRODUCTS = 24


def measured(family: str, **sizes: int) -> tuple[Work, dict[str, float]]:
    """What is forecast for some products, and what their steps have multiplied: by weights, and all else."""
    tokenizer = build_tokenizer()
    model = build_hybrid(family, vocab_size=len(tokenizer), hidden_size=256, **sizes)
    plain = config(attention="eager", layers="transformers", max_scored_tokens=0)
    counts = {"by weights": 0.0, "else": 0.0}
    with Engine(model, tokenizer, plain) as engine:
        run = engine._decoder._runner.run

        def counted(inputs: Any) -> Any:
            with FlopCounterMode(display=False) as counter:
                found = run(inputs)
            for name, flops in counter.get_flop_counts()["Global"].items():
                counts["by weights" if str(name) in ("aten.mm", "aten.addmm") else "else"] += flops
            return found

        with patch.object(engine._decoder._runner, "run", counted):
            future = engine.submit(products(NUM_PRODUCTS), SCHEMAS)
            future.result()
        metrics = future.metrics
        tokens = {
            "document": metrics.document_tokens + metrics.prefix_tokens_computed,
            "key": metrics.key_tokens,
            "value": metrics.value_tokens,
        }
        return work_per_row(job(), dict(engine.describe()), tokens), counts


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        ("lfm2", {}),
        pytest.param("lfm2_moe", {}, marks=pytest.mark.full),
        pytest.param("qwen3_5_moe", {}, marks=pytest.mark.full),
        pytest.param("mamba2", {"head_dim": 64}, marks=pytest.mark.full),
    ],
)
def test_operations_by_weights_are_those_of_real_steps(family: str, sizes: dict[str, int]) -> None:
    """Of experts, half are idle here."""
    work, counts = measured(family, **sizes)
    assert work.flops == pytest.approx(counts["by weights"], rel=0.06)
