"""What a forecast takes a hybrid's work to be, against what real steps multiply and keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from hpd_core import Engine
from hpd_core.mixers.families import Mixers
from hpd_core.mixers.states import MixerCache
from pipelines.costing.machines import Work, work_per_row
from pipelines.plan import app
from tests.core.engines import config
from tests.core.mixers.hybrids import build_hybrid
from tests.core.products import SCHEMAS, products
from tests.pipelines.conftest import Workplace, product
from tests.pipelines.costing.forecasts import job
from tests.tables import table
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


@pytest.mark.full
@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        ("qwen3_5", {"linear_key_head_dim": 64, "linear_value_head_dim": 64, "num_attention_heads": 2}),
        ("mamba2", {"head_dim": 64, "state_size": 64, "chunk_size": 64}),
    ],
)
def test_operations_on_states_are_about_those_of_real_steps(family: str, sizes: dict[str, int]) -> None:
    """In the steps are padding, what values of a product compare, and attention, which are not in the forecast."""
    work, counts = measured(family, **sizes)
    assert 0.4 * counts["else"] < work.state_flops < 1.5 * counts["else"]


@table("family", ["lfm2", "qwen3_5", "granitemoehybrid", "mamba"])
def test_bytes_are_those_of_a_cohort(family: str) -> None:
    tokenizer = build_tokenizer()
    model = build_hybrid(family, vocab_size=len(tokenizer))
    with Engine(model, tokenizer, config()) as engine:
        size = engine.describe()["model_size"]
    mixers = Mixers.of(model)
    assert size is not None
    assert mixers is not None
    for num_columns in (0, 7):
        cohort = MixerCache.for_prompts(mixers.shapes, [None] * 3, num_columns)
        widest = max(shape.kernel for shape in mixers.shapes) - 1
        assert all(shape.kernel - 1 == widest for shape in mixers.shapes)
        assert cohort.num_bytes == 3 * (size["state_bytes"] + num_columns * size["column_bytes"])


@pytest.mark.full
def test_a_plan_says_what_a_hybrid_keeps(tmp_path: Path) -> None:
    tokenizer = build_tokenizer()
    build_hybrid("qwen3_5", vocab_size=len(tokenizer)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    workplace = Workplace(tmp_path, tmp_path / "model")
    workplace.write_jsonl("c.jsonl", [product(number) for number in range(40)])
    options = ["--config", str(workplace.write_config()), "--pilot", "20"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    assert "what layers beside attention keep: " in result.stdout
    result = CliRunner().invoke(app, [*options, "--on", "g6e.48xlarge"])
    assert "(states' at 92, fp32)" in result.output
