"""Scan of a state-space model (Mamba 2) over packed rows: branches continue from their trunk's state (delta_rule.py).

S_t = exp(dt_t A) S_{t-1} + dt_t x_t B_t^T        y_t = S_t C_t + D x_t

Lightning attention (MiniMax): queries, keys and values whose state decays by one number per head for any token.

It is Mamba 2's scan with steps of length 1.

Scan whose channels decay each by itself: Mamba 1.

A state S is a vector per channel. A step of length dt, which each channel has of its own, lets it decay and adds to it:

    S_t = exp(a dt_t) S_{t-1} + u_t b_t        y_t = S_t . c_t

After a trunk with the state S_0, with L_t the sum of all dt on the way to a token, that is

    S_t = exp(a L_t) S_0 + sum over t's ancestors i and t itself of exp(a (L_t - L_i)) u_i b_i

So u, b and L of a branch's tokens are columns (delta_rule.py). A state for each token would be larger by a factor of
the numbers that it has per channel.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hpd_core.mixers.delta_rule import Ancestors, Tokens, behind, diagonal, forked, recurred, since_trunk
from hpd_core.mixers.running import Step
from hpd_core.mixers.step_plan import TokenGrid


def packed_scan(
    step: Step,
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
    steps = dt[0] if dt_bias is None else dt[0] + dt_bias.to(dt.dtype)
    steps = (F.softplus(steps) if dt_softplus else steps).clamp(*dt_limit)

    def go_on(grid: TokenGrid, state: Tensor | None) -> tuple[Tensor, Tensor]:
        # Padding is a step of no length. States are from keys to values here, and the other way round there.
        found, last = original(
            *(grid.take(x), grid.take(steps), decay, grid.take(b), grid.take(c)),
            chunk_size=chunk_size,
            initial_states=None if state is None else state.transpose(2, 3),
            return_final_states=True,
        )
        return found, last.transpose(2, 3)

    # The delta rule, without its correction, has the same states of these.
    wide, lengths = x.float(), steps.float()[..., None]
    tokens = Tokens(c.float(), b.float(), wide * lengths, decay.float()[:, None] * lengths, None)
    out: Tensor = step.call(recurred, go_on, tokens, wide.dtype, forked)
    return (out if D is None else out + D.float()[:, None] * wide)[None]


def packed_lightning(step: Step, module: Any, hidden_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
    """Replace the forward of `MiniMaxLightningAttention`: [1, T, hidden size] to the same."""
    from transformers.models.mamba2 import modeling_mamba2  # no other model needs it

    scan = modeling_mamba2.mamba2_chunk_scan
    mixed = module.act_fn(module.qkv_proj(hidden_states))
    q, k, v = mixed.unflatten(2, (module.num_attention_heads, -1)).split(module.head_dim, dim=3)
    said = packed_scan(
        step,
        getattr(scan, "hpd_original", scan),
        v,
        torch.ones_like(v[..., 0]),
        -module.slope_rate.flatten(),
        k,
        q,
        chunk_size=module.block_size,
    )
    normed = module.norm(said.to(v.dtype).flatten(2))
    return module.out_proj(torch.sigmoid(module.output_gate(hidden_states)) * normed), None


_NUMBERS = 2**24
"""Channels times pairs of tokens computed at a time: 64 MiB."""


def packed_channel_scan(
    step: Step,
    _original: Any,
    hidden_states: Tensor,
    dt: Tensor,
    decay: Tensor,
    into_state: Tensor,
    out_of_state: Tensor,
    D: Tensor | None = None,  # noqa: N803 (transformers' name)
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    **_: Any,
) -> Tensor:
    """Replace transformers' `mamba_selective_scan`; same arguments. Zamba calls it for a part of the channels at a
    time.

    Args:
        hidden_states, dt, z: [1, channels, T]
        decay: A, [channels, N]; into_state, out_of_state: B and C, [1, N, T].

    Returns:
        Output in the shape of `hidden_states`, in fp32.
    """
    steps = dt[0].t() if delta_bias is None else dt[0].t() + delta_bias.to(dt.dtype)
    lengths = (F.softplus(steps) if delta_softplus else steps).float()
    x, b, c = hidden_states[0].t().float(), into_state[0].t().float(), out_of_state[0].t().float()
    tokens = Tokens(c[:, None], b[:, None], (x * lengths)[..., None], lengths[..., None], None)

    def go_on(grid: TokenGrid, state: Tensor | None) -> tuple[Tensor, Tensor]:
        # Token by token, as transformers' own function, which always begins without a state. Padding has length 0.
        given = tokens.each(grid.take)
        now = decay.new_zeros(len(grid.rows), *decay.shape) if state is None else state[..., 0]  # [P', channels, N]
        said = []
        for rank in range(given.v.shape[1]):
            now = now * (given.g[:, rank] * decay).exp() + given.v[:, rank] * given.k[:, rank]
            said.append(now @ given.q[:, rank].transpose(1, 2))
        return torch.stack(said, dim=1), now[..., None]

    out: Tensor = step.call(recurred, go_on, tokens, x.dtype, partial(forked_channels, decay))[..., 0]
    if D is not None:
        out = out + x * D.float()
    if z is not None:
        out = out * F.silu(z[0].t().float())
    return out.t()[None]


def forked_channels(
    decay: Tensor, tokens: Tokens, state: Tensor, ancestors: Ancestors, now: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute branches after trunks as `delta_rule.forked` does; `state`: [n, channels, N, 1]."""
    before, beside = ancestors.pairs_beside(now)
    own = torch.cat([beside, diagonal(now)], dim=1)
    lengths = since_trunk(tokens.g, ancestors, now | torch.eye(now.shape[1], dtype=torch.bool, device=now.device))
    said = torch.zeros_like(tokens.v[..., 0])
    for number, rate in enumerate(decay.t()):
        said += (lengths[..., 0] * rate).exp() * state[:, None, :, number, 0] * tokens.q[..., number]
    keys = torch.cat([ancestors.keys, tokens.k], dim=1)
    updates = torch.cat([ancestors.updates, tokens.v], dim=1)
    begun = torch.cat([ancestors.decays, lengths], dim=1)
    at_once = max(1, _NUMBERS // len(decay))
    for prompt, row, column in torch.split(behind(before, own, ancestors.seen.shape[2]), at_once, dim=1):
        gaps = (lengths[prompt, row] - begun[prompt, column])[..., 0]  # [pairs, channels]
        weights = (tokens.q[prompt, row] * keys[prompt, column])[:, 0]  # [pairs, N]
        heard = torch.zeros_like(gaps)
        for number, rate in enumerate(decay.t()):
            heard.addcmul_((gaps * rate).exp_(), weights[:, number, None])
        said.flatten(0, 1).index_add_(0, prompt * said.shape[1] + row, heard * updates[prompt, column][..., 0])
    return said[..., None], tokens.v, lengths
