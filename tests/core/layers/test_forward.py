"""Layers by our own code: which models have them; blocks of logits, adapters, half precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import nn

from hpd_core.config import EngineConfig
from hpd_core.decoding.decoder import Decoder
from hpd_core.decoding.prompt import Prompt
from hpd_core.errors import ModelError
from hpd_core.layers import forward
from hpd_core.layers.forward import CpuLayers, why_not_ours
from hpd_core.text.endings import Endings
from tests.core.families import FAMILIES, FUSED, build_model, build_tiled_model
from tests.core.helpers import (
    Case,
    assert_equals_oracle,
    decode,
    decoder_with_constraints,
    new_decoder,
    random_case,
    random_endings,
    random_ids,
)
from tests.core.native import layers_at_once, needs_native, needs_tiles
from tests.tables import table

pytestmark = needs_native


@table("family", FAMILIES)
def test_who_runs_the_layers(family: str) -> None:
    assert new_decoder(build_model(family)).layers == ("native" if family in FUSED else "transformers")


@table(
    ("family", "changes", "reason"),
    [
        ("gpt_neox", {"layers": "native"}, "engine.layers is 'native', but there is no code of ours for GPTNeoX"),
        ("llama", {"layers": "native", "attention": "eager"}, "engine.layers is 'native', but attention is 'eager'"),
        ("llama", {"layers": "triton", "attention": "eager"}, "engine.layers is 'triton', but attention is 'eager'"),
        ("llama", {"layers": "triton"}, "engine.layers is 'triton', but attention is 'native'"),
    ],
)
def test_who_asks_for_what_cannot_be_had_is_told_why(family: str, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        new_decoder(build_model(family), **changes)


def test_factors_that_a_configuration_names_in_vain_are_not_applied() -> None:
    """Granite's and GLM's: transformers' Llama does not read them."""
    rng = np.random.default_rng(3)
    endings = random_endings(rng)
    case = random_case(rng, "tree", [random_ids(rng, 9, 14)], branches=3, k_max=6)
    factors: dict[str, Any] = {"embedding_multiplier": 3, "residual_multiplier": 3, "logits_scaling": 3}
    factors["partial_rotary_factor"] = 0.5
    [prompt] = decode(build_model("llama", **factors), [case], endings, EngineConfig(layers="native"))
    assert_equals_oracle(build_model("llama"), case, prompt, endings)


@table(
    ("family", "sizes"),
    [
        ("glm4", {"head_dim": 12, "partial_rotary_factor": 0.25}),
        ("phi3", {"hidden_size": 80, "partial_rotary_factor": 0.25}),
    ],
)
def test_an_odd_part_of_a_head_is_rounded_up(family: str, sizes: dict[str, Any]) -> None:
    rng = np.random.default_rng(5)
    endings = random_endings(rng)
    case = random_case(rng, "tree", [random_ids(rng, 9, 14)], branches=3, k_max=6)
    [prompt] = decode(build_model(family, **sizes), [case], endings, EngineConfig(layers="native"))
    assert_equals_oracle(build_model(family, **sizes), case, prompt, endings)


class Other(nn.Module):
    """Stands where another module was."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside
        self.weight = torch.ones(48)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inside(*args, **kwargs)


def derive(module: Any) -> None:
    module.__class__ = type("Mine", (type(module),), {})


def hook(module: Any) -> None:
    module.register_forward_hook(lambda *_: None)


def hook_before(module: Any) -> None:
    module.register_forward_pre_hook(lambda *_: None)


def replace_forward(module: Any) -> None:
    module.forward = lambda x: x


PARTS: dict[str, Callable[[Any], Any]] = {
    "model": lambda model: model,
    "base": lambda model: model.model,
    "rotary": lambda model: model.model.rotary_emb,
    "last norm": lambda model: model.model.norm,
    "layer": lambda model: model.model.layers[2],
    "attention": lambda model: model.model.layers[1].self_attn,
    "norm": lambda model: model.model.layers[1].post_attention_layernorm,
    "norm of queries": lambda model: model.model.layers[1].self_attn.q_norm,
    "mlp": lambda model: model.model.layers[1].mlp,
    "activation": lambda model: model.model.layers[1].mlp.act_fn,
}


@table("part", PARTS)
@table("change", [derive, hook, hook_before, replace_forward])
def test_a_part_that_somebody_has_changed_runs_by_its_own_code(change: Callable[[Any], None], part: str) -> None:
    model = build_model("qwen3")
    assert why_not_ours(model, "native") is None
    change(PARTS[part](model))
    assert why_not_ours(model, "native") is not None


def wrapped_layer(model: Any) -> None:
    model.model.layers[1] = Other(model.model.layers[1])


def wrapped_norm(model: Any) -> None:
    model.model.layers[1].input_layernorm = Other(model.model.layers[1].input_layernorm)


def other_norm(model: Any) -> None:
    model.model.norm = nn.RMSNorm(48)


def other_activation(model: Any) -> None:
    model.model.layers[0].mlp.act_fn = nn.GELU()


def mixed(model: Any) -> None:
    model.model.norm.to(torch.bfloat16)


def half(model: Any) -> None:
    model.to(torch.float16)


def gaps(model: Any) -> None:
    model.model.norm.weight.data = torch.ones(96)[::2]


def elsewhere(model: Any) -> None:
    model.to("meta")


@pytest.mark.parametrize(
    "change", [wrapped_layer, wrapped_norm, other_norm, other_activation, mixed, half, gaps, elsewhere]
)
def test_another_model_runs_by_its_own_code(change: Callable[[Any], None], caplog: pytest.LogCaptureFixture) -> None:
    model = build_model("llama")
    change(model)
    assert why_not_ours(model, "native") is not None
    if change is other_activation:
        caplog.set_level("INFO", logger="hpd_core")
        assert new_decoder(model).layers == "transformers"
        assert "layers run by transformers' code: a part of LlamaForCausalLM is a GELU" in caplog.text


def decode_as_oracle(model: Any, seed: int) -> tuple[list[Case], Endings, list[Prompt]]:
    """Random cases, decoded by this very model and held to its own code."""
    rng = np.random.default_rng(seed)
    endings = random_endings(rng)
    cases = [random_case(rng, "tree", [random_ids(rng, 9, 14)], branches=4, k_max=6) for _ in range(4)]
    prompts = decode(model, cases, endings, EngineConfig())
    model.set_attn_implementation("eager")
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(model, case, prompt, endings)
    return cases, endings, prompts


def test_layers_that_the_configuration_leaves_out_are_left_out() -> None:
    model = build_model("llama")
    model.config.num_hidden_layers = 2
    decode_as_oracle(model, 10)


@pytest.mark.parametrize("family", FUSED)
@pytest.mark.usefixtures("poison")
def test_small_blocks_of_logits(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Constraints are in them; every block but the last has 16 rows."""
    monkeypatch.setattr(forward, "_block_bytes", lambda hidden: 1)
    sizes: list[int] = []
    rng = np.random.default_rng(3)
    endings = random_endings(rng, share=0.05)
    cases = [random_case(rng, "tree", [random_ids(rng, 9, 14)], branches=9, k_max=6) for _ in range(8)]
    model = build_model(family)
    model.lm_head.register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))
    for case, prompt in zip(cases, decode(model, cases, endings, EngineConfig()), strict=True):
        assert_equals_oracle(build_model(family), case, prompt, endings)
    assert max(sizes) == 16
    assert len(set(sizes)) > 1


@pytest.mark.parametrize("is_tiled", [False, pytest.param(True, marks=needs_tiles)])
def test_what_is_trained_between_two_steps_counts(is_tiled: bool) -> None:
    """Of any kind of weight, in place or by another tensor."""
    model = build_tiled_model("qwen2") if is_tiled else build_model("qwen2", hidden_size=64, head_dim=32)
    ones = torch.ones(64, dtype=model.dtype)
    changes = [
        lambda layer: layer.self_attn.k_proj.weight.mul_(-1),
        lambda layer: layer.self_attn.q_proj.bias.mul_(-1),
        lambda layer: setattr(layer.self_attn.k_proj, "bias", nn.Parameter(ones.clone())),
        lambda layer: setattr(layer.self_attn.v_proj.bias, "data", ones.clone()),
        lambda layer: setattr(layer.self_attn.q_proj, "bias", None),
        lambda layer: layer.mlp.up_proj.weight.mul_(-1),
        lambda layer: layer.input_layernorm.weight.mul_(-1),
        lambda layer: setattr(layer.post_attention_layernorm, "weight", nn.Parameter(ones.clone())),
        lambda layer: setattr(layer.input_layernorm.weight, "data", ones.clone()),
        lambda layer: setattr(layer.self_attn, "scaling", 0.5),
    ]
    rng = np.random.default_rng(0)
    endings, case = random_endings(rng), random_case(rng, "tree", [random_ids(rng, 9, 14)], branches=4, k_max=6)
    seen = [answer(decoder_with_constraints(model, endings, EngineConfig()), case)]
    decoder = decoder_with_constraints(model, endings, EngineConfig())
    assert answer(decoder, case) == seen[0]
    for change in changes:
        with torch.no_grad():
            change(model.model.layers[1])
        with layers_at_once() as calls:
            seen.append(answer(decoder, case))
        assert bool(calls) == is_tiled
        with patch.object(CpuLayers, "_layers_at_once", lambda *_: None):
            assert seen[-1] == answer(decoder_with_constraints(model, endings, EngineConfig()), case), "the old weights"
    assert len({str(item) for item in seen}) == len(seen), "a change that changes nothing"


def answer(decoder: Decoder, case: Case) -> tuple[Any, ...]:
    decoder.forget_prefixes()
    prompt = case.prompt()
    decoder.add([prompt])
    while decoder.has_work:
        decoder.step()
    return prompt.tokens, prompt.logprobs, [end.closed for end in prompt.ends]
