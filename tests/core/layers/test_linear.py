"""Linear layers, MLPs and choices of tokens by tiles are what torch computes in fp64, in any company."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import silu

from hpd_core.decoding.next_token import greedy
from hpd_core.layers.packed_linears import TiledLogits
from hpd_core.layout import FREE
from hpd_core.native import linear
from hpd_core.native.linear import TiledLinear, choose_by_tiles, gated_mlp, pack, pack_gated
from hpd_core.text.constraints import StateTable
from tests.core.native import needs_tiles, threads
from tests.core.token_states import token_states
from tests.examples import examples
from tests.tables import table

ROWS = st.one_of(st.integers(1, 70), st.sampled_from([127, 300, 1200]))
"""A block has 32; 1,200 of the deepest are more than are computed at once."""
COLUMNS = st.one_of(st.integers(1, 70), st.sampled_from([96, 577]))
DEPTHS = st.sampled_from([32, 64, 96, 576])
SEEDS = st.integers(0, 2**32 - 1)
THREADS = st.sampled_from([1, 2, 3, 7])


def numbers(*shape: int, scale: float = 1.0) -> Tensor:
    return (torch.randn(*shape) * scale).to(torch.bfloat16)


def assert_rounded(found: Tensor, exact: Tensor, parts: Tensor) -> None:
    """Rounded once, up to fp32's rounding of the parts of a sum."""
    assert found.dtype == torch.bfloat16
    assert ((found.double() - exact).abs() <= exact.abs() * 2.0**-8 + 4e-6 * parts).all()


@needs_tiles
@settings(max_examples=examples(120), deadline=None)
@given(SEEDS, ROWS, COLUMNS, DEPTHS, st.booleans(), THREADS)
def test_a_layer(seed: int, rows: int, columns: int, depth: int, has_bias: bool, num_threads: int) -> None:
    torch.manual_seed(seed)
    x, weight, bias = numbers(rows, depth), numbers(columns, depth), numbers(columns) if has_bias else None
    with threads(num_threads):
        found = linear.linear(x, pack(weight), bias)
    plus = 0 if bias is None else bias.double()
    exact = x.double() @ weight.double().T + plus
    assert_rounded(found, exact, x.double().abs() @ weight.double().abs().T)


@needs_tiles
@settings(max_examples=examples(80), deadline=None)
@given(SEEDS, ROWS, COLUMNS, DEPTHS, st.sampled_from([32, 64, 160]), st.sampled_from([0.02, 1.0, 30.0]), THREADS)
def test_an_mlp(
    seed: int, rows: int, columns: int, depth: int, hidden_size: int, scale: float, num_threads: int
) -> None:
    torch.manual_seed(seed)
    x = numbers(rows, depth, scale=scale)
    gate, up, down = numbers(hidden_size, depth), numbers(hidden_size, depth), numbers(columns, hidden_size)
    with threads(num_threads):
        found = gated_mlp(x, pack_gated(gate, up), pack(down))
    hidden = silu(x.double() @ gate.double().T) * (x.double() @ up.double().T)
    exact, parts = hidden @ down.double().T, hidden.abs() @ down.double().abs().T
    # What is between is rounded, too: half of its last bit for each part of the sum, and fp32's noise of large sums.
    assert ((found.double() - exact).abs() <= exact.abs() * 2.0**-8 + parts * (2.0**-8 + 1e-4) + 1e-6).all()


@needs_tiles
@table("rows", [1, 16, 31, 33, 90])
def test_only_a_rows_own_numbers_are_computed(rows: int) -> None:
    """NaN is in memory behind the last row, and in another row; what fills up a weight is 0, and nobody's."""
    torch.manual_seed(rows)
    memory = torch.full((rows + 40, 64), torch.nan, dtype=torch.bfloat16)
    memory[:rows] = numbers(rows, 64)
    weight, gate_up, down = pack(numbers(37, 64)), pack_gated(numbers(32, 64), numbers(32, 64)), pack(numbers(37, 32))
    clean = linear.linear(memory[:rows], weight), gated_mlp(memory[:rows], gate_up, down)
    assert not any(x.isnan().any() for x in clean)
    memory[rows // 2] = torch.nan
    others = torch.arange(rows) != rows // 2
    for before, now in zip(
        clean, (linear.linear(memory[:rows], weight), gated_mlp(memory[:rows], gate_up, down)), strict=True
    ):
        assert now[rows // 2].isnan().all()
        assert torch.equal(now[others], before[others])


@needs_tiles
@settings(max_examples=examples(80), deadline=None)
@given(SEEDS, ROWS, COLUMNS, DEPTHS, st.booleans(), st.sampled_from([0.2, 3.0, 40.0]), THREADS)
def test_the_choice_is_that_of_the_logits_written_down(
    seed: int, rows: int, columns: int, depth: int, has_bias: bool, scale: float, num_threads: int
) -> None:
    """Also of equals the first, and where logits are hundreds apart."""
    torch.manual_seed(seed)
    x, weight, bias = numbers(rows, depth, scale=scale), numbers(columns, depth), numbers(columns) if has_bias else None
    weight[columns // 2 :] = weight[: columns - columns // 2].clone()
    if bias is not None:
        bias[columns // 2 :] = bias[: columns - columns // 2].clone()
    layer = TiledLinear(pack(weight), bias)
    tokens, scores, normalizers = linear.choose(layer(x))
    with threads(num_threads):
        found = choose_by_tiles(x, layer)
    assert torch.equal(found[0], tokens)
    assert torch.equal(found[1], scores)
    torch.testing.assert_close(found[2], normalizers, atol=2e-5, rtol=1e-6)


@needs_tiles
@table("special", [-float("inf"), float("inf"), float("nan"), -3e38, 3e38])
@table("places", [range(70), range(0, 70, 2), [3], [19]])
def test_a_choice_from_logits_that_are_no_usual_numbers(special: float, places: Iterable[int]) -> None:
    torch.manual_seed(6)
    bias = numbers(70)
    bias[list(places)] = special
    x, layer = numbers(5, 32), TiledLinear(pack(numbers(70, 32)), bias)
    tokens, scores, normalizers = linear.choose(layer(x))
    found = choose_by_tiles(x, layer)
    if special == special or len(list(places)) < 70:
        assert torch.equal(found[0], tokens)
        torch.testing.assert_close(found[1], scores, rtol=0, atol=0)
    torch.testing.assert_close(found[2] - found[1], normalizers - scores, equal_nan=True)


@needs_tiles
@table(("rows", "columns"), [(0, 77), (1, 1), (1, 31), (33, 77), (64, 15), (65, 16), (5, 17), (700, 1000)])
@table("num_threads", [1, 5])
def test_greedy_takes_the_same_with_logits_written_down_or_not(rows: int, columns: int, num_threads: int) -> None:
    torch.manual_seed(rows + columns)
    x, weight, bias = numbers(rows, 64), numbers(columns, 64), numbers(columns)
    layer, table = TiledLinear(pack(weight), bias), StateTable()
    states = [{0: 1, columns - 1: 0}, {columns // 2: 1}, dict.fromkeys(range(0, columns, 3), 0)]
    first = table.add(token_states(states))
    states = np.random.default_rng(0).choice([FREE, first, first + 1, first + 2], size=rows)
    blocks = [layer(part) for part in x.split(50) if len(part)]
    with threads(num_threads):
        for some in (states, np.full(rows, FREE)):
            found, expected = (
                greedy(logits, some, table, x.device, by="native").fetch()
                for logits in (TiledLogits(x, layer, weight), blocks)
            )
            assert found.tokens.tolist() == expected.tokens.tolist()
            assert found.states.tolist() == expected.states.tolist()
            np.testing.assert_allclose(found.logprobs, expected.logprobs, atol=2e-5)
