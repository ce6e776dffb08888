"""Choice of the next tokens on a GPU, in Triton: one pass over the logits for the likeliest token and its probability.

The same program looks up the few logits that a constraint names. If a constraint allows many, the likeliest of all is
mostly one of them; if not, the row is read once more, beside the mask. Nothing is gathered.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_COLUMNS = 8192
# Parts of larger tensors, whose addresses are multiples of 16 bytes now and then: Triton would compile anew for these.
_PARTS = ("logits", "bound", "allowed", "masked", "masks", "tokens", "scores", "normalizers", "picked")
_LEAST = tl.constexpr(-3.4028234663852886e38)
"""Lower bound of allowed logits: what is allowed and impossible comes before what is not allowed."""


@triton.jit(do_not_specialize=("most",), do_not_specialize_on_alignment=_PARTS)
def _choose_kernel(  # type: ignore[no-untyped-def]
    logits,
    bound,
    allowed,
    masked,
    masks,
    tokens,
    scores,
    normalizers,
    picked,
    vocabulary,
    most,
    row_stride,
    HAS_BOUND: tl.constexpr,
    HAS_MASKED: tl.constexpr,
    IS_ALIGNED: tl.constexpr,
    COLUMNS: tl.constexpr,
    FEW: tl.constexpr,
):
    """Compute a row per program: online softmax without its weights (arXiv:1805.02867). IS_ALIGNED: rows begin at
    multiples of 16 bytes.
    """
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * row_stride
    if IS_ALIGNED:
        start = tl.multiple_of(start, 16)
    best = tl.full([COLUMNS], float("-inf"), tl.float32)
    total = tl.zeros([COLUMNS], tl.float32)
    place = tl.zeros([COLUMNS], tl.int32)
    by = tl.arange(0, COLUMNS)
    for begin in range(0, vocabulary, COLUMNS):
        column = begin + by
        found = tl.load(start + column, column < vocabulary, float("-inf")).to(tl.float32)
        now = tl.maximum(best, found)
        is_possible = now > float("-inf")
        safe = tl.where(is_possible, now, 0.0)
        total = total * tl.exp(best - safe) + tl.exp(found - safe)
        place = tl.where(found > best, column, place)
        best = now
    highest = tl.max(best, 0)
    # Of equal ones the lowest id.
    token = tl.min(tl.where(best == highest, place, vocabulary), 0)
    normalizer = highest + tl.log(tl.sum(total * tl.exp(best - highest), 0))
    score = highest
    if HAS_BOUND:
        number = tl.load(bound + row)
        if number >= 0:
            few = tl.arange(0, FEW)
            top = tl.full([FEW], float("-inf"), tl.float32)
            where = tl.zeros([FEW], tl.int32)
            for begin in range(0, most, FEW):
                choice = begin + few
                column = tl.load(allowed + number * most + choice, choice < most, 0)
                found = tl.load(start + column, choice < most, float("-inf")).to(tl.float32)
                where = tl.where(found > top, choice, where)
                top = tl.maximum(top, found)
            score = tl.max(top, 0)
            choice_of = tl.min(tl.where(top == score, where, most), 0)
            choice_of = tl.minimum(choice_of, most - 1)
            token = tl.load(allowed + number * most + choice_of).to(tl.int32)
            tl.store(picked + number, choice_of)
    if HAS_MASKED:
        kind = tl.load(masked + row)
        if kind >= 0:
            mask = masks + kind * vocabulary
            if tl.load(mask + token) == 0:
                best = tl.full([COLUMNS], float("-inf"), tl.float32)
                place = tl.zeros([COLUMNS], tl.int32)
                for begin in range(0, vocabulary, COLUMNS):
                    column = begin + by
                    found = tl.load(start + column, column < vocabulary, float("-inf")).to(tl.float32)
                    is_allowed = tl.load(mask + column, column < vocabulary, 0) != 0
                    found = tl.where(is_allowed, tl.maximum(found, _LEAST), float("-inf"))
                    place = tl.where(found > best, column, place)
                    best = tl.maximum(best, found)
                token = tl.min(tl.where(best == tl.max(best, 0), place, vocabulary), 0)
                score = tl.load(start + token).to(tl.float32)
    tl.store(tokens + row, token)
    tl.store(scores + row, score)
    tl.store(normalizers + row, normalizer)


def choose(
    logits: Tensor,
    bound: Tensor | None,
    allowed: Tensor | None,
    masked: Tensor | None,
    masks: Tensor | None,
    tokens: Tensor,
    scores: Tensor,
    normalizers: Tensor,
    picked: Tensor,
) -> None:
    """Write, for each row, the likeliest token that it may have, its logit, and log(sum(exp)) of all.

    Args:
        logits: [n, V], rows without gaps; all of a tensor, or some of its rows.
        bound: int64 [n], index of the row of `allowed` for this row; -1: anything. None: no row has a constraint.
        allowed: int64 [m, most], token ids.
        masked: int64 [n], index of the row of `masks` for this row; -1: no mask. None: no row has one.
        masks: bool [k, V], each of which allows something.
        tokens, scores, normalizers: int64, float32, float32 [n]; they are written.
        picked: int64 [m], which of the tokens allowed it is; it is written for the rows of `bound`.
    """
    if not len(logits):
        return
    _choose_kernel[(len(logits),)](
        logits,
        logits if bound is None else bound,
        logits if allowed is None else allowed,
        logits if masked is None else masked,
        logits if masks is None else masks.view(torch.uint8),
        tokens,
        scores,
        normalizers,
        picked,
        logits.shape[1],
        1 if allowed is None else allowed.shape[1],
        logits.stride(0),
        HAS_BOUND=bound is not None,
        HAS_MASKED=masked is not None,
        IS_ALIGNED=not (logits.stride(0) * logits.itemsize) % 16,
        COLUMNS=_COLUMNS,
        FEW=256,
        num_warps=8,
    )
