"""Whole decodings by the kernels in Triton, in its interpreter: equal to the oracle, whatever the layers are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hpd_core import EngineConfig
from tests.core.families import build_model
from tests.core.helpers import (
    Case,
    assert_equals_oracle,
    decode,
    decoder_with_constraints,
    random_case,
    random_endings,
    random_ids,
)
from tests.core.triton import needs_interpreter
from tests.tables import table

pytestmark = needs_interpreter

TRITON = {"attention": "triton", "layers": "triton"}


def cases_of(rng: np.random.Generator, layout: str = "tree", count: int = 3, k_max: int = 3) -> list[Case]:
    prefixes = [[], random_ids(rng, 9, 15)]
    return [random_case(rng, layout, prefixes, branches=3, k_max=k_max) for _ in range(count)]


def full(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.full)


@pytest.mark.parametrize(
    ("family", "layout", "changes"),
    [
        ("llama", "tree", {"layers": "triton"}),
        full("llama", "tree", {"layers": "transformers"}),
        full("llama", "stacked", {"layers": "triton"}),
        full("llama", "stacked", {"layers": "transformers"}),
        ("qwen3", "tree", {"layers": "triton"}),
        full("qwen3", "tree", {"layers": "transformers"}),
        full("qwen3", "stacked", {"layers": "triton"}),
        full("mistral", "tree", {"layers": "triton"}),  # windows
        ("mistral", "stacked", {"layers": "triton"}),
        full("qwen2", "tree", {"layers": "triton"}),  # biases, and windows in some layers
        ("granite", "tree", {"layers": "triton"}),  # factors
        ("smollm3", "tree", {"layers": "triton"}),  # no rotary embedding in some layers
        ("gemma3", "tree", {"layers": "triton"}),  # norms behind, angles by the layer's type
        full("gemma3", "stacked", {"layers": "triton"}),
        full("gemma2", "tree", {"layers": "triton"}),  # soft caps
        full("gemma2", "tree", {"layers": "transformers"}),
        full("phi3", "tree", {"layers": "triton"}),  # joined projections, heads that are turned in part
        full("glm4", "tree", {"layers": "triton"}),
        full("olmo2", "tree", {"layers": "triton"}),  # norms behind alone, and of all heads together
        full("gpt_oss", "tree", {"layers": "auto"}),
        ("gpt_oss", "stacked", {"layers": "auto"}),
    ],
)
@pytest.mark.usefixtures("poison")
def test_decoding_equals_the_oracle(family: str, layout: str, changes: dict[str, Any]) -> None:
    """Shared prefixes, windows, softcap and sinks, in cohorts that shrink and merge."""
    rng = np.random.default_rng(11)
    endings = random_endings(rng, share=0.1)
    cases = cases_of(rng, layout, count=4, k_max=3)
    config = EngineConfig(attention="triton", max_tokens_per_step=60, max_prompts_per_cohort=3, **changes)
    prompts = decode(build_model(family), cases, endings, config)
    oracle = build_model(family)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)


class Wrapped(torch.nn.Module):
    """A linear layer by another name, without a weight of its own."""

    def __init__(self, inside: Any) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: Tensor) -> Any:
        return self.inside(x)


def _wrap(model: Any) -> None:
    for layer in model.model.layers:
        layer.mlp.gate_proj, layer.self_attn.q_proj = Wrapped(layer.mlp.gate_proj), Wrapped(layer.self_attn.q_proj)


def _hook(model: Any) -> None:
    for layer in model.model.layers:
        layer.self_attn.k_proj.register_forward_hook(lambda _, __, found: found * 1)


def _share(model: Any) -> None:
    """One layer's weights are another's."""
    model.model.layers[1].mlp.up_proj.weight = model.model.layers[0].mlp.up_proj.weight


@table("change", [_wrap, _hook, _share])
def test_linear_layers_may_be_anything(change: Any) -> None:
    rng = np.random.default_rng(7)
    endings = random_endings(rng)
    [case] = cases_of(rng, count=1)
    model, oracle = build_model("llama"), build_model("llama")
    change(model)
    if change is _share:
        change(oracle)
    [prompt] = decode(model, [case], endings, EngineConfig(**TRITON))
    assert_equals_oracle(oracle, case, prompt, endings)


def test_logits_in_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    from hpd_core.layers import triton_layers

    monkeypatch.setattr(triton_layers, "_LOGIT_BYTES", 1)
    rng = np.random.default_rng(5)
    endings = random_endings(rng)
    cases = [random_case(rng, "tree", [random_ids(rng, 4, 12)], branches=9, k_max=2) for _ in range(3)]
    sizes: list[int] = []
    model = build_model("qwen3")
    model.lm_head.register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))
    prompts = decode(model, cases, endings, EngineConfig(**TRITON))
    assert max(sizes) == 16
    assert min(sizes) < 16
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(build_model("qwen3"), case, prompt, endings)


def test_weights_may_be_changed_in_place() -> None:
    """As training does it: weights and biases that stand side by side are the model's own; a norm's may be replaced."""
    rng = np.random.default_rng(3)
    endings, cases = random_endings(rng), cases_of(rng)
    model = build_model("qwen2")
    decoder = decoder_with_constraints(model, endings, EngineConfig(**TRITON))
    other = build_model("qwen2", seed=1)
    model.model.norm.weight = torch.nn.Parameter(torch.zeros_like(model.model.norm.weight))
    model.load_state_dict(other.state_dict())
    prompts = [case.prompt() for case in cases]
    decoder.add(prompts)
    while decoder.has_work:
        decoder.step()
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(other, case, prompt, endings)


def test_who_waits_for_a_layer_is_called() -> None:
    rng = np.random.default_rng(3)
    endings, cases = random_endings(rng), cases_of(rng, count=1)
    model = build_model("llama")
    calls: list[Any] = []
    attention = model.model.layers[0].self_attn
    attention.o_proj.register_forward_hook(lambda *given: calls.append(given))
    attention.k_proj.register_forward_pre_hook(lambda *given: calls.append(given))
    [prompt] = decode(model, cases, endings, EngineConfig(**TRITON))
    assert len(calls) > 1
    assert_equals_oracle(build_model("llama"), cases[0], prompt, endings)
