"""The next token of every value: the most likely one that its constraint allows."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from hpd_core.cohort import Chosen
from hpd_core.constraints import StateTable
from hpd_core.layout import FREE, IntArray
from hpd_core.native.pointwise import choose, takes
from hpd_core.transfer import Fetched, to_device

_LOGIT_ROWS_AT_ONCE = {"cpu": 16, "cuda": 4096}
"""Rows of logits that are reduced together; 16 x 49,152 in fp32 stay in the caches of a CPU."""


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
    blocks: Iterable[Tensor],
    states: IntArray,
    constraints: StateTable | None,
    device: torch.device,
    *,
    native: bool = False,
) -> Choice:
    """The most likely token of each row, among those that its state allows.

    Args:
        blocks: of n rows of logits in all, [rows, vocabulary] each, on `device`.
        states: int64 [n], states of `constraints`, or FREE.
        native: in C++, where the logits are of a kind that it takes.
    """
    tokens = torch.empty(len(states), dtype=torch.int64, device=device)
    scores = torch.empty(len(states), dtype=torch.float32, device=device)
    normalizers = torch.empty_like(scores)
    bound = np.zeros(0, dtype=np.int64) if constraints is None else np.nonzero(states != FREE)[0]
    picked, states_behind = torch.empty(len(bound), dtype=torch.int64, device=device), np.zeros((0, 1), dtype=np.int64)
    if constraints is not None and len(bound):
        ids, states_behind = constraints.choices(states[bound])
        allowed = to_device(ids, device)
    first = 0
    for logits in blocks:
        rows = slice(first, first + len(logits))
        tokens[rows], scores[rows], normalizers[rows] = (
            choose(logits) if native and takes(logits) else likeliest(logits)
        )
        here = slice(*np.searchsorted(bound, (rows.start, rows.stop)))
        if here.start < here.stop:
            bound_rows = to_device(bound[here], device)
            best = logits[bound_rows[:, None] - first, allowed[here]].float().max(dim=-1)
            picked[here] = best.indices
            tokens[bound_rows] = allowed[here].gather(1, best.indices[:, None])[:, 0]
            scores[bound_rows] = best.values
        first = rows.stop
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
