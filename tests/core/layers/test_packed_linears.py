"""Packed weights: the same products, for the engine only, and never of a weight that has changed since."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from hpd_core.layers.packed_linears import Forward, PackedLinears
from tests.core.families import build_model
from tests.core.native import needs_tiles
from tests.tables import table

pytestmark = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this CPU does not multiply in bfloat16"
)


def half(bias: bool, depth: int = 48) -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(depth, 80, bias=bias, dtype=torch.bfloat16).requires_grad_(False)


@table("bias", [True, False])
@table("rows", [1, 7, 300])
@table("depth", [48, 64])  # no whole tiles, and two
def test_a_packed_layer_multiplies_as_the_plain_one(bias: bool, rows: int, depth: int) -> None:
    layer = half(bias, depth)
    x = torch.randn(1, rows, depth, dtype=torch.bfloat16)
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


@table("depth", [48, 64])
def test_a_weight_that_was_trained_since_is_packed_anew(depth: int) -> None:
    layer = half(False, depth)
    packed = PackedLinears(layer)
    x = torch.randn(3, depth, dtype=torch.bfloat16)
    for change in (lambda: layer.weight.mul_(3), lambda: setattr(layer.weight, "data", torch.ones_like(layer.weight))):
        with torch.inference_mode(), packed.active():
            layer(x)
        change()
        with torch.inference_mode(), packed.active():
            torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, layer.weight), atol=2e-2, rtol=1e-2)


def llama(**sizes: int) -> Any:
    return build_model("llama", **sizes).to(torch.bfloat16).requires_grad_(False)


def gated_mlp() -> Any:
    return llama(hidden_size=64).model.layers[0].mlp


def assert_computes(mlp: Any, forward: Forward | None) -> None:
    assert forward is not None
    x = torch.randn(9, 64, dtype=torch.bfloat16)
    with torch.inference_mode():
        exact = copy.deepcopy(mlp).double()(x.double())
        assert (forward(x).double() - exact).norm() < 5e-3 * exact.norm()


@needs_tiles
def test_an_mlp_that_was_named_is_computed_in_one() -> None:
    mlp = gated_mlp()
    packed = PackedLinears(mlp, [mlp])
    with packed.active():
        assert not any("forward" in layer.__dict__ for layer in mlp.modules()), "packed a second time"
        assert_computes(mlp, packed.gated_mlp(mlp))
        mlp.up_proj.weight.mul_(3)
        assert_computes(mlp, packed.gated_mlp(mlp))
        assert packed.gated_mlp(gated_mlp()) is None
        for part in (mlp.gate_proj, mlp.down_proj):
            hook = part.register_forward_pre_hook(lambda *_: None)
            assert packed.gated_mlp(mlp) is None, "somebody waits for a call"
            hook.remove()
        assert packed.gated_mlp(mlp) is not None
        mlp.up_proj = torch.nn.Linear(64, 64, bias=False, dtype=torch.bfloat16)
        assert packed.gated_mlp(mlp) is None, "of a layer that is not the model's any more"
