"""Preparation of prompts whose values are chosen among runs of their documents, before they are decoded.

Their tries (decoding/run_tries.py) take memory. A separate thread builds them for a few prompts at a time, shortly
before these are decoded, and they are freed when the prompts finish: a submission may have thousands of documents.
Callers take turns, a prompt each, so one with few prompts does not wait for all of another one's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from hpd_core.decoding.prompt import Prompt
from hpd_core.decoding.run_tries import RunTries

_MOST_PROMPTS = 32
_MOST_CHARACTERS = 4_000
"""Maximum characters of all texts prepared at once: later prompts wait for them."""

Prepared = tuple[Prompt, Exception | None]
"""Prompt that is ready, with None; or one whose preparation failed, with the error."""


class Preparation:
    """Queue that prepares prompts, those of each caller in order of arrival. `close` it.

    All but `has_ready` must be called from one thread.
    """

    def __init__(self, runs: RunTries | None, tell: Callable[[], None]) -> None:
        """Take None for `runs` if no prompt needs it. `tell` is called in another thread when prompts are ready."""
        self._runs, self._tell = runs, tell
        self._waiting: dict[object, deque[Prompt]] = {}  # by caller; whose turn is next comes first
        self._ready: deque[list[Prepared]] = deque()
        self._is_running = False
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hpd-prepare")

    def add(self, prompts: Iterable[Prompt]) -> list[Prompt]:
        """Queue prompts. Return those that need no preparation."""
        ready: list[Prompt] = []
        for prompt in prompts:
            if prompt.runs:
                self._waiting.setdefault(prompt.owner.caller, deque()).append(prompt)
            else:
                ready.append(prompt)
        return ready

    def go_on(self, *, is_needed: bool) -> None:
        """Prepare the next prompts if there is room or `is_needed`, unless others are under way or not yet taken."""
        if self._runs is None or self._is_running or self._ready or not self._waiting:
            return
        if is_needed or self._runs.has_room:
            self._is_running = True
            self._executor.submit(self._prepare, self._runs, self._next())

    @property
    def has_ready(self) -> bool:
        """Whether `take` would return prompts."""
        return bool(self._ready)

    def take(self) -> list[Prepared]:
        """Return the prompts that have become ready, and start on the next ones if there is room."""
        found: list[Prepared] = []
        while self._ready:
            found += self._ready.popleft()
            self._is_running = False
        self.go_on(is_needed=False)
        return found

    def _next(self) -> list[Prompt]:
        """Remove and return the next batch: one prompt of each caller in turn, at least one in all."""
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
                self._waiting[caller] = prompts  # after the others
        return some

    def clear(self) -> None:
        """Drop all waiting prompts."""
        self._waiting.clear()

    def close(self) -> None:
        """End its thread."""
        self._executor.shutdown()

    def _prepare(self, runs: RunTries, prompts: Sequence[Prompt]) -> None:
        self._ready.append([(prompt, _problem(runs, prompt)) for prompt in prompts])
        self._tell()


def _num_characters(prompt: Prompt) -> int:
    """Count the characters of the texts whose runs the prompt needs; 0 if its request is settled."""
    if prompt.owner.is_settled:
        return 0
    return sum(len(line) for runs in set(prompt.runs.values()) for line in runs.lines)


def _problem(runs: RunTries, prompt: Prompt) -> Exception | None:
    """Prepare a prompt unless its request is settled. Return the error, if any, so that it affects no other prompt."""
    try:
        if not prompt.owner.is_settled:
            runs.prepare(prompt)
    except Exception as error:
        return error
    return None
