"""The functions of pointwise.cpp are what torch computes in fp64, at any size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hpd_core.decoding.next_token import likeliest
from hpd_core.native.pointwise import add_norm, choose, rotate, swiglu
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
@given(SEEDS, DTYPES, ROWS, SIZES, st.booleans(), st.sampled_from([1e-3, 1.0, 300.0]), THREADS)
def test_add_norm(
    seed: int, dtype: torch.dtype, rows: int, size: int, adds: bool, scale: float, num_threads: int
) -> None:
    torch.manual_seed(seed)
    x, weight = numbers(rows, size, dtype=dtype, scale=scale), numbers(size, dtype=dtype)
    delta = numbers(rows, size, dtype=dtype, scale=scale) if adds else None
    stream = x if delta is None else (x.float() + delta.float()).to(dtype)
    true = stream.double()
    expected = true / (true.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    with threads(num_threads):
        found = add_norm(x, delta, weight, 1e-5)
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


@settings(max_examples=examples(80), deadline=None)
@given(SEEDS, DTYPES, ROWS, SIZES, st.sampled_from([1e-3, 1.0, 30.0, 1e4]), THREADS)
def test_swiglu(seed: int, dtype: torch.dtype, rows: int, size: int, scale: float, num_threads: int) -> None:
    torch.manual_seed(seed)
    gate, up = numbers(rows, size, dtype=dtype, scale=scale), numbers(rows, size, dtype=dtype)
    expected = torch.nn.functional.silu(gate.double()) * up.double()
    with threads(num_threads):
        found = swiglu(gate, up)
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


def test_nothing_is_left_far_below_zero() -> None:
    gate = torch.tensor([-80.0, -1e4, -1e30, -3e38, -math.inf])
    found = swiglu(gate.clone(), torch.ones(5))
    torch.testing.assert_close(found[0], torch.nn.functional.silu(gate[0]))
    assert found[1:4].tolist() == [0, 0, 0]
    assert found[4].isnan(), "as torch has it"


@pytest.mark.parametrize("count", [1, 17])
def test_what_is_no_number_stays_so(count: int) -> None:
    bad = torch.full((2, count), math.nan)
    assert add_norm(bad.clone(), None, torch.ones(count), 1e-5).isnan().all()
    assert swiglu(bad.clone(), torch.ones(2, count)).isnan().all()
    assert choose(bad)[2].isnan().all()


HALF = torch.ones(2, 4, dtype=torch.bfloat16)
ONES = torch.ones(2, 4)


@pytest.mark.parametrize(
    "call",
    [
        lambda: add_norm(ONES, None, torch.ones(3), 1e-5),
        lambda: add_norm(ONES, torch.ones(3, 4), torch.ones(4), 1e-5),
        lambda: add_norm(HALF, None, torch.ones(4), 1e-5),
        lambda: add_norm(ONES.double(), None, torch.ones(4).double(), 1e-5),
        lambda: add_norm(torch.ones(4, 2).T, None, torch.ones(4), 1e-5),
        lambda: rotate(torch.ones(2, 1, 4), ONES, torch.ones(2, 3)),
        lambda: rotate(torch.ones(2, 1, 4), torch.ones(3, 4), torch.ones(3, 4)),
        lambda: rotate(torch.ones(2, 1, 3), torch.ones(2, 3), torch.ones(2, 3)),
        lambda: rotate(torch.ones(3, 2, 4).transpose(0, 1), ONES, ONES),
        lambda: swiglu(ONES, torch.ones(2, 5)),
        lambda: swiglu(ONES, HALF),
        lambda: swiglu(ONES, torch.ones(2, 8)[:, ::2]),
        lambda: choose(ONES.half()),
        lambda: choose(torch.ones(4, 2).T),
        lambda: choose(torch.ones(2, 4, device="meta")),
    ],
)
def test_what_it_would_misread_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match=r"not a tensor that the library reads|a norm of|angles of|a gate of"):
        call()


def test_nothing_at_all() -> None:
    assert add_norm(torch.ones(0, 4), None, torch.ones(4), 1e-5).shape == (0, 4)
    assert swiglu(torch.ones(0, 4), torch.ones(0, 4)).shape == (0, 4)
    assert [len(part) for part in choose(torch.ones(0, 4))] == [0, 0, 0]
