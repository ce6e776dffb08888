"""Isolation of bad records: chooses the part of a failing shard to try next, so that one record does not fail others.

A shard is tried whole, `max_attempts` times: most failures come from outside (a lost node, a full GPU) and do not
recur. Then it is cut into up to 16 ranges of records, each tried alone. A range that fails is cut again, down to single
records. A process that dies loses its memory, so all of this is computed each time from the recorded tries.
"""

from __future__ import annotations

import fcntl
import itertools
import math
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.errors import UsageError

_FAN_OUT = 16
# A record fails twice before it is given up: once may have been the node's fault.
_TRIES_OF_A_RECORD = 2
# Failures, beyond those of the whole shard, after which what still fails is given up as it stands.
_MAX_FAILURES = 40
# An engine that is broken fails everywhere: the shard, all of its parts, and so many parts of these, one of each first.
_FAILURES_BELOW = 12


@dataclass(frozen=True, slots=True)
class Span:
    """Records [start, stop) of a prepared shard."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def indices(self) -> range:
        """Indices of its records in the shard."""
        return range(self.start, self.stop)


@dataclass(frozen=True, slots=True)
class Try:
    """One recorded try at decoding a span.

    Attributes:
        is_done: whether it finished. If not, it failed: with `error`, or without one because its process died.
    """

    span: Span
    is_done: bool
    error: str | None = None


@dataclass(slots=True)
class Partition:
    """Spans to decode, in this order, and spans that are given up, with the reason."""

    spans: list[Span] = field(default_factory=list)
    given_up: dict[Span, str] = field(default_factory=dict)


def partition(num_records: int, tries: Sequence[Try], max_attempts: int) -> Partition:
    """Split a shard's records into spans to decode and spans to give up. Together they are all records, each once.

    Args:
        num_records: number of records in the shard, at least 1.
        tries: tries of this session, oldest first; their spans are of a shard prepared in the same way.
        max_attempts: tries of the whole shard before it is cut.
    """
    tried = {each.span for each in tries}
    done = {each.span for each in tries if each.is_done}
    failures: dict[Span, list[Try]] = {}
    for each in tries:
        if not each.is_done:
            failures.setdefault(each.span, []).append(each)
    num_failures = sum(map(len, failures.values()))
    found = Partition()

    whole = Span(0, num_records)
    parts = _cut(whole)
    if (
        not done
        and num_failures >= max_attempts + len(parts) + _FAILURES_BELOW
        and all(len(part) > 1 and part in failures for part in parts)
    ):
        found.given_up[whole] = _reason(failures[whole], "; so did every part of them alone")
        return found

    def visit(span: Span, num_tries: int) -> None:
        failed = failures.get(span, [])
        if len(failed) < num_tries:
            found.spans.append(span)
            return
        children = _cut(span)
        # Past the limit nothing is cut any more; parts that were not tried yet, beside some that were, still are.
        if not children or (num_failures >= max_attempts + _MAX_FAILURES and tried.isdisjoint(children)):
            found.given_up[span] = _reason(failed)
            return
        for child in children:
            visit(child, 1 if len(child) > 1 else _TRIES_OF_A_RECORD)

    visit(whole, max_attempts)
    # A death costs what was decoded before it: what has come to its end already waits. Of the others the longest first,
    # and from all over the shard, so that an engine that fails everywhere shows it before the search goes deep.
    order = random.Random(num_records)
    shuffled = {span: order.random() for span in found.spans}
    found.spans.sort(key=lambda span: (span in done, -math.ceil(math.log(len(span), _FAN_OUT)), shuffled[span]))
    return found


def _cut(span: Span) -> list[Span]:
    if len(span) <= 1:
        return []
    parts = min(_FAN_OUT, len(span))
    edges = [span.start + len(span) * part // parts for part in range(parts + 1)]
    return [Span(start, stop) for start, stop in itertools.pairwise(edges)]


def _reason(failed: Sequence[Try], addition: str = "") -> str:
    last = failed[-1]
    what = "the record" if len(last.span) == 1 else f"{len(last.span)} records together"
    reason = last.error or f"the process died while it decoded {what}"
    return f"given up after {len(failed)} failed tries of {what}{addition}; the last: {reason}"


def open_log(path: Path) -> Any:
    """Open the file for reading and appending, locked while it is open; create it if needed.

    Raise `UsageError` if another process holds the lock, `OSError` if it cannot be written.
    """
    file = open(path, "ab+")  # noqa: SIM115 - held open, and locked, as long as the job runs
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise UsageError(f"{path} is being written by another process") from error
    return file


def whole_lines(file: Any) -> Iterator[bytes]:
    """Yield the lines of a log; truncate a last one without line end, which a kill left half-written."""
    file.seek(0)
    end = 0
    for line in file:
        if not line.endswith(b"\n"):
            file.truncate(end)
            break
        end += len(line)
        yield line
    file.seek(0, os.SEEK_END)
