"""Tokens of branches behind a trunk's state on a GPU, in Triton: one launch a layer for all prompts of a cohort.

It is delta_rule.py's `forked` without padding. A program reads its part of a head's state once for all tokens of a
prompt that it computes side by side (`ROWS`); those behind them find what these have written among the columns, and the
state in the processor's cache. Nothing here was timed on hardware yet.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from hpd_core.mixers.branch_tables import BEFORE, BESIDE, ROWS, BranchTables
from hpd_core.mixers.states import LayerMemory

_BEFORE, _BESIDE = tl.constexpr(BEFORE), tl.constexpr(BESIDE)
_COLUMNS = 16
"""That are looked at side by side."""
_DIMS, _VALUES = 16, 64
"""Of the keys, likewise; and of the values, that a program computes."""
_CHANGING = ("num_tokens", "num_seen", "capacity", "width")


@triton.jit
def _faded(later, sooner, is_seen):  # type: ignore[no-untyped-def]
    """What is left of each column [COLUMNS] where a token [ROWS] hears of it, [ROWS, COLUMNS]."""
    return tl.exp(tl.where(is_seen, later[:, None] - sooner[None, :], float("-inf")))


@triton.jit(do_not_specialize=_CHANGING, do_not_specialize_on_alignment=("prompts", "tokens", "seen"))
def _branches_kernel(  # type: ignore[no-untyped-def]
    q,
    k,
    v,
    g,
    beta,
    state,
    keys,
    updates,
    decays,
    out,
    prompts,
    tokens,
    seen,
    num_tokens,
    num_seen,
    capacity,
    width,
    q_row,
    q_head,
    k_row,
    k_head,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    KEY_SIZE: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DIMS: tl.constexpr,
    VALUES: tl.constexpr,
    CORRECTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Program (prompt, head, part of the values)."""
    entry = prompts + 4 * tl.program_id(0)
    prompt, first, count, num_columns = tl.load(entry), tl.load(entry + 1), tl.load(entry + 2), tl.load(entry + 3)
    head = tl.program_id(1)
    key_head = head // GROUP
    by, by_dim = tl.arange(0, ROWS), tl.arange(0, DIMS)
    number = tl.program_id(2) * VALUES + tl.arange(0, VALUES)
    is_number = number < VALUE_SIZE
    of_state = state + (prompt * HEADS + head) * KEY_SIZE * VALUE_SIZE + number[None, :]
    behind_trunk = prompt * capacity + width
    for start in range(0, count, ROWS):
        token = first + start + by
        is_token = start + by < count
        row = tl.load(tokens + token, is_token, 0)
        column = tl.load(tokens + num_tokens + token, is_token, width) - width
        of_query = q + row[:, None] * q_row + key_head * q_head
        of_key = k + row[:, None] * k_row + key_head * k_head
        places = (row[:, None] * HEADS + head) * VALUE_SIZE + number[None, :]
        stored = is_token[:, None] & is_number[None, :]
        beside = tl.load(seen + token[:, None] * num_seen + column[None, :], is_token[:, None] & is_token[None, :], 0)
        is_beside = beside == _BESIDE
        is_own = is_beside | (by[:, None] == by[None, :])
        # Of those before, the deepest has faded most, for nothing grows.
        sooner = tl.zeros([ROWS], tl.float32)
        for begin in range(0, num_columns, COLUMNS):
            at = begin + tl.arange(0, COLUMNS)
            is_column = at < num_columns
            sees = tl.load(seen + token[:, None] * num_seen + at[None, :], is_token[:, None] & is_column[None, :], 0)
            decay = tl.load(decays + (behind_trunk + at) * HEADS + head, is_column, 0.0)
            sooner = tl.minimum(sooner, tl.min(tl.where(sees == _BEFORE, decay[None, :], 0.0), 1))
        fading = tl.load(g + row * HEADS + head, is_token, 0.0)
        total = sooner + tl.sum(tl.where(is_own, fading[None, :], 0.0), 1)

        said, known = tl.zeros([ROWS, VALUES], tl.float32), tl.zeros([ROWS, VALUES], tl.float32)
        for begin in range(0, KEY_SIZE, DIMS):
            dim = begin + by_dim
            wanted = is_token[:, None] & (dim < KEY_SIZE)[None, :]
            query = tl.load(of_query + dim[None, :], wanted, 0.0)
            trunk = tl.load(of_state + dim[:, None] * VALUE_SIZE, (dim < KEY_SIZE)[:, None] & is_number[None, :], 0.0)
            said += tl.dot(query, trunk, input_precision=PRECISION)
            if CORRECTS:
                known += tl.dot(tl.load(of_key + dim[None, :], wanted, 0.0), trunk, input_precision=PRECISION)
        said *= tl.exp(total)[:, None]
        known *= tl.exp(total)[:, None]

        for begin in range(0, num_columns, COLUMNS):
            at = begin + tl.arange(0, COLUMNS)
            is_column = at < num_columns
            sees = tl.load(seen + token[:, None] * num_seen + at[None, :], is_token[:, None] & is_column[None, :], 0)
            decay = tl.load(decays + (behind_trunk + at) * HEADS + head, is_column, 0.0)
            of_other = keys + ((behind_trunk + at) * (HEADS // GROUP) + key_head)[None, :] * KEY_SIZE
            by_query, by_key = tl.zeros([ROWS, COLUMNS], tl.float32), tl.zeros([ROWS, COLUMNS], tl.float32)
            for start_dim in range(0, KEY_SIZE, DIMS):
                dim = start_dim + by_dim
                wanted = is_token[:, None] & (dim < KEY_SIZE)[None, :]
                other = tl.load(of_other + dim[:, None], (dim < KEY_SIZE)[:, None] & is_column[None, :], 0.0)
                by_query += tl.dot(tl.load(of_query + dim[None, :], wanted, 0.0), other, input_precision=PRECISION)
                if CORRECTS:
                    by_key += tl.dot(tl.load(of_key + dim[None, :], wanted, 0.0), other, input_precision=PRECISION)
            faded = _faded(total, decay, sees == _BEFORE)
            of_update = updates + ((behind_trunk + at) * HEADS + head)[:, None] * VALUE_SIZE
            heard = tl.load(of_update + number[None, :], is_column[:, None] & is_number[None, :], 0.0)
            said += tl.dot(by_query * faded, heard, input_precision=PRECISION)
            if CORRECTS:
                known += tl.dot(by_key * faded, heard, input_precision=PRECISION)

        own_query, own_key = tl.zeros([ROWS, ROWS], tl.float32), tl.zeros([ROWS, ROWS], tl.float32)
        for begin in range(0, KEY_SIZE, DIMS):
            dim = begin + by_dim
            wanted = is_token[:, None] & (dim < KEY_SIZE)[None, :]
            key = tl.load(of_key + dim[None, :], wanted, 0.0)
            query = tl.load(of_query + dim[None, :], wanted, 0.0)
            own_query += tl.dot(query, tl.trans(key), input_precision=PRECISION)
            if CORRECTS:
                own_key += tl.dot(key, tl.trans(key), input_precision=PRECISION)
        faded = _faded(total, total, is_own)
        update = tl.load(v + places, stored, 0.0)
        if CORRECTS:
            strength = tl.load(beta + row * HEADS + head, is_token, 0.0)[:, None]
            update = strength * (update - known)
            if tl.max(tl.max(beside, 1), 0) == _BESIDE:
                system = strength * own_key * tl.where(is_beside, faded, 0.0)
                for later in range(1, ROWS):  # one triangular system, from its first row on
                    weights = tl.sum(tl.where(by[:, None] == later, system, 0.0), 0)
                    heard_of = tl.sum(weights[:, None] * update, 0)
                    update = tl.where(by[:, None] == later, update - heard_of[None, :], update)
        said += tl.dot(own_query * faded, update, input_precision=PRECISION)
        tl.store(out + places, said.to(out.dtype.element_ty), stored)
        own = behind_trunk + column
        tl.store(updates + (own[:, None] * HEADS + head) * VALUE_SIZE + number[None, :], update, stored)
        # Programs of other parts of the values store the same.
        tl.store(decays + own * HEADS + head, total, is_token)
        tl.debug_barrier()  # the next rows read them


def fork(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor | None,
    tables: BranchTables,
    memory: LayerMemory,
    out: Tensor,
) -> None:
    """As `delta_rule.fork`, of states that fade as a whole.

    Args:
        q, k, v, g, beta: of `delta_rule.Tokens`, in fp32, queries scaled. `g`, [T, H, 1], is 0 or less.
        out: [T, H, D_v], without gaps.
    """
    columns, state = memory.columns, memory.states["state"]
    heads, key_size, value_size = state.shape[1:]
    rows, at, whose = tables.tokens.unbind()
    # All keys, for programs of several heads read them.
    columns["keys"][whose, at] = k.index_select(0, rows)
    values = min(max(16, triton.next_power_of_2(value_size)), _VALUES)
    sizes: dict[str, Any] = {
        "HEADS": heads,
        "GROUP": heads // k.shape[1],
        "KEY_SIZE": key_size,
        "VALUE_SIZE": value_size,
        "ROWS": ROWS,
        "COLUMNS": _COLUMNS,
        "DIMS": _DIMS,
        "VALUES": values,
        "CORRECTS": beta is not None,
        "PRECISION": "ieee",
    }
    g = g.contiguous()
    q, k = (each if each.stride(2) == 1 else each.contiguous() for each in (q, k))
    _branches_kernel[(len(tables.prompts), heads, triton.cdiv(value_size, values))](
        q,
        k,
        v.contiguous(),
        g,
        g if beta is None else beta.contiguous(),
        state,
        columns["keys"],
        columns["updates"],
        columns["decays"],
        out,
        tables.prompts,
        tables.tokens,
        tables.seen,
        tables.tokens.shape[1],
        tables.seen.shape[1],
        columns["keys"].shape[1],
        tables.width,
        *q.stride()[:2],
        *k.stride()[:2],
        **sizes,
        num_warps=4,
        num_stages=1,
    )
