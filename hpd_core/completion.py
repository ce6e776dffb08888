"""Layer below the catalog: branches that grow from trunks, for any purpose. `Engine.complete` decodes them.

    trunk      prefix | text | suffix     what all its branches see; equal prefixes are computed once for all trunks
    branch     text                       private: no other branch sees it, nor its value
    value      decoded                    JSON on one line, constrained by the branch's kind; see text/value_kinds.py

A branch's value equals that of ordinary decoding after prefix + text + suffix + branch, whatever else is decoded
beside it. If documents are read both ways (bidirectional attention), text and suffix are.

Join of separate branches for a step that sees them all: a trunk that holds a trunk, its branches and values.

    trunk ─┬─ "price":  20             joined    trunk
           ├─ "weight": 1.2                      "price":  20
           └─ "colour": "red"                    "weight": 1.2
                                                 "colour": "red" ─── "summary": ...

Values that grow from the joined trunk equal those of ordinary decoding after that text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from hpd_core.decoding.prompt import BranchEnd, Prompt
from hpd_core.decoding.run_tries import RunTries, leased_branch
from hpd_core.errors import PromptError
from hpd_core.layout import Branch, Layout, tree_layout
from hpd_core.requests.extraction_future import ExtractionMetrics
from hpd_core.requests.task_queue import Owner, Task, TaskQueue
from hpd_core.text.closed_answers import ClosedAnswers
from hpd_core.text.constraints import Constraints
from hpd_core.text.kind_reading import read_value
from hpd_core.text.leases import Lease
from hpd_core.text.runs import Runs, lines_of
from hpd_core.text.template import Piece
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.value_kinds import FreeText, ValueKind, Verbatim, is_closed
from hpd_core.types import Choice, ValueStatus, is_encodable

_MOST_KEPT = 2**20  # tokens of prefixes
_MOST_BRANCHES = 64  # of a prompt: for each, attention goes through the tokens of all. Prompts share their text
_ANYTHING = FreeText()


@dataclass(frozen=True, slots=True)
class Trunk:
    """Text that some branches grow from.

    Attributes:
        prefix: beginning that many trunks share. A `Piece` that is not trusted, and `text`, cannot hold control tokens.
        text: the trunk's own text: a document.
        suffix: text between the document and the branches.
        decoded: text after all of that which grew from the trunk before (`joined`). It is always causal.
    """

    prefix: tuple[Piece, ...]
    text: str
    suffix: tuple[Piece, ...] = ()
    decoded: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenBranch:
    """Open end, from which a value grows.

    Attributes:
        text: text before the value, mostly a key and a colon; the space after it belongs to the value.
        kind: constraint of the value.
        max_tokens: number of tokens after which the value is cut; None: `EngineConfig.max_value_tokens`.
    """

    text: str
    kind: ValueKind = _ANYTHING
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """Decoded value of a branch.

    Attributes:
        value: plain JSON; None unless the status is "value". For free text also the text written until it was cut.
        status: "value", "absent" (null), "truncated" (cut), "invalid" (not of its kind) or "error" (not decoded).
        raw: the text as it was written, up to the end of the line.
        num_tokens: number of tokens, including the one that ends the value.
        logprob_mean, logprob_min: over these tokens; natural logarithms of the model's own probabilities.
        probability: share among all possible values if the value was chosen among them; else that of its tokens.
        choice, margin: as in `Value`.
    """

    value: Any
    status: ValueStatus
    raw: str = ""
    num_tokens: int = 0
    logprob_mean: float | None = None
    logprob_min: float | None = None
    probability: float | None = None
    choice: Choice | None = None
    margin: float | None = None


@dataclass(frozen=True, slots=True)
class TrunkCompletions:
    """Completions of one trunk, one per branch, in order. If `error` is set, none of them was decoded.

    `num_prompt_tokens` counts the tokens of the trunk and of its branches' texts.
    """

    branches: tuple[Completion, ...]
    error: str | None = None
    num_trunk_tokens: int = 0
    num_prompt_tokens: int = 0


class CompletionFuture(Future[list[TrunkCompletions]]):
    """Future of `Engine.complete`: one result per trunk, in order. `metrics` is complete when it is done."""

    def __init__(self, abandon: Callable[[], None]) -> None:
        """Set the function that the method `abandon` calls."""
        super().__init__()
        self._abandon = abandon
        self.metrics = ExtractionMetrics()

    def abandon(self) -> None:
        """Drop all branches not decoded yet. The future fails with CancelledError unless it is already done."""
        self._abandon()


OnBranch = Callable[[int, int, Completion], None]
"""Callback, called for each completion as soon as it is decoded: number of the trunk, of the branch, the completion."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Trunk of a prompt, by its number, and the prompt's branches: the trunk's from number `first` on."""

    number: int
    text: str
    branches: Sequence[OpenBranch]
    first: int


class Completions:
    """Builder of prompts from trunks with branches, and of completions from decoded prompts. Thread-safe."""

    def __init__(
        self,
        segments: SegmentTokenizer,
        queue: TaskQueue,
        constraints: Constraints | None,
        closed: ClosedAnswers,
        runs: RunTries | None,
        max_value_tokens: int,
        max_positions: int | None,
        both_ways: bool,
    ) -> None:
        """Take None for `constraints` and `runs` if nothing is constrained.

        `both_ways`: whether trunks are read both ways after their prefixes.
        """
        self._segments, self._queue = segments, queue
        self._constraints, self._closed, self._runs = constraints, closed, runs
        self._max_value_tokens = max_value_tokens
        self._max_positions = math.inf if max_positions is None else max_positions
        self._both_ways = both_ways
        self._prefixes: dict[tuple[Piece, ...], tuple[int, ...]] = {}
        self._num_kept = 0

    def submit(
        self, trunks: Sequence[Trunk], branches: Sequence[Sequence[OpenBranch]], on_branch: OnBranch | None = None
    ) -> CompletionFuture:
        """Queue branches; see `Engine.complete`."""
        (future,) = self.submit_each([(trunks, branches)], None if on_branch is None else [on_branch])
        return future

    def submit_each(
        self,
        calls: Sequence[tuple[Sequence[Trunk], Sequence[Sequence[OpenBranch]]]],
        on_branch: Sequence[OnBranch | None] | None = None,
        caller: object = None,
    ) -> list[CompletionFuture]:
        """Submit several calls of `submit` together, so that their prompts share even the first step.

        `caller` identifies whom they are for, across calls; None: a caller without other calls.
        """
        listeners = on_branch or [None] * len(calls)
        tasks = [self._task(*call, listener) for call, listener in zip(calls, listeners, strict=True)]
        caller = object() if caller is None else caller
        for task in tasks:
            task.caller = caller
        self._queue.add(tasks)
        return [task.future for task in tasks]  # type: ignore[misc]

    def _task(
        self, trunks: Sequence[Trunk], branches: Sequence[Sequence[OpenBranch]], on_branch: OnBranch | None
    ) -> Task:
        if len(trunks) != len(branches):
            raise ValueError(f"branches of {len(branches)} trunks, there are {len(trunks)}")
        if self._runs is None and any(isinstance(branch.kind, Verbatim) for own in branches for branch in own):
            raise ValueError("a Verbatim value is constrained to its text: set engine.constrain_values to true")
        refused: dict[int, TrunkCompletions] = {}
        prompts: list[Prompt] = []
        for number, (trunk, own) in enumerate(zip(trunks, branches, strict=True)):
            if not own:
                refused[number] = TrunkCompletions(())
                continue
            try:
                prompts += self._prompts(number, trunk, own)
            except PromptError as error:
                refused[number] = TrunkCompletions((Completion(None, "error"),) * len(own), str(error))
        future = CompletionFuture(lambda: self._queue.abandon(task))
        future.set_running_or_notify_cancel()
        task = Task(prompts, future, partial(self._results, len(trunks), refused), future.metrics)
        for prompt in prompts:
            prompt.owner = Owner(task, prompt.owner)
            if on_branch is not None:
                prompt.on_ended = partial(self._tell, prompt.owner.item, on_branch)
        return task

    def _prompts(self, number: int, trunk: Trunk, branches: Sequence[OpenBranch]) -> list[Prompt]:
        """Return the prompts of a trunk. Raise PromptError if it cannot be taken."""
        if not is_encodable(trunk.text + "".join(branch.text for branch in branches)):
            raise PromptError("the text, or a branch's, holds half of a surrogate pair, which no tokenizer takes")
        prefix = self._prefix(trunk.prefix)
        (own,) = self._segments.encode_text([trunk.text])
        if self._segments.has_control(own):
            raise PromptError("the text still holds control tokens after they were cut")
        keys = self._segments.encode_schema_text([branch.text for branch in branches])
        if not all(keys):
            raise PromptError("a branch has no text: its last token is what the value's first one follows")
        document = [*own, *self._segments.encode_pieces(trunk.suffix)]
        decoded = self._segments.encode_pieces(trunk.decoded)
        if not (prefix or document or decoded):
            raise PromptError("the trunk has no text: give it a prefix or a suffix, which an empty document has, too")
        found, leases = zip(*map(self._branch, keys, branches), strict=True)
        lines = lines_of([trunk.text]) if any(isinstance(branch.kind, Verbatim) for branch in branches) else ()
        prompts = []
        for first in range(0, len(branches), _MOST_BRANCHES):
            part = slice(first, first + _MOST_BRANCHES)
            layout = tree_layout(prefix, document, found[part], both_ways=self._both_ways, decoded=decoded)
            self._refuse_long(layout, len(own))
            runs = {
                place: Runs(lines, found[first + place].max_new_tokens, branch.kind.nullable)
                for place, branch in enumerate(branches[part])
                if isinstance(branch.kind, Verbatim)
            }
            owner = _Prepared(number, trunk.text, branches[part], first)
            prompts.append(Prompt(layout, prefix, owner, runs=runs, leases=list(chain.from_iterable(leases[part]))))
        return prompts

    def _refuse_long(self, layout: Layout, num_own: int) -> None:
        if layout.num_positions > self._max_positions:
            raise PromptError(
                f"the text has {num_own:,} tokens, and with all that stands around it {layout.num_positions:,}, more "
                f"than the {self._max_positions:,} positions of the model: shorten it, or use one with a longer context"
            )

    def _prefix(self, pieces: tuple[Piece, ...]) -> tuple[int, ...]:
        found = self._prefixes.get(pieces)
        if found is None:
            if not is_encodable("".join(piece.text for piece in pieces)):
                raise PromptError("the prefix holds half of a surrogate pair, which no tokenizer takes")
            found = tuple(self._segments.encode_pieces(pieces, begins=True))
            self._num_kept += len(found)
            if self._num_kept > _MOST_KEPT:
                self._prefixes.clear()
                self._num_kept = len(found)
            self._prefixes[pieces] = found
        return found

    def _branch(self, ids: Sequence[int], branch: OpenBranch) -> tuple[Branch, list[Lease[Any]]]:
        limit = branch.max_tokens or self._max_value_tokens
        return leased_branch(ids, branch.kind, limit, self._constraints, self._closed, self._runs)

    # Results, made in the thread beside the one that decodes.

    def _completion(self, item: _Prepared, end: BranchEnd, text: str) -> Completion:
        found = _completion(item, end, text)
        if self._runs is None or found.status != "value" or not isinstance(item.branches[end.branch].kind, Verbatim):
            return found
        runs = Runs(lines_of([item.text]), end.num_tokens)
        return replace(found, value=self._runs.as_it_stands(runs, found.value, found.raw, end.tokens))

    def _tell(self, item: _Prepared, on_branch: OnBranch, end: BranchEnd) -> None:
        def tell() -> None:
            (text,) = self._segments.decode([end.tokens])
            on_branch(item.number, item.first + end.branch, self._completion(item, end, text))

        self._queue.finish_later(tell)

    def _results(self, count: int, refused: dict[int, TrunkCompletions], task: Task) -> list[TrunkCompletions]:
        found = dict(refused)
        for prompt in sorted(task.finished, key=lambda each: each.owner.item.first):
            item: _Prepared = prompt.owner.item
            texts = self._segments.decode(prompt.tokens)
            ends = [self._completion(item, end, text) for end, text in zip(prompt.ends, texts, strict=True)]
            trunk = len(prompt.layout.trunk)
            before = found.get(item.number) or TrunkCompletions((), None, trunk, trunk)
            num_tokens = before.num_prompt_tokens + prompt.layout.num_tokens - trunk
            found[item.number] = TrunkCompletions((*before.branches, *ends), None, trunk, num_tokens)
        task.count_tokens()
        task.metrics.num_records = count
        task.metrics.num_errors = sum(each.error is not None for each in found.values())
        return [found[number] for number in range(count)]


def _completion(item: _Prepared, end: BranchEnd, text: str) -> Completion:
    kind = item.branches[end.branch].kind
    value, status = read_value(kind, text, closed=end.closed, fields={"": item.text})
    raw, is_finite = text.split("\n", 1)[0], all(map(math.isfinite, end.logprobs))
    if not is_finite:
        return Completion(None, "error", raw, end.num_tokens)
    return Completion(
        value,
        status,
        raw,
        end.num_tokens,
        end.logprob_mean,
        end.logprob_min,
        end.probability,
        end.chosen or ("greedy" if is_closed(kind) or isinstance(kind, Verbatim) else None),
        end.margin,
    )


def joined(trunk: Trunk, branches: Sequence[OpenBranch], found: TrunkCompletions) -> Trunk:
    """Return a trunk for a second `Engine.complete`: the first one, followed by every branch with its value.

    Each branch has a line, in order; a value that was cut is shown up to the cut. Branches and values cannot bring in
    control tokens. Equal prefixes are computed once: a document in `trunk.prefix` is not computed again for the second
    call, one in `trunk.text` is.

    Args:
        branches: all branches that grew from the trunk.
        found: their completions.

    Raises:
        PromptError: the trunk was refused, or one of its values could not be decoded.
        ValueError: not as many completions as branches.
    """
    if found.error is not None:
        raise PromptError(f"nothing grew from this trunk that could be joined: {found.error}")
    lines = []
    for branch, completion in zip(branches, found.branches, strict=True):
        if completion.status == "error":
            raise PromptError(f"{branch.text[:80]!r} was not decoded, and cannot be joined: leave it out")
        lines.append(f"{branch.text}{completion.raw}\n")
    return replace(trunk, decoded=(*trunk.decoded, Piece("".join(lines), False)))
