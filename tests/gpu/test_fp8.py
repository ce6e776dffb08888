"""FP8 on a GPU that has it: the products are those that a CPU emulates, and the engine answers with them."""

from __future__ import annotations

import pytest
import torch

from hpd_core.layers import fp8
from hpd_core.layers.fp8 import product, quantize_rows

CUDA = torch.device("cuda")
REASON = fp8.why_not(CUDA, torch.bfloat16) if torch.cuda.is_available() else "no CUDA device on this machine"
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(REASON is not None, reason=str(REASON))]


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("rows", [0, 1, 17, 300])
def test_products_are_those_of_the_cpu(rows: int, dtype: torch.dtype, with_bias: bool) -> None:
    if (reason := fp8.why_not(CUDA, dtype)) is not None:
        pytest.skip(reason)
    torch.manual_seed(rows)
    x = torch.randn(rows, 4096) * torch.rand(4096).pow(8)
    weight, bias = torch.randn(96, 4096) * 0.02, torch.randn(96).to(dtype) if with_bias else None
    wanted = product(*quantize_rows(x), *quantize_rows(weight), bias, dtype)
    for ours, theirs in zip(quantize_rows(x.to(CUDA)), quantize_rows(x), strict=True):
        assert torch.equal(ours.cpu().float(), theirs.float())
    x, weight, bias = x.to(CUDA), weight.to(CUDA), None if bias is None else bias.to(CUDA)
    found = product(*quantize_rows(x), *quantize_rows(weight), bias, dtype)
    assert found.shape == (rows, 96)
    assert found.dtype == dtype
    # A tensor core keeps some 14 bits of a sum: of 4,096 products the error is up to two percent of the largest sums
    # (DeepSeek-V3, arXiv:2412.19437, section 3.3.2).
    largest = float(wanted.float().abs().max()) if rows else 0.0
    torch.testing.assert_close(found.cpu().float(), wanted.float(), atol=0.02 * largest, rtol=0)
