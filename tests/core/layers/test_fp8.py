"""Numbers in FP8, products of them, and whole models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hpd_core import ModelError
from hpd_core.layers import fp8
from hpd_core.layers.fp8 import LARGEST, product, quantize_model, quantize_rows
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


def test_what_is_no_linear_layer_is_named() -> None:
    with pytest.raises(ModelError, match=r"qwen3_moe models.*model\.layers\.0\.mlp\.experts is a Qwen3MoeExperts"):
        quantize_model(build_model("qwen3_moe"))
    model = build_model("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 4] = torch.inf
    with pytest.raises(ModelError, match=r"model\.layers\.1\.mlp\.up_proj: its weights are not finite"):
        quantize_model(model)


def test_sizes_that_a_gpu_cannot_multiply_are_named() -> None:
    model = build_model("llama", hidden_size=64, head_dim=16, intermediate_size=72)
    with pytest.raises(ModelError, match=r"mlp\.gate_proj is 72 x 64, and a GPU wants multiples of 16; set"):
        fp8.decoder_linears(model, torch.device("cuda"))
    assert len(fp8.decoder_linears(model, torch.device("cpu"))) == 21
