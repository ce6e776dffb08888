"""Packed weights: the same products, for the engine only, and never of a weight that has changed since."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hpd_core.config import EngineConfig
from hpd_core.packing import PackedLinears

from .families import build_model
from .helpers import decode, random_case, random_endings, random_ids

pytestmark = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this CPU does not multiply in bfloat16"
)


def half(bias: bool) -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(48, 80, bias=bias, dtype=torch.bfloat16).requires_grad_(False)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 7, 300])
def test_a_packed_layer_multiplies_as_the_plain_one(bias: bool, rows: int) -> None:
    layer = half(bias)
    x = torch.randn(1, rows, 48, dtype=torch.bfloat16)
    expected = torch.nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double() if bias else None)
    with torch.inference_mode(), PackedLinears(layer).active():
        found = layer(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), expected, atol=2e-2, rtol=1e-2)


def test_outside_of_the_engine_the_model_is_as_it_was() -> None:
    layer = half(True)
    packed = PackedLinears(layer)
    with packed.active():
        assert "forward" in layer.__dict__
    assert "forward" not in layer.__dict__
    with pytest.raises(RuntimeError), torch.inference_mode(), packed.active():
        layer(torch.zeros(1, 5, dtype=torch.bfloat16))
    assert "forward" not in layer.__dict__


def test_a_weight_that_was_trained_since_is_packed_anew() -> None:
    layer = half(False)
    packed = PackedLinears(layer)
    x = torch.randn(3, 48, dtype=torch.bfloat16)
    for change in (lambda: layer.weight.mul_(3), lambda: setattr(layer.weight, "data", torch.ones_like(layer.weight))):
        with torch.inference_mode(), packed.active():
            layer(x)
        change()
        with torch.inference_mode(), packed.active():
            torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, layer.weight), atol=2e-2, rtol=1e-2)


@pytest.mark.parametrize(
    "layer", [torch.nn.Linear(4, 4), torch.nn.Embedding(4, 4), torch.nn.Linear(4, 4, dtype=torch.float16)]
)
def test_other_layers_are_left_alone(layer: Any) -> None:
    with PackedLinears(layer).active():
        assert "forward" not in layer.__dict__


def test_the_engine_decodes_alike_with_and_without() -> None:
    rng = np.random.default_rng(8)
    endings = random_endings(rng)
    cases = [random_case(rng, "tree", [random_ids(rng, 9, 12)], branches=4, k_max=6) for _ in range(6)]
    runs = [
        decode(build_model("llama").to(torch.bfloat16), cases, endings, EngineConfig(pack_weights=pack))
        for pack in (True, False)
    ]
    for ours, theirs in zip(*runs, strict=True):
        same = [a == b for a, b in zip(ours.tokens, theirs.tokens, strict=True)]
        assert sum(same) >= len(same) - 1
