"""Norms, gated activations and the choice of tokens in Triton, in its interpreter, against fp64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hpd_core.decoding.next_token import greedy
from hpd_core.layers.fp8 import quantize_rows
from hpd_core.layout import FREE
from hpd_core.native.linear import Norm
from hpd_core.text.constraints import StateTable
from tests.core.token_states import token_states
from tests.core.triton import needs_interpreter
from tests.examples import examples
from tests.tables import table

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2**-7, torch.float16: 2**-10}
"""Inside of a function nothing is rounded but its result."""


pytestmark = [needs_interpreter, pytest.mark.usefixtures("torch_rounds")]


def assert_near(found: Tensor, expected: Tensor) -> None:
    """As near as its type is to fp64."""
    tolerance = TOLERANCE[found.dtype]
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


def assert_same_in_fp8(found: tuple[Tensor, Tensor], exact: Tensor) -> None:
    """As layers/fp8.py quantizes what was rounded to its type; one step off where rounding was at a tie."""
    small, scales = found
    expected, expected_scales = quantize_rows(exact)
    torch.testing.assert_close(scales, expected_scales, rtol=2 * TOLERANCE[exact.dtype], atol=0)
    bits = expected.view(torch.uint8).int()
    off = (small.view(torch.uint8).int() - bits).abs()
    assert off.max() <= 1
    assert (off > 0).float().mean() <= (0.02 if exact.dtype == torch.float32 else 0.2)


def rms_norm(x: Tensor, norm: Norm) -> Tensor:
    """In fp64."""
    x = x.double()
    return x / (x.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * (norm.weight.double() + norm.offset)


def check_norm(num_tokens: int, size: int, has_delta: bool, dtype: torch.dtype, device: str = "cpu") -> None:
    """The residual stream is what was added, rounded; and its norm."""
    from hpd_core.layers.triton_pointwise import add_norm

    torch.manual_seed(num_tokens + size)
    x, delta = (torch.randn(num_tokens, size).to(device, dtype) for _ in range(2))
    norm = Norm(torch.randn(size).to(device, dtype), 1e-3, float(num_tokens % 2))
    stream = x + delta if has_delta else x.clone()
    other, third = x.clone(), x.clone()
    found = add_norm(other, delta if has_delta else None, norm)
    assert torch.equal(other, stream)
    assert_near(found, rms_norm(stream, norm))
    small = add_norm(third, delta if has_delta else None, norm, to_fp8=True)
    assert torch.equal(third, stream)
    assert_same_in_fp8(small, found)


def check_gated(num_tokens: int, size: int, is_gelu: bool, dtype: torch.dtype, device: str = "cpu") -> None:
    """Gate and up side by side."""
    from hpd_core.layers.triton_pointwise import gated

    torch.manual_seed(num_tokens + size)
    both = (3 * torch.randn(num_tokens, 2 * size)).to(device, dtype)
    before = both.clone()
    gate, up = both.double().chunk(2, dim=1)
    found = gated(both, is_gelu=is_gelu)
    assert_near(found, (F.gelu(gate, approximate="tanh") if is_gelu else F.silu(gate)) * up)
    assert_same_in_fp8(gated(both, is_gelu=is_gelu, to_fp8=True), found)
    assert torch.equal(both, before)


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(1, 40), st.sampled_from([1, 16, 48, 100, 576]), st.booleans())
def test_norms(num_tokens: int, size: int, has_delta: bool) -> None:
    check_norm(num_tokens, size, has_delta, torch.float32)


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(1, 20), st.sampled_from([1, 16, 100, 4096, 5000]), st.booleans())
def test_gated(num_tokens: int, size: int, is_gelu: bool) -> None:
    check_gated(num_tokens, size, is_gelu, torch.float32)


def check_choice(rows: Tensor, allowed: list[list[int] | None]) -> None:
    """The tokens of `rows`, [n, V]: each may have any token, or of some the likeliest."""
    from hpd_core.layers.triton_pointwise import choose

    device, count = rows.device, len(rows)
    choices = [ids for ids in allowed if ids is not None]
    most = max(map(len, choices), default=1)
    number = torch.cumsum(torch.tensor([ids is not None for ids in allowed]), 0) - 1
    bound = torch.where(torch.tensor([ids is not None for ids in allowed]), number, -1).to(device)
    # As a table of states has them: the last of a row is repeated.
    table = torch.tensor([[*ids, *[ids[-1]] * (most - len(ids))] for ids in choices] or [[0]]).to(device)
    tokens = torch.full((count,), -7, device=device)
    scores, normalizers = torch.full((2, count), math.nan, device=device)
    picked = torch.full((len(choices),), -7, device=device)
    has_any = bool(choices)
    few = (bound, table) if has_any else (None, None)
    choose(rows, *few, None, None, tokens, scores, normalizers, picked)
    wide = rows.double()
    torch.testing.assert_close(normalizers.double(), wide.logsumexp(1), rtol=1e-6, atol=1e-5)
    for row, ids in enumerate(allowed):
        among = wide[row] if ids is None else wide[row, torch.tensor(ids, device=device)]
        best = int((among == among.max()).nonzero()[0, 0])  # of equal ones the first
        assert int(tokens[row]) == (best if ids is None else ids[best])
        assert float(scores[row]) == float(among.max())
        if ids is not None:
            assert int(picked[number[row]]) == best


@settings(max_examples=examples(30), deadline=None)
@given(data=st.data(), vocabulary=st.sampled_from([1, 5, 160, 8192, 8193, 20_000]), ties=st.booleans())
def test_choices(data: st.DataObject, vocabulary: int, ties: bool) -> None:
    """Ties go to the lowest id, or to the first that is allowed; some logits are -inf."""
    count = data.draw(st.integers(1, 6))
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    logits = torch.randn(count, vocabulary)
    if ties:
        logits = logits.clamp(max=0.5).round()
    logits = torch.where(torch.rand_like(logits) < 0.3, -math.inf, logits)
    logits[:, torch.randint(vocabulary, (1,))] = 0.0  # something is possible
    ids = st.lists(st.integers(0, vocabulary - 1), min_size=1, max_size=min(vocabulary, 600), unique=True)
    check_choice(logits, [data.draw(st.none() | ids) for _ in range(count)])


@settings(max_examples=examples(30), deadline=None)
@given(data=st.data(), vocabulary=st.sampled_from([1, 5, 160, 8192, 8193, 20_000]), ties=st.booleans())
def test_masked_choices(data: st.DataObject, vocabulary: int, ties: bool) -> None:
    """The likeliest of what a row's mask allows, also of what is impossible; others as if there were no masks."""
    from hpd_core.layers.triton_pointwise import choose

    count, num_masks = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3))
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    logits = torch.randn(count, vocabulary)
    if ties:
        logits = logits.clamp(max=0.5).round()
    logits = torch.where(torch.rand_like(logits) < data.draw(st.sampled_from([0.3, 0.999])), -math.inf, logits)
    logits[:, torch.randint(vocabulary, (1,))] = 0.0  # something is possible
    masks = torch.rand(num_masks, vocabulary) < data.draw(st.sampled_from([0.001, 0.5, 0.999]))
    masks[torch.arange(num_masks), torch.randint(vocabulary, (num_masks,))] = True
    masked = torch.randint(-1, num_masks, (count,))
    tokens, (scores, normalizers) = torch.full((count,), -7), torch.full((2, count), math.nan)
    choose(logits, None, None, masked, masks, tokens, scores, normalizers, torch.empty(0, dtype=torch.int64))
    torch.testing.assert_close(normalizers, logits.logsumexp(1), rtol=1e-6, atol=1e-5)
    for row, kind in enumerate(masked.tolist()):
        ids = (masks[kind] if kind >= 0 else torch.ones(vocabulary, dtype=torch.bool)).nonzero()[:, 0]
        best = ids[(logits[row, ids] == logits[row, ids].max()).nonzero()[0, 0]]  # of equal ones the first
        assert int(tokens[row]) == int(best)
        assert float(scores[row]) == float(logits[row, best])


@table("widths", [[3, 300], [3], [300]])
def test_greedy_takes_the_same_with_few_and_many_choices(widths: list[int]) -> None:
    generator = np.random.default_rng(len(widths))
    table = StateTable()
    ways = [{int(token): state for token in generator.choice(500, width, False)} for state, width in enumerate(widths)]
    first = table.add(token_states(ways))
    states = generator.choice([FREE, *range(first, first + len(ways))], 7)
    blocks = torch.randn(7, 500, generator=torch.Generator().manual_seed(1)).split([4, 3])
    found, expected = (greedy(blocks, states, table, blocks[0].device, by=by).fetch() for by in ("triton", ""))
    assert found.tokens.tolist() == expected.tokens.tolist()
    assert found.states.tolist() == expected.states.tolist()
    np.testing.assert_allclose(found.logprobs, expected.logprobs, rtol=1e-5)
