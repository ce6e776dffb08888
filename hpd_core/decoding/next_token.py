"""The next token of every value: the most likely one that its constraint allows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hpd_core.layers.tiled_logits import TiledLogits
from hpd_core.layout import FREE, IntArray
from hpd_core.native.linear import choose_by_tiles
from hpd_core.native.pointwise import choose, takes
from hpd_core.system.device import Fetched, to_device
from hpd_core.text.constraints import StateTable

_LOGIT_ROWS_AT_ONCE = {"cpu": 16, "cuda": 4096}
"""Rows of logits that are reduced together; 16 x 49,152 in fp32 stay in the caches of a CPU."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The tokens that a step decoded.

    Attributes:
        tokens: int64 [n]
        logprobs: float32 [n], natural logarithm of the model's own probability, constraints or not.
        states: int64 [n], what the values may go on with behind them.
    """

    tokens: IntArray
    logprobs: npt.NDArray[np.float32]
    states: IntArray

    def __getitem__(self, rows: slice | IntArray) -> Chosen:
        """Some of them."""
        return Chosen(self.tokens[rows], self.logprobs[rows], self.states[rows])


class Choice:
    """The tokens of n logit rows, chosen on the device and on their way from there."""

    def __init__(
        self, tokens: Tensor, logprobs: Tensor, bound: IntArray, picked: Tensor, states_behind: IntArray
    ) -> None:
        """Starts the way.

        Args:
            tokens, logprobs: [n]
            bound: int64 [m], the rows that had a constraint.
            picked: int64 [m], which of the tokens allowed there was chosen.
            states_behind: int64 [m, most allowed], the state behind each of them.
        """
        self._fetched = Fetched(tokens, logprobs, picked)
        self._bound = bound
        self._states_behind = states_behind

    def fetch(self) -> Chosen:
        """Waits for them."""
        tokens, logprobs, picked = self._fetched.arrays()
        states = np.full(len(tokens), FREE)
        states[self._bound] = np.take_along_axis(self._states_behind, picked[:, None], axis=1)[:, 0]
        return Chosen(tokens, logprobs, states)


def greedy(
    logits: Iterable[Tensor] | TiledLogits,
    states: IntArray,
    constraints: StateTable | None,
    device: torch.device,
    *,
    by: str = "",
) -> Choice:
    """The most likely token of each row, among those that its state allows.

    Args:
        logits: of n rows; as blocks of rows, [rows, vocabulary] each, on `device`, or without being written down.
        states: int64 [n], states of `constraints`, or FREE.
        by: 'native': in C++, where the logits are of a kind that it takes; 'triton': by our kernel for GPUs.
    """
    bound = np.zeros(0, dtype=np.int64) if constraints is None else np.nonzero(states != FREE)[0]
    picked, states_behind = torch.empty(len(bound), dtype=torch.int64, device=device), np.zeros((0, 1), dtype=np.int64)
    if constraints is not None and len(bound):
        ids, states_behind = constraints.choices(states[bound])
        allowed = to_device(ids, device)

    if by == "triton" and not isinstance(logits, TiledLogits):
        where = to_device(_numbered(bound, len(states)), device) if len(bound) else None
        return _by_triton(logits, len(states), where, allowed if len(bound) else None, bound, picked, states_behind)

    def pick(here: slice, rows: Tensor, found: Tensor) -> None:
        """Of the bound rows number `here`, whose numbers are `rows`, the best of what is `found` for their choices."""
        best = found.float().max(dim=-1)
        picked[here] = best.indices
        tokens[rows] = allowed[here].gather(1, best.indices[:, None])[:, 0]
        scores[rows] = best.values

    if isinstance(logits, TiledLogits):
        tokens, scores, normalizers = choose_by_tiles(logits.hidden, logits.head)
        if len(bound):
            rows = to_device(bound, device)
            pick(slice(None), rows, logits.of(rows, ids))
        return Choice(tokens, scores - normalizers, bound, picked, states_behind)
    tokens = torch.empty(len(states), dtype=torch.int64, device=device)
    scores = torch.empty(len(states), dtype=torch.float32, device=device)
    normalizers = torch.empty_like(scores)
    first = 0
    for block in logits:
        stop = first + len(block)
        tokens[first:stop], scores[first:stop], normalizers[first:stop] = (
            choose(block) if by == "native" and takes(block) else likeliest(block)
        )
        here = slice(*np.searchsorted(bound, (first, stop)))
        if here.start < here.stop:
            rows = to_device(bound[here], device)
            pick(here, rows, block[rows[:, None] - first, allowed[here]])
        first = stop
    return Choice(tokens, scores - normalizers, bound, picked, states_behind)


def _numbered(bound: IntArray, count: int) -> IntArray:
    """int64 [count], which of the bound rows each row is; -1: none."""
    found = np.full(count, -1, dtype=np.int64)
    found[bound] = np.arange(len(bound))
    return found


def _by_triton(
    logits: Iterable[Tensor],
    count: int,
    where: Tensor | None,
    allowed: Tensor | None,
    bound: IntArray,
    picked: Tensor,
    states_behind: IntArray,
) -> Choice:
    from hpd_core.layers.triton_choice import choose as choose_there

    tokens = torch.empty(count, dtype=torch.int64, device=picked.device)
    scores, normalizers = torch.empty(2, count, dtype=torch.float32, device=picked.device)
    first = 0
    for block in logits:
        here = slice(first, first + len(block))
        first = here.stop
        some = None if where is None else where[here]
        choose_there(block, some, allowed, tokens[here], scores[here], normalizers[here], picked)
    return Choice(tokens, scores - normalizers, bound, picked, states_behind)


def likeliest(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of each row of `logits`, [n, V]: the likeliest token, int64 [n]; its logit and log(sum(exp)), float32 [n]."""
    tokens = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    scores = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    normalizers = torch.empty_like(scores)
    at_once = _LOGIT_ROWS_AT_ONCE.get(logits.device.type, 4096)
    for first in range(0, len(logits), at_once):
        rows = slice(first, first + at_once)
        block = logits[rows].to(torch.float32, copy=True)
        found = block.argmax(dim=-1, keepdim=True)
        highest = block.gather(1, found)
        tokens[rows], scores[rows] = found[:, 0], highest[:, 0]
        # logsumexp, in place and by powers of two: less than half its time on a CPU.
        block.sub_(highest).mul_(math.log2(math.e)).exp2_()
        normalizers[rows] = block.sum(dim=-1).log_().add_(highest[:, 0])
    return tokens, scores, normalizers
