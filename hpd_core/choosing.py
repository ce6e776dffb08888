"""The next token of every value: the most likely one that its constraint allows."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from hpd_core.cohort import Chosen
from hpd_core.constraints import StateTable
from hpd_core.layout import FREE, IntArray
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


def greedy(logits: Tensor, states: IntArray, constraints: StateTable | None = None) -> Choice:
    """The most likely token of each row, among those that its state allows.

    Args:
        logits: [n, vocabulary]
        states: int64 [n], states of `constraints`, or FREE.
    """
    device = logits.device
    tokens = torch.empty(len(logits), dtype=torch.int64, device=device)
    scores = torch.empty(len(logits), dtype=torch.float32, device=device)
    normalizers = torch.empty_like(scores)
    at_once = _LOGIT_ROWS_AT_ONCE.get(device.type, 4096)
    for first in range(0, len(logits), at_once):
        rows = slice(first, first + at_once)
        block = logits[rows].to(torch.float32, copy=True)
        likeliest = block.argmax(dim=-1, keepdim=True)
        highest = block.gather(1, likeliest)
        tokens[rows], scores[rows] = likeliest[:, 0], highest[:, 0]
        # logsumexp, in place and by powers of two: less than half its time on a CPU.
        block.sub_(highest).mul_(math.log2(math.e)).exp2_()
        normalizers[rows] = block.sum(dim=-1).log_().add_(highest[:, 0])
    bound = np.zeros(0, dtype=np.int64) if constraints is None else np.nonzero(states != FREE)[0]
    picked, states_behind = torch.empty(0, dtype=torch.int64, device=device), np.zeros((0, 1), dtype=np.int64)
    if constraints is not None and len(bound):
        ids, states_behind = constraints.choices(states[bound])
        allowed, bound_rows = to_device(ids, device), to_device(bound, device)
        best = logits[bound_rows[:, None], allowed].float().max(dim=-1)
        picked = best.indices
        tokens[bound_rows] = allowed.gather(1, picked[:, None])[:, 0]
        scores[bound_rows] = best.values
    return Choice(tokens, scores - normalizers, bound, picked, states_behind)
