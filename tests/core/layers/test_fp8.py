"""Numbers in FP8, products of them, and whole models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hpd_core import ModelError
from hpd_core.layers import fp8
from hpd_core.layers.fp8 import LARGEST, Fp8Linear, product, quantize_model, quantize_rows
from tests.core.families import build_model
from tests.examples import examples
from tests.tables import table

_NUMBERS = np.unique(torch.arange(256, dtype=torch.uint8).view(fp8.DTYPE).double().numpy())
_NUMBERS = _NUMBERS[np.isfinite(_NUMBERS)]


def problem(rows: int, columns: int, depth: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Activations whose columns are of very different size, as a model's are, and weights."""
    torch.manual_seed(seed)
    return torch.randn(rows, depth) * torch.rand(depth).pow(8).add(1e-3), torch.randn(columns, depth) * 0.02


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1, 2, 7, 64]),
    exponent=st.integers(-60, 60),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
)
def test_every_number_becomes_the_nearest_that_there_is(
    seed: int, size: int, exponent: int, dtype: torch.dtype
) -> None:
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.standard_normal((5, size)) * rng.lognormal(0, 4, size) * 2.0**exponent).to(dtype)
    x8, scales = quantize_rows(x)
    assert (x8.dtype, scales.dtype, scales.shape) == (fp8.DTYPE, torch.float32, (5,))
    np.testing.assert_allclose(scales.numpy(), x.double().abs().amax(1).numpy() / LARGEST, rtol=1e-6)
    scaled = (x.double() / scales.double()[:, None]).numpy()
    nearest = np.abs(scaled[..., None] - _NUMBERS).min(-1)
    # The division is rounded, too: what lies at an edge may go to either side.
    assert (np.abs(scaled - x8.double().numpy()) <= nearest + 1e-6 * np.abs(scaled)).all()
    assert (x8.double().abs().amax(1) == LARGEST).all()


def test_rows_of_odd_numbers() -> None:
    tiny = torch.finfo(torch.float32).smallest_normal
    x8, scales = quantize_rows(torch.tensor([[0.0, 0.0], [-0.0, 0.0], [tiny / 2**20, -tiny], [3e38, -1.0]]))
    assert scales[:2].tolist() == [1.0, 1.0]
    assert (x8[:2].float() == 0).all()
    assert scales[2] > 0
    assert x8[2].float().isfinite().all(), "of numbers too small for a scale of their own, zeros"
    assert x8[3, 0].float() == LARGEST
    for odd in (float("nan"), float("inf")):
        row = torch.tensor([[1.0, odd], [1.0, 2.0]])
        found = product(*quantize_rows(row), *quantize_rows(torch.ones(3, 2)), None, torch.float32)
        assert found[0].isnan().all(), "it is not hidden"
        assert found[1].isfinite().all(), "and is nobody else's"
    assert quantize_rows(torch.zeros(0, 4))[1].shape == (0,)


@table("with_bias", [False, True])
@table("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_product_is_rounded_once(dtype: torch.dtype, with_bias: bool) -> None:
    x, weight = problem(9, 24, 200)
    bias = torch.randn(24).to(dtype) if with_bias else None
    x8, x_scales = quantize_rows(x)
    w8, w_scales = quantize_rows(weight)
    exact = (x8.double() * x_scales.double()[:, None]) @ (w8.double() * w_scales.double()[:, None]).t()
    exact = exact if bias is None else exact + bias.double()
    found = product(x8, x_scales, w8, w_scales, bias, dtype)
    assert found.dtype == dtype
    # Sums are of float32 where they are not of float64.
    added = 1e-13 if dtype == torch.float64 else 2e-6
    bound = exact.abs() * torch.finfo(dtype).eps / 2 + exact.abs().max() * added
    assert ((found.double() - exact).abs() <= bound).all()


@table("with_bias", [False, True])
@table("dtype", [torch.float32, torch.bfloat16])
def test_torch_is_called_as_it_wants_to_be(dtype: torch.dtype, with_bias: bool) -> None:
    """What runs on a GPU. torch has the same function for CPUs, from some version on."""
    x, weight = problem(9, 32, 64)
    bias = torch.randn(32).to(dtype) if with_bias else None
    numbers = *quantize_rows(x), *quantize_rows(weight), bias, dtype
    try:
        found = fp8._scaled_product(*numbers)
    except NotImplementedError:
        pytest.skip("this torch multiplies no FP8 on a CPU")
    assert found.dtype == dtype
    torch.testing.assert_close(found, product(*numbers), atol=1e-4, rtol=torch.finfo(dtype).eps * 2)


def test_a_row_is_the_same_in_any_company() -> None:
    """In float64 sums of so few bits are exact; in float32 they depend on their order, which the company may change."""
    x, weight = problem(300, 48, 96)
    layer = Fp8Linear(*quantize_rows(weight), None)
    together = layer(x.double())
    for first, count in ((0, 1), (7, 2), (131, 100)):
        assert torch.equal(layer(x.double()[first : first + count]), together[first : first + count])
        alone = layer(x[first : first + count])
        torch.testing.assert_close(alone, together[first : first + count].float(), atol=1e-5, rtol=1e-5)


def test_a_layer_in_fp8_is_near_the_layer() -> None:
    torch.manual_seed(0)
    linear = torch.nn.Linear(256, 96)
    layer = Fp8Linear.from_linear(linear)
    assert (layer.in_features, layer.out_features, layer.weight8.shape) == (256, 96, (96, 256))
    assert (layer.weight8.dtype, layer.weight_scales.dtype) == (fp8.DTYPE, torch.float32)
    x = torch.randn(2, 5, 256)
    with torch.inference_mode():
        wanted, found = linear(x), layer(x)
        assert found.shape == wanted.shape
        # Two factors with 4 bits each: an eighth at most, 4% on average, and of many summands far less.
        assert float((found - wanted).std() / wanted.std()) < 0.05
        assert layer(x.bfloat16()).dtype == torch.bfloat16


@table("family", ["llama", "qwen2", "phi3", "gpt_neox"])
def test_a_model_s_layers_are_put_into_fp8_and_nothing_else(family: str) -> None:
    model, before = build_model(family), build_model(family)
    quantize_model(model)
    linears = {name for name, module in before.named_modules() if type(module) is torch.nn.Linear}
    head = {name for name, module in model.named_modules() if type(module) is torch.nn.Linear}
    assert len(head) == 1
    assert model.get_submodule(*head) is model.get_output_embeddings()
    in_fp8 = {name for name, module in model.named_modules() if isinstance(module, Fp8Linear)}
    assert in_fp8 == linears - head
    for name in in_fp8:
        layer, linear = model.get_submodule(name), before.get_submodule(name)
        assert torch.equal(layer.weight8.float(), quantize_rows(linear.weight)[0].float())
        assert (layer.bias is None) == (linear.bias is None)
    assert fp8.is_fp8(model)
    assert not fp8.is_fp8(before)
    assert model.dtype == before.dtype
    assert model.num_parameters() == before.num_parameters(), "by which a token's operations are counted"
    quantize_model(model)  # of what is in FP8, nothing is left to do
    assert in_fp8 == {name for name, module in model.named_modules() if isinstance(module, Fp8Linear)}


def test_what_is_no_linear_layer_is_named() -> None:
    with pytest.raises(ModelError, match=r"qwen3_moe models.*model\.layers\.0\.mlp\.experts is a Qwen3MoeExperts"):
        quantize_model(build_model("qwen3_moe"))
    model = build_model("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 4] = torch.inf
    with pytest.raises(ModelError, match=r"model\.layers\.1\.mlp\.up_proj: its weights are not finite"):
        quantize_model(model)


class _Gpu:
    """What torch says of a GPU that is not there."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str, capability: tuple[int, int]) -> None:
        patch.setattr(torch.cuda, "get_device_name", lambda _: name)
        patch.setattr(torch.cuda, "get_device_capability", lambda _: capability)


def test_who_has_products_in_fp8(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fp8.why_not(torch.device("cpu"), torch.float32) is None
    assert "no code for FP8 on mps" in str(fp8.why_not(torch.device("mps"), torch.float32))
    _Gpu(monkeypatch, "NVIDIA A100", (8, 0))
    reason = str(fp8.why_not(torch.device("cuda"), torch.bfloat16))
    assert reason.startswith("NVIDIA A100 does not multiply in FP8 (its compute capability is 8.0; it begins with 8.9")
    _Gpu(monkeypatch, "NVIDIA L4", (8, 9))
    zeros = torch.zeros

    def on_cpu(*sizes: int, device: Any = None) -> Tensor:
        return zeros(*sizes)

    monkeypatch.setattr(torch, "zeros", on_cpu)
    assert fp8.why_not(torch.device("cuda"), torch.bfloat16) is None

    def unknown(*_: Any) -> Tensor:
        raise RuntimeError("Only bf16 high precision output types are supported.\nException raised from ...")

    monkeypatch.setattr(fp8, "product", unknown)
    reason = str(fp8.why_not(torch.device("cuda"), torch.float32))
    assert reason.endswith("(Only bf16 high precision output types are supported; try dtype 'bfloat16')")


def test_sizes_that_a_gpu_cannot_multiply_are_named() -> None:
    model = build_model("llama", hidden_size=64, head_dim=16, intermediate_size=72)
    with pytest.raises(ModelError, match=r"mlp\.gate_proj is 72 x 64, and a GPU wants multiples of 16; set"):
        fp8.decoder_linears(model, torch.device("cuda"))
    assert len(fp8.decoder_linears(model, torch.device("cpu"))) == 21
