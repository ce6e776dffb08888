"""The kernel that norms, turns and stores, in Triton's interpreter, against fp64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hpd_core.native.linear import Norm
from tests.core.attention.step_problems import LAYER, SHAPES, Shape, check, check_cache, copies, step_problem
from tests.core.triton import needs_interpreter
from tests.examples import examples
from tests.tables import table


def turned(heads: Tensor, cos: Tensor, sin: Tensor, norm: Norm | None) -> Tensor:
    """Behind norm and rotary embedding, [T, H, D] in fp64."""
    x = heads.double()
    if norm is not None:
        x = x / (x.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * (norm.weight.double() + norm.offset)
    first, second = x.chunk(2, dim=-1)
    return x * cos.double()[:, None] + torch.cat([-second, first], dim=-1) * sin.double()[:, None]


def check_rotary(seed: int, shape: Shape, has_norms: bool, device: str = "cpu") -> None:
    """Queries, keys and values are one product's, whose rows a step's tokens are; some are of tokens of no effect."""
    rng = np.random.default_rng(seed)
    shape = replace(shape, value_size=shape.key_size)
    item = step_problem(rng, shape, torch.device(device))
    num_heads, size = shape.num_kv_heads * shape.group, shape.key_size

    def draw(*sizes: int) -> Tensor:
        return torch.from_numpy(rng.standard_normal(sizes)).to(device, shape.dtype)

    heads = draw(item.num_tokens, num_heads + 2 * shape.num_kv_heads, size)
    before = heads.clone()
    q, k, v = heads.split([num_heads, shape.num_kv_heads, shape.num_kv_heads], dim=1)
    cos, sin = draw(item.num_tokens, size), draw(item.num_tokens, size)
    offset = float(seed % 2)
    norms = (Norm(draw(size), 1e-3, offset), Norm(draw(size), 1e-1, offset)) if has_norms else None
    of_cache = copies(item)
    step = item.step()
    step.note()
    step.rotate_and_store(LAYER, q, k, v, cos, sin, norms)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2**-7, torch.float16: 2**-9}[shape.dtype]
    old_q, old_k, old_v = before.split([num_heads, shape.num_kv_heads, shape.num_kv_heads], dim=1)
    wanted = turned(old_q, cos, sin, norms and norms[0])
    torch.testing.assert_close(q.double(), wanted, atol=4 * tolerance, rtol=tolerance)
    assert torch.equal(k, old_k)
    assert torch.equal(v, old_v)
    check_cache(item, of_cache, turned(old_k, cos, sin, norms and norms[1]).to(shape.dtype), v)
    # And attention finds it there.
    item.q = q
    out = torch.empty_like(q)
    step.attend(LAYER, q, out, **item.settings)
    check(item, out)


@needs_interpreter
@settings(max_examples=examples(20), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), shape=SHAPES, has_norms=st.booleans())
def test_heads_are_normed_turned_and_stored(seed: int, shape: Shape, has_norms: bool) -> None:
    check_rotary(seed, shape, has_norms)


@needs_interpreter
@table("rotates", [True, False])
def test_what_fills_a_step_up_is_stored_nowhere(rotates: bool) -> None:
    """Tables of a fixed size: the tokens behind the step's own have keys and values that nobody wants."""
    from hpd_core.attention.step_tables import Sizes
    from hpd_core.attention.triton_step import TritonAttention

    item = step_problem(np.random.default_rng(4), Shape([[3, 30]], 20, 2, 2, 16, 16))
    filled = 64
    attention = TritonAttention(item.cache_shape, 2)
    ids = np.arange(item.num_tokens)
    step = attention.step(attention.tables(item.plans, ids, ids[:1], Sizes(filled, filled, filled, filled, filled)))
    before = copies(item)
    heads = torch.randn(filled, 4 + 2 + 2, 16)
    heads[item.num_tokens :] = torch.nan
    q, k, v = heads.split([4, 2, 2], dim=1)
    step.note()
    if rotates:
        straight = torch.ones(filled, 16), torch.zeros(filled, 16)
        step.rotate_and_store(LAYER, q, k, v, *straight, None)
    else:
        step.store(LAYER, q, k, v)
    own = slice(item.num_tokens)
    check_cache(item, before, k[own], v[own])
    out = torch.full((filled, 4, 16), 7.0)
    step.attend(LAYER, q, out, **item.settings)
    assert (out[item.num_tokens :] == 7).all()
    item.q = q[own]
    check(item, out[own])
