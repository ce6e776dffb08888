"""Prompts whose values are chosen among runs of their documents, before they are decoded.

What that takes memory for (decoding/run_tries.py) is made a few prompts at a time in a thread of its own, shortly
before they are decoded, and is given back when they are finished: a submission may have thousands of documents.
Callers take turns, a prompt each: one that has few does not wait until those of another one are prepared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from hpd_core.decoding.prompt import Prompt
from hpd_core.decoding.run_tries import RunTries

_MOST_PROMPTS = 32
_MOST_CHARACTERS = 4_000
"""Of all texts that are prepared at once: whoever comes meanwhile waits for them."""

Prepared = tuple[Prompt, Exception | None]
"""A prompt that is ready; or that is not, and why."""


class Preparation:
    """Prepares prompts, of each caller in the order in which they came. `close` it. All but `has_ready` is for one
    thread."""

    def __init__(self, runs: RunTries | None, tell: Callable[[], None]) -> None:
        """`runs`: None where no prompt needs it. `tell` is called when prompts are ready, in another thread."""
        self._runs, self._tell = runs, tell
        self._waiting: dict[object, deque[Prompt]] = {}  # by caller; whose turn is next comes first
        self._ready: deque[list[Prepared]] = deque()
        self._is_running = False
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hpd-prepare")

    def add(self, prompts: Iterable[Prompt]) -> list[Prompt]:
        """Queues prompts. Returns those that need no preparation."""
        ready: list[Prompt] = []
        for prompt in prompts:
            if prompt.runs:
                self._waiting.setdefault(prompt.owner.task.caller, deque()).append(prompt)
            else:
                ready.append(prompt)
        return ready

    def go_on(self, *, is_needed: bool) -> None:
        """Begins with the next prompts, if there is room for them; if they are needed at once, in any case."""
        if self._runs is None or self._is_running or self._ready or not self._waiting:
            return
        if is_needed or self._runs.has_room:
            self._is_running = True
            self._executor.submit(self._prepare, self._runs, self._next())

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

    def _next(self) -> list[Prompt]:
        """What is prepared at once: a prompt of each caller in turn, and at least one."""
        some: list[Prompt] = []
        room = _MOST_CHARACTERS
        while self._waiting and len(some) < _MOST_PROMPTS:
            caller, prompts = next(iter(self._waiting.items()))
            size = _num_characters(prompts[0])
            if some and size > room:
                break
            room -= size
            some.append(prompts.popleft())
            del self._waiting[caller]
            if prompts:
                self._waiting[caller] = prompts  # behind the others
        return some

    def clear(self) -> None:
        """Forgets all that wait."""
        self._waiting.clear()

    def close(self) -> None:
        """Ends its thread."""
        self._executor.shutdown()

    def _prepare(self, runs: RunTries, prompts: Sequence[Prompt]) -> None:
        self._ready.append([(prompt, _problem(runs, prompt)) for prompt in prompts])
        self._tell()


def _num_characters(prompt: Prompt) -> int:
    """Of the texts whose runs are found for it; none if nobody waits for it any more."""
    if prompt.owner.task.is_settled:
        return 0
    return sum(len(line) for runs in set(prompt.runs.values()) for line in runs.lines)


def _problem(runs: RunTries, prompt: Prompt) -> Exception | None:
    """Prepares a prompt that somebody waits for. What goes wrong with it concerns no other one."""
    try:
        if not prompt.owner.task.is_settled:
            runs.prepare(prompt)
    except Exception as error:
        return error
    return None
