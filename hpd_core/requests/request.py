"""One call of the engine on its way: the prompts that it needs, and the future of the results made from them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpd_core.decoding.prompt import BranchEnd, Prompt, Slot
from hpd_core.requests.extraction_future import ExtractionMetrics, MeasuredFuture
from hpd_core.text.tokenization import SegmentTokenizer


@dataclass(eq=False)
class Request:
    """Work that one caller waits for.

    Attributes:
        prompts: prompts to decode, which belong to this request alone.
        future: future of the results.
        make_results: makes the results, outside of the decoding thread, when all prompts are finished.
        caller: whom it is for: requests of one caller take turns (requests/preparation.py) as if they were one.
        finished: prompts that are decoded, as they ended.
    """

    prompts: Sequence[Prompt]
    future: MeasuredFuture[Any]
    make_results: Callable[[Request], Any]
    caller: object = field(default_factory=object)
    finished: list[Prompt] = field(default_factory=list)
    _settled: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        # Work is shared with others, so it cannot be called back.
        self.future.set_running_or_notify_cancel()
        for prompt in self.prompts:
            prompt.owner = self

    @property
    def metrics(self) -> ExtractionMetrics:
        """Cost of the request, as its future tells it."""
        return self.future.metrics

    def settle(self, result: Any = None, error: BaseException | None = None) -> bool:
        """Give the future a result or an error. Return False if it already has one."""
        if not self._settled.acquire(blocking=False):
            return False
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)
        return True

    @property
    def is_settled(self) -> bool:
        """Whether the request has its result or error, so that its prompts are not needed any more."""
        return self._settled.locked()

    def values(self, segments: SegmentTokenizer) -> Iterator[tuple[Prompt, list[tuple[Slot, BranchEnd, str]]]]:
        """Yield the finished prompts, each with its values: what was asked, how it ended and its text."""
        for prompt in self.finished:
            yield prompt, list(zip(prompt.slots, prompt.ends, segments.decode(prompt.tokens), strict=True))

    def count(self, num_records: int, num_errors: int) -> None:
        """Complete the metrics from all finished prompts; to be called once."""
        metrics, prefix_tokens = self.metrics, 0
        for prompt in self.finished:
            num_keys = prompt.layout.num_key_tokens
            metrics.value_tokens += sum(map(len, prompt.logprobs))
            metrics.scored_tokens += prompt.num_scored_tokens
            metrics.key_tokens += num_keys
            metrics.document_tokens += prompt.num_own_tokens - num_keys
            metrics.document_tokens_shared += prompt.num_shared_tokens
            prefix_tokens += prompt.layout.num_prefix_tokens
        # What was computed and lost again, for want of memory, counts twice.
        metrics.document_tokens_shared = max(0, metrics.document_tokens_shared)
        metrics.prefix_tokens_reused = max(0, prefix_tokens - metrics.prefix_tokens_computed)
        metrics.num_records, metrics.num_errors = num_records, num_errors
