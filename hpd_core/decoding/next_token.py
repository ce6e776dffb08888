"""The next token of every value: the most likely one that its constraint allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hpd_core.layers.packed_linears import TiledLogits
from hpd_core.layout import FREE, NO_NODE, IntArray
from hpd_core.native.linear import choose, choose_by_tiles, takes
from hpd_core.system.device import Fetched, to_device
from hpd_core.text.constraints import StateTable
from hpd_core.text.member_tries import TrieTable

_LOGIT_ROWS_AT_ONCE = {"cpu": 16, "cuda": 4096}
"""Rows of logits that are reduced together; 16 x 49,152 in fp32 fit in the caches of a CPU."""
_LOGITS_AT_ONCE = 2**24
"""Logits at a time, of rows that allow many tokens: 64 MB in fp32, three times."""
_MASKED_AT_ONCE = 2**28
"""Logits at a time that have masks, on a GPU: 256 MB of masks, if no two rows share one."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Tokens that a step decoded.

    Attributes:
        tokens: int64 [n]
        logprobs: float32 [n], natural logarithm of the model's own probability, regardless of constraints.
        states: int64 [n], the values' constraint states after them.
        ways: float32 [m], log-probabilities of other wanted tokens (`_Wanted`), likewise the model's own.
    """

    tokens: IntArray
    logprobs: npt.NDArray[np.float32]
    states: IntArray
    ways: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, dtype=np.float32))

    def __getitem__(self, rows: slice | IntArray) -> Chosen:
        """Select some rows, without the other wanted log-probabilities."""
        return Chosen(self.tokens[rows], self.logprobs[rows], self.states[rows])


class TokenChoice:
    """Tokens of n logit rows, chosen on the device and being copied to the host."""

    def __init__(
        self,
        tokens: Tensor,
        scores: Tensor,
        normalizers: Tensor,
        bound: _Bound | None,
        masked: _Masked | None,
        wanted: _Wanted,
    ) -> None:
        """Start the copy.

        Args:
            tokens, scores, normalizers: [n], each row's token, its logit, and log(sum(exp)) of all logits.
            bound, masked: the rows that have a constraint.
        """
        ways = wanted.found - normalizers[wanted.on_device] if len(wanted.rows) else wanted.found
        self._fetched = Fetched(tokens, scores - normalizers, ways, *([] if bound is None else [bound.picked]))
        self._bound, self._masked = bound, masked

    def fetch(self) -> Chosen:
        """Wait for the copy and return the tokens."""
        tokens, logprobs, ways, *picked = self._fetched.arrays()
        states = np.full(len(tokens), FREE)
        bound, masked = self._bound, self._masked
        if bound is not None:
            states[bound.rows] = np.take_along_axis(bound.behind, picked[0][:, None], axis=1)[:, 0]
        if masked is not None:
            states[masked.rows] = masked.constraints.behind_each(masked.states, tokens[masked.rows])
        return Chosen(tokens, logprobs, states, ways)


@dataclass(frozen=True, slots=True)
class _Bound:
    """Rows whose constraint allows few tokens.

    Attributes:
        rows: int64 [m], ascending.
        ids: int64 [m, most allowed], the tokens that each allows; `allowed`: the same on the device.
        behind: int64 [m, most allowed], the state after each of them.
        picked: int64 [m], on the device: index of the chosen token among them.
    """

    rows: IntArray
    ids: IntArray
    allowed: Tensor
    behind: IntArray
    picked: Tensor

    def here(self, first: int, stop: int) -> slice:
        """Return the range of those that are among the rows `first` to `stop`."""
        return slice(*np.searchsorted(self.rows, (first, stop)))


class _Wanted:
    """Tokens whose log-probability is wanted, chosen or not: m pairs of a row and a token, in the order of the rows.

    Attributes:
        rows: int64 [m]; `on_device`: the same there.
        found: float32 [m], there: their logits.
    """

    def __init__(self, nodes: IntArray, tries: TrieTable | None, device: torch.device) -> None:
        """Collect the ways of `nodes`, int64 [n]: for each row a node of a trie, or NO_NODE."""
        none = np.zeros(0, dtype=np.int64)
        self.rows, self._ids = (none, none) if tries is None or (nodes == NO_NODE).all() else tries.wanted(nodes)
        self.found = torch.empty(len(self.rows), dtype=torch.float32, device=device)
        if len(self.rows):
            self.on_device, self._ids_there = to_device(self.rows, device), to_device(self._ids, device)

    def look_up(self, block: Tensor, first: int) -> None:
        """Look them up in logits [rows, vocabulary], which begin with row `first`."""
        here = slice(*np.searchsorted(self.rows, (first, first + len(block))))
        if here.start < here.stop:
            self.found[here] = block[self.on_device[here] - first, self._ids_there[here]].float()

    def look_up_tiled(self, logits: TiledLogits) -> None:
        """Look them up in logits that are not materialized."""
        if len(self.rows):
            self.found[:] = logits.of_pairs(self.rows, self._ids).float()


@dataclass(frozen=True, slots=True)
class _Masked:
    """Rows whose constraint allows many tokens: the likeliest of all is mostly one of them.

    Attributes:
        rows, states: int64 [m], the rows ascending.
    """

    rows: IntArray
    states: IntArray
    constraints: StateTable

    def in_block(self, block: Tensor, first: int) -> tuple[Tensor | None, Tensor | None]:
        """Return the masks for a block of logits [count, vocabulary], which begins with row `first`.

        They are the index of each row's mask or -1, int64 [count], and the masks, bool [k, vocabulary]. Both are None
        if no row has one."""
        count, size = block.shape
        here = slice(*np.searchsorted(self.rows, (first, first + count)))
        if here.start == here.stop:
            return None, None
        kinds, numbers = np.unique(self.states[here], return_inverse=True)
        masked = np.full(count, -1, dtype=np.int64)
        masked[self.rows[here] - first] = numbers
        return to_device(masked, block.device), self.constraints.masks(kinds, size, block.device)

    def correct(
        self, logits: Callable[[Tensor], Tensor], first: int, tokens: Tensor, scores: Tensor, size: int
    ) -> None:
        """Replace tokens that are not allowed, and their logits, by the likeliest allowed ones.

        Args:
            logits: returns the logits of some rows, by their numbers counted from `first`.
            first: number of the first row of `tokens` and `scores`; only their rows are changed.
            size: of the vocabulary.
        """
        here = slice(*np.searchsorted(self.rows, (first, first + len(tokens))))
        rows, states, device = self.rows[here] - first, self.states[here], tokens.device
        if device.type == "cpu":  # another device would be waited for
            is_wrong = ~self.constraints.allow(states, tokens.numpy()[rows])
            rows, states = rows[is_wrong], states[is_wrong]
        by_state = np.argsort(states, kind="stable")  # few masks at once
        kinds, numbers = np.unique(states[by_state], return_inverse=True)
        at, masks_of = to_device(rows[by_state], device), to_device(numbers, device)
        at_once = max(1, _LOGITS_AT_ONCE // size)
        for some in (slice(begin, begin + at_once) for begin in range(0, len(rows), at_once)):
            low, high = int(numbers[some][0]), int(numbers[some][-1])
            masks = self.constraints.masks(kinds[low : high + 1], size, device)[masks_of[some] - low]
            found = logits(at[some]).float()
            # Allowed tokens with logit -inf come before tokens that are not allowed.
            possible = found.clamp(min=torch.finfo(torch.float32).min)
            best = possible.masked_fill_(~masks, -math.inf).argmax(-1, keepdim=True)
            tokens[at[some]], scores[at[some]] = best[:, 0], found.gather(1, best)[:, 0]


def _bound(
    states: IntArray, constraints: StateTable | None, device: torch.device
) -> tuple[_Bound | None, _Masked | None]:
    """Return the rows that have a constraint: those of few allowed tokens, and those of many."""
    rows = np.zeros(0, dtype=np.int64) if constraints is None else np.nonzero(states != FREE)[0]
    if constraints is None or not len(rows):
        return None, None
    is_few = constraints.is_few(states[rows])
    few, many = rows[is_few], rows[~is_few]
    bound = masked = None
    if len(few):
        ids, behind = constraints.choices(states[few])
        picked = torch.empty(len(few), dtype=torch.int64, device=device)
        bound = _Bound(few, ids, to_device(ids, device), behind, picked)
    if len(many):
        masked = _Masked(many, states[many], constraints)
    return bound, masked


def greedy(
    logits: Iterable[Tensor] | TiledLogits,
    states: IntArray,
    constraints: StateTable | None,
    device: torch.device,
    *,
    by: str = "",
    nodes: IntArray | None = None,
    tries: TrieTable | None = None,
) -> TokenChoice:
    """Choose the most likely token of each row, among those that its state allows.

    Args:
        logits: of n rows; as blocks of rows, [rows, vocabulary] each, on `device`, or not materialized.
        states: int64 [n], states of `constraints`, or FREE.
        by: 'native': in C++, if it takes logits of this kind; 'triton': by our kernel for GPUs.
        nodes: int64 [n], nodes of `tries` whose ways' log-probabilities are wanted after these rows, or NO_NODE.
    """
    bound, masked = _bound(states, constraints, device)
    wanted = _Wanted(np.zeros(0, dtype=np.int64) if nodes is None else nodes, tries, device)
    if by == "triton" and not isinstance(logits, TiledLogits):
        return _by_triton(logits, len(states), bound, masked, wanted, device)
    if isinstance(logits, TiledLogits):
        tokens, scores, normalizers = choose_by_tiles(logits.hidden, logits.head)
        if bound is not None:
            rows = to_device(bound.rows, device)
            _pick(bound, slice(None), rows, logits.of(rows, bound.ids), tokens, scores)
        if masked is not None:
            masked.correct(lambda rows: logits.head(logits.hidden[rows]), 0, tokens, scores, len(logits.weight))
        wanted.look_up_tiled(logits)
        return TokenChoice(tokens, scores, normalizers, bound, masked, wanted)
    tokens = torch.empty(len(states), dtype=torch.int64, device=device)
    scores = torch.empty(len(states), dtype=torch.float32, device=device)
    normalizers = torch.empty_like(scores)
    first = 0
    for block in logits:
        stop = first + len(block)
        tokens[first:stop], scores[first:stop], normalizers[first:stop] = (
            choose(block) if by == "native" and takes(block) else likeliest(block)
        )
        if bound is not None:
            _pick_in_block(bound, block, first, tokens, scores)
        if masked is not None:
            masked.correct(block.__getitem__, first, tokens[first:stop], scores[first:stop], block.shape[1])
        wanted.look_up(block, first)
        first = stop
    return TokenChoice(tokens, scores, normalizers, bound, masked, wanted)


def _pick_in_block(some: _Bound, block: Tensor, first: int, tokens: Tensor, scores: Tensor) -> None:
    """Do as `_pick` for the bound rows of a block, which begins with row `first`."""
    here = some.here(first, first + len(block))
    if here.start < here.stop:
        rows = to_device(some.rows[here], block.device)
        _pick(some, here, rows, block[rows[:, None] - first, some.allowed[here]], tokens, scores)


def _pick(some: _Bound, here: slice, rows: Tensor, found: Tensor, tokens: Tensor, scores: Tensor) -> None:
    """Pick the best allowed token of the bound rows `here`; `rows` are their numbers, `found` its choices' logits."""
    best = found.float().max(dim=-1)
    some.picked[here] = best.indices
    tokens[rows] = some.allowed[here].gather(1, best.indices[:, None])[:, 0]
    scores[rows] = best.values


def _numbered(bound: IntArray, count: int) -> IntArray:
    """Return the index of each row among the bound rows, int64 [count]; -1: not bound."""
    found = np.full(count, -1, dtype=np.int64)
    found[bound] = np.arange(len(bound))
    return found


def _by_triton(
    logits: Iterable[Tensor],
    count: int,
    bound: _Bound | None,
    masked: _Masked | None,
    wanted: _Wanted,
    device: torch.device,
) -> TokenChoice:
    """Choose with one Triton kernel per block."""
    from hpd_core.layers.triton_pointwise import choose as choose_there

    tokens = torch.empty(count, dtype=torch.int64, device=device)
    scores, normalizers = torch.empty(2, count, dtype=torch.float32, device=device)
    where = None if bound is None else to_device(_numbered(bound.rows, count), device)
    allowed = None if bound is None else bound.allowed
    picked = torch.empty(0, dtype=torch.int64, device=device) if bound is None else bound.picked
    first = 0
    for block in logits if masked is None else _in_parts(logits):
        here = slice(first, first + len(block))
        numbers = None if where is None else where[here]
        masks = (None, None) if masked is None else masked.in_block(block, first)
        choose_there(block, numbers, allowed, *masks, tokens[here], scores[here], normalizers[here], picked)
        wanted.look_up(block, first)
        first = here.stop
    return TokenChoice(tokens, scores, normalizers, bound, masked, wanted)


def _in_parts(blocks: Iterable[Tensor]) -> Iterator[Tensor]:
    """Split blocks, so that the masks of a part stay below `_MASKED_AT_ONCE`."""
    for block in blocks:
        yield from torch.split(block, max(1, _MASKED_AT_ONCE // block.shape[1]))


def likeliest(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return each row's likeliest token, int64 [n]; its logit and log(sum(exp)), float32 [n]. `logits` is [n, V]."""
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
