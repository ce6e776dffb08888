"""The functions of pointwise.cpp are what torch computes in fp64, at any size."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hpd_core.decoding.next_token import likeliest
from hpd_core.native.linear import Norm, add_norm, choose, gated, rotate
from tests.core.native import PROCESSORS, compiled_for, needs_native, threads
from tests.examples import examples

pytestmark = needs_native

DTYPES = st.sampled_from([torch.float32, torch.bfloat16])
SIZES = st.one_of(st.integers(1, 50), st.sampled_from([64, 576, 577, 1536]))
"""Vectors have up to 16 numbers: whole ones, a part of one, both."""
ROWS = st.sampled_from([1, 2, 7, 60])
SEEDS = st.integers(0, 2**32 - 1)
THREADS = st.sampled_from([1, 2, 3])


@pytest.fixture(scope="module", params=PROCESSORS, autouse=True)
def processor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with compiled_for(request.param, tmp_path_factory.mktemp("library")):
        yield


def numbers(*shape: int, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    return (torch.randn(*shape) * scale).to(dtype)


def assert_rounded(found: Tensor, expected: Tensor, parts: Tensor | None = None) -> None:
    """Right up to fp32's rounding (of the parts of a sum, which may cancel), and rounded once: half of the last bit."""
    half_a_bit = expected.abs() * 2.0 ** -(24 if found.dtype == torch.float32 else 8)
    noise = 2e-6 * (expected.abs().clamp(min=1e-3) if parts is None else parts)
    assert ((found.double() - expected).abs() <= half_a_bit + noise).all()


@settings(max_examples=examples(80), deadline=None)
@given(SEEDS, DTYPES, ROWS, SIZES, st.booleans(), st.sampled_from([1e-3, 1.0, 300.0]), st.booleans(), THREADS)
def test_add_norm(
    seed: int, dtype: torch.dtype, rows: int, size: int, adds: bool, scale: float, is_gemma: bool, num_threads: int
) -> None:
    torch.manual_seed(seed)
    x, weight = numbers(rows, size, dtype=dtype, scale=scale), numbers(size, dtype=dtype)
    delta = numbers(rows, size, dtype=dtype, scale=scale) if adds else None
    stream = x if delta is None else (x.float() + delta.float()).to(dtype)
    true = stream.double()
    expected = true / (true.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * (weight.double() + is_gemma)
    with threads(num_threads):
        found = add_norm(x, delta, Norm(weight, 1e-5, float(is_gemma)))
    assert torch.equal(x, stream), "the residual stream is what was added, rounded"
    assert_rounded(found, expected)


@settings(max_examples=examples(80), deadline=None)
@given(SEEDS, DTYPES, ROWS, st.integers(1, 5), st.integers(1, 40), THREADS)
def test_rotate(seed: int, dtype: torch.dtype, num_tokens: int, heads: int, half: int, num_threads: int) -> None:
    """Angles of both halves, too, which families may have as they like."""
    torch.manual_seed(seed)
    x = numbers(num_tokens, heads, 2 * half, dtype=dtype)
    cos, sin = numbers(num_tokens, 2 * half, dtype=dtype), numbers(num_tokens, 2 * half, dtype=dtype)
    first, second = x.double().split(half, dim=-1)
    turned = torch.cat([-second, first], dim=-1) * sin.double()[:, None]
    straight = x.double() * cos.double()[:, None]
    with threads(num_threads):
        rotate(x, cos, sin)
    assert_rounded(x, straight + turned, straight.abs() + turned.abs())


def activated(gate: Tensor, is_gelu: bool) -> Tensor:
    """In fp64; torch's gelu loses far below 0 what is left of a number."""
    x = gate.double()
    return x * torch.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)) if is_gelu else F.silu(x)


@settings(max_examples=examples(80), deadline=None)
@given(SEEDS, DTYPES, ROWS, SIZES, st.sampled_from([1e-3, 1.0, 30.0, 1e4]), st.booleans(), THREADS)
def test_gated(
    seed: int, dtype: torch.dtype, rows: int, size: int, scale: float, is_gelu: bool, num_threads: int
) -> None:
    torch.manual_seed(seed)
    gate, up = numbers(rows, size, dtype=dtype, scale=scale), numbers(rows, size, dtype=dtype)
    expected = activated(gate, is_gelu) * up.double()
    with threads(num_threads):
        found = gated(gate, up, is_gelu=is_gelu)
    assert found is gate
    # Far below 0 nothing is left of it; fp32 and e^-87 are not told from nothing.
    near = expected.abs() > 1e-30
    assert_rounded(found[near], expected[near])
    assert (found[~near].abs() < 1e-29).all()


@settings(max_examples=examples(80), deadline=None)
@given(SEEDS, DTYPES, ROWS, st.one_of(st.integers(1, 100), st.just(4099)), st.sampled_from([0.1, 3.0, 100.0]), THREADS)
def test_choose(seed: int, dtype: torch.dtype, rows: int, size: int, scale: float, num_threads: int) -> None:
    torch.manual_seed(seed)
    logits = numbers(rows, size, dtype=dtype, scale=scale)
    with threads(num_threads):
        tokens, scores, normalizers = choose(logits)
    highest = logits.float().max(dim=-1).values
    assert torch.equal(scores, highest)
    assert torch.equal(tokens, (logits.float() == highest[:, None]).int().argmax(dim=-1)), "the first of equals"
    torch.testing.assert_close(normalizers.double(), logits.double().logsumexp(-1), atol=1e-5, rtol=1e-5)
    theirs = likeliest(logits)
    torch.testing.assert_close(scores - normalizers, theirs[1] - theirs[2], atol=2e-5, rtol=1e-5)


def test_choose_among_equals_what_is_ruled_out_and_no_numbers() -> None:
    least = -math.inf
    logits = torch.tensor([[1.0, 5.0] * 20, [least] * 39 + [2.0], [0.5] * 40, [3.0] * 20 + [math.nan] + [1.0] * 19])
    tokens, scores, normalizers = choose(logits)
    assert tokens[:3].tolist() == [1, 39, 0]
    assert scores[:3].tolist() == [5.0, 2.0, 0.5]
    torch.testing.assert_close(normalizers[:3], logits[:3].logsumexp(-1))
    assert math.isnan(float(normalizers[3])), "a model that gives no numbers is not believed"


@pytest.mark.parametrize("count", [1, 17])
def test_what_is_no_number_stays_so(count: int) -> None:
    bad = torch.full((2, count), math.nan)
    assert add_norm(bad.clone(), None, Norm(torch.ones(count), 1e-5)).isnan().all()
    assert gated(bad.clone(), torch.ones(2, count)).isnan().all()
    assert gated(bad.clone(), torch.ones(2, count), is_gelu=True).isnan().all()
    assert choose(bad)[2].isnan().all()
