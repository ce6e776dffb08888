"""The way to attend that a GPU has, on a pretended one: nothing waits, few launches, and graphs of small steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpd_core import EngineConfig
from tests.core.families import BOTH_WAYS
from tests.core.test_pretended_gpu import check_decoding, check_engine
from tests.core.triton import needs_interpreter

pytestmark = needs_interpreter


def full(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.full)


@pytest.fixture(autouse=True)
def small_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter is slow."""

    from hpd_core.layers import triton_layers

    monkeypatch.setattr(triton_layers, "BUCKETS", (4, 16, 48))


@pytest.mark.parametrize(
    ("family", "layout", "settings"),
    [
        ("llama", "tree", {}),
        full("llama", "tree", {"cuda_graphs": False}),
        full("llama", "tree", {"layers": "transformers"}),
        ("llama", "stacked", {"cuda_graphs": False}),
        full("qwen3", "tree", {"overlap_steps": False}),
        full("llama", BOTH_WAYS, {}),
        full("qwen3", BOTH_WAYS, {}),
        full("qwen3", "stacked", {}),
        full("mistral", "tree", {}),
        full("gemma3", "tree", {}),
    ],
)
def test_decoding_equals_the_oracle_and_never_waits(family: str, layout: str, settings: dict[str, Any]) -> None:
    """Steps of more tokens than graphs have, and of fewer."""
    config = EngineConfig(max_tokens_per_step=64, max_prompts_per_cohort=2, **settings)
    gpu = check_decoding(layout, family, config, num_cases=4, branches=3, k_max=4)
    # Tokens that reach beyond a window have no graph; there are no others here.
    is_captured = family in ("llama", "qwen3") and not settings.keys() & {"cuda_graphs", "layers"}
    assert (gpu.num_replays > 0) == is_captured


@pytest.mark.parametrize("settings", [{}, full({"layout": "stacked"}), full({"prompt": {"keys": "short"}})])
def test_an_engine_answers_as_on_the_cpu(settings: dict[str, Any], tiny_model_dir: Path) -> None:
    assert check_engine(tiny_model_dir, 1, settings) == "triton"
