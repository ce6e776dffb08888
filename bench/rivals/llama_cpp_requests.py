"""The ways in which llama.cpp is asked, as plain data for the process that has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.workloads.workload import ForcedRecord, branch_prompts
from pipelines.errors import UsageError


@dataclass(frozen=True, slots=True)
class ForkedRecord:
    """A record whose answers go on from one document, each exactly as long as its limit.

    Attributes:
        prefix: the number of the tokens that come first.
        document: token ids behind them.
        branches: per answer, the token ids behind the document; at least one.
        limits: per answer, the tokens to write.
    """

    prefix: int
    document: list[int]
    branches: list[list[int]]
    limits: list[int]


@dataclass(frozen=True, slots=True)
class ForkedRequests:
    """What is asked together.

    Attributes:
        prefixes: token ids that several records begin with, each once.
        is_shared: one cache for all sequences; else each has its own.
        num_sequences: answers that grow at once, at most.
        num_cells: tokens that the cache has room for, of all sequences.
        batch_size: tokens that llama.cpp is given at once, at most (n_batch).
        step_size: tokens that it computes at once, at most (n_ubatch).
    """

    prefixes: list[list[int]]
    records: list[ForkedRecord]
    is_shared: bool
    num_sequences: int
    num_cells: int
    batch_size: int
    step_size: int

    @property
    def num_tokens(self) -> int:
        """Tokens to forward: every prefix and every document once, and of an answer all but the last."""
        return sum(map(len, self.prefixes)) + sum(map(_num_cells, self.records))

    @property
    def num_written(self) -> int:
        """Tokens of all answers."""
        return sum(sum(record.limits) for record in self.records)


MOST_SEQUENCES = 255
"""llama.cpp has room for one more, which keeps the prefix."""

_SHARED_CELLS = 16384
_BATCH_SIZE, _STEP_SIZE = 2048, 512
_NUM_WHOLE = 32
"""Sequences that write whole answers."""


def whole_answers(records: Sequence[ForcedRecord]) -> ForkedRequests:
    """One sequence for each record, which writes keys and values."""
    return _requests([(record, [[]], [record.answer_length]) for record in records], is_shared=False)


def one_per_attribute(records: Sequence[ForcedRecord]) -> ForkedRequests:
    """One sequence for each attribute, which goes on from its document and writes a value.

    Raises:
        UsageError: a record has more attributes than llama.cpp has sequences.
    """
    forked = []
    for record in records:
        branches = [prompt[len(record.trunk) :] for prompt in branch_prompts(record.layout)]
        if len(branches) > MOST_SEQUENCES:
            raise UsageError(
                f"llama.cpp has {MOST_SEQUENCES} sequences for answers, and a record has {len(branches)} attributes: "
                f"leave 'llama.cpp fan-out' out (--only)"
            )
        forked.append((record, branches, record.lengths))
    return _requests(forked, is_shared=True)


def _requests(forked: Sequence[tuple[ForcedRecord, list[list[int]], list[int]]], *, is_shared: bool) -> ForkedRequests:
    numbers: dict[tuple[int, ...], int] = {}
    found = []
    for record, branches, limits in forked:
        # Branches without tokens begin with the trunk's last one.
        end = len(record.trunk) - (not all(branches))
        split = min(record.layout.num_prefix_tokens, end)
        prefix = numbers.setdefault(tuple(record.trunk[:split]), len(numbers))
        heads = [record.trunk[end:] + branch for branch in branches]
        found.append(ForkedRecord(prefix, record.trunk[split:end], heads, limits))
    prefixes = [list(prefix) for prefix in numbers]
    longest = max(map(_num_cells, found)) + 2 * max(map(len, prefixes))
    num_sequences = MOST_SEQUENCES if is_shared else min(_NUM_WHOLE, len(found))
    return ForkedRequests(
        prefixes,
        found,
        is_shared,
        num_sequences,
        num_cells=max(_SHARED_CELLS, longest) if is_shared else (num_sequences + 1) * longest,
        batch_size=max(_BATCH_SIZE, longest),
        step_size=_STEP_SIZE,
    )


def _num_cells(record: ForkedRecord) -> int:
    """Tokens of a record that are forwarded behind its prefix."""
    return len(record.document) + sum(map(len, record.branches)) + sum(record.limits) - len(record.limits)
