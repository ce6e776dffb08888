"""Scan of a state-space model (Mamba 2) over packed rows: branches continue from their trunk's state (delta_rule.py).

S_t = exp(dt_t A) S_{t-1} + dt_t x_t B_t^T        y_t = S_t C_t + D x_t
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hpd_core.mixers.delta_rule import Tokens, fork, forked
from hpd_core.mixers.running import LayerStep


def packed_scan(
    step: LayerStep,
    original: Any,
    hidden_states: Tensor,
    dt: Tensor,
    decay: Tensor,
    into_state: Tensor,
    out_of_state: Tensor,
    chunk_size: int,
    D: Tensor | None = None,  # noqa: N803 (transformers' name)
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    z: Tensor | None = None,
    **_: Any,
) -> Tensor:
    """Replace transformers' `mamba2_chunk_scan`; same arguments; tokens are [1, T, ...].

    Args:
        decay, into_state, out_of_state: A, B and C.

    Returns:
        fp32 [1, T, H, head size]
    """
    assert z is None, "no model of ours gates within the scan"
    x, b, c = hidden_states[0], into_state[0], out_of_state[0]
    steps = step_lengths(dt[0], dt_bias, dt_softplus, dt_limit)
    wide = x.float()
    tokens = scanned_tokens(wide, steps, decay, b, c)
    out = torch.empty_like(wide, memory_format=torch.contiguous_format)
    for plan in step.plans:
        memory = plan.cache.layers[step.layer]
        # Padding is a step of no length. States are from keys to values here, and the other way round there.
        states = memory.states["state"]
        for grid in plan.trunk.grids if plan.trunk is not None else ():
            found, last = original(
                *(grid.take(x), grid.take(steps), decay, grid.take(b), grid.take(c)),
                chunk_size=chunk_size,
                initial_states=states.index_select(0, grid.prompts).transpose(2, 3),
                return_final_states=True,
            )
            states[grid.prompts] = last.transpose(2, 3).to(states.dtype)
            grid.put(found, out)
        if plan.branches is not None:
            fork(tokens, plan.branches, memory, out, forked)
    step.has_recurred = True
    return (out if D is None else out + D.float()[:, None] * wide)[None]


def step_lengths(dt: Tensor, bias: Tensor | None, softplus: bool, limit: tuple[float, float]) -> Tensor:
    """Return the step length of each token, [T, H]."""
    steps = dt if bias is None else dt + bias.to(dt.dtype)
    return (F.softplus(steps) if softplus else steps).clamp(*limit)


def scanned_tokens(wide: Tensor, steps: Tensor, decay: Tensor, b: Tensor, c: Tensor) -> Tokens:
    """Return tokens for which the delta rule, without its correction, has the same states; in fp32, as `wide` is."""
    lengths = steps.float()[..., None]
    return Tokens(c.float(), b.float(), wide * lengths, decay.float()[:, None] * lengths, None)
