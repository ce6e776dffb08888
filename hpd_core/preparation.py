"""Prompts whose values are chosen among runs of their documents, before they are decoded.

What that takes memory for (decoding/run_tries.py) is made a few prompts at a time in a thread of its own, shortly
before they are decoded, and is given back when they are finished: a submission may have thousands of documents.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from hpd_core.decoding.prompt import Prompt
from hpd_core.decoding.run_tries import RunTries

_AT_ONCE = 32

Prepared = tuple[Prompt, Exception | None]
"""A prompt that is ready; or that is not, and why."""


class Preparation:
    """Prepares prompts in the order in which they came. `close` it. All but `has_ready` is for one thread."""

    def __init__(self, runs: RunTries | None, tell: Callable[[], None]) -> None:
        """`runs`: None where no prompt needs it. `tell` is called when prompts are ready, in another thread."""
        self._runs, self._tell = runs, tell
        self._waiting: deque[Prompt] = deque()
        self._ready: deque[list[Prepared]] = deque()
        self._is_running = False
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hpd-prepare")

    def add(self, prompts: Iterable[Prompt]) -> list[Prompt]:
        """Queues prompts. Returns those that need no preparation."""
        ready: list[Prompt] = []
        for prompt in prompts:
            (self._waiting if prompt.runs else ready).append(prompt)
        return ready

    def go_on(self, *, is_needed: bool) -> None:
        """Begins with the next prompts, if there is room for them; if they are needed at once, in any case."""
        if self._runs is None or self._is_running or self._ready or not self._waiting:
            return
        if is_needed or self._runs.has_room:
            some = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
            self._is_running = True
            self._executor.submit(self._prepare, self._runs, some)

    @property
    def has_ready(self) -> bool:
        """Whether `take` has something."""
        return bool(self._ready)

    def take(self) -> list[Prepared]:
        """What has become ready; goes on with the next ones."""
        found: list[Prepared] = []
        while self._ready:
            found += self._ready.popleft()
            self._is_running = False
        self.go_on(is_needed=False)
        return found

    def clear(self) -> None:
        """Forgets all that wait."""
        self._waiting.clear()

    def close(self) -> None:
        """Ends its thread."""
        self._executor.shutdown()

    def _prepare(self, runs: RunTries, prompts: Sequence[Prompt]) -> None:
        self._ready.append([(prompt, _problem(runs, prompt)) for prompt in prompts])
        self._tell()


def _problem(runs: RunTries, prompt: Prompt) -> Exception | None:
    """Prepares a prompt that somebody waits for. What goes wrong with it concerns no other one."""
    try:
        if not prompt.owner.task.is_settled:
            runs.prepare(prompt)
    except Exception as error:
        return error
    return None
