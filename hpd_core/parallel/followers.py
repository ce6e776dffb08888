"""Leader's end of the pipes to the processes of a tensor-parallel engine; theirs is follower_process.py."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpd_core.errors import EngineError, EngineMemoryError, HPDError, ModelError
from hpd_core.models import loading
from hpd_core.parallel.tensor_parallel import BROKEN, FULL, LOADED, WRONG, Setup, abort

_GRACE_SECONDS = 10.0
"""Seconds for a process to end after it was told to."""

_NOTICE_SECONDS = 2.0
"""Seconds to wait after an error for the news that another process's death caused it."""


class Followers:
    """Processes of the ranks from 1 on, as rank 0 sees them. `close` them.

    One thread per process reads its messages and notices its death. If one dies, all are killed: those that wait for it
    would wait forever, and rank 0 for them.
    """

    def __init__(self, setup: Setup) -> None:
        """Start them; `setup` is rank 0's."""
        self._on_gpus = loading.resolve_device(setup.config).type == "cuda"
        self._changed = threading.Condition()
        self._said: Counter[str] = Counter()
        self._failure: HPDError | None = None
        # What the first of those said that may only have noticed that another was gone. Who fails in earnest says so
        # before its connections close, so it is the first, unless the cause is one that died without a word.
        self._suspicion: HPDError | None = None
        self._is_closed = False
        self._processes: list[subprocess.Popen[bytes]] = []
        root = str(Path(__file__).parents[2])
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)]),
            "TQDM_DISABLE": "1",  # the leader shows that a model is loaded
        }
        with ExitStack() as stack:
            stack.callback(self.close)
            for rank in range(1, setup.config.tensor_parallel):
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", "from hpd_core.parallel.follower_process import follow; follow()"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=environment,
                    start_new_session=True,  # Ctrl-C is for the leader, which ends them
                )
                self._processes.append(process)
                threading.Thread(target=self._watch, args=[rank, process], name="hpd-watch", daemon=True).start()
                self._send(process, replace(setup, rank=rank))
            stack.pop_all()

    def wait_for(self, word: str, count: int | None = None) -> None:
        """Wait until all (or `count`) processes have sent `word`. Raise the error of one that failed."""
        count = len(self._processes) if count is None else count
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._said[word] >= count)
        self.check()

    def load(self) -> None:
        """Make them load their parts, one after the other: a node's memory need not hold several copies of the
        model.
        """
        for count, process in enumerate(self._processes, start=1):
            self._send(process, ("load", ()))
            self.wait_for(LOADED, count)

    def tell(self, name: str, *arguments: Any) -> None:
        """Make them call a method of their decoder. The next step detects whether they still exist."""
        for process in self._processes:
            self._send(process, (name, arguments))

    def check(self) -> None:
        """Raise `EngineError`, or the `ModelError` of one that does not start, if they are gone."""
        if self._failure is not None:
            raise self._failure

    def end_after(self, error: BaseException) -> HPDError | None:
        """End them, after something failed in rank 0. Return the reason if it was one of them."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure, _NOTICE_SECONDS)
            reason = self._failure = self._failure or self._suspicion
            if reason is None:
                self._failure = EngineError(
                    f"the tensor-parallel engine has ended ({type(error).__name__}: {error}); load it anew"
                )
        self._end()
        return reason

    def close(self) -> None:
        """End them."""
        self._is_closed = True
        self._end()

    def _end(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
            process.kill()
            process.wait()

    def _send(self, process: subprocess.Popen[bytes], message: Any) -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError, ValueError):  # that it has ended is seen where something is wanted of it
            pickle.dump(message, process.stdin)
            process.stdin.flush()

    def _watch(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        reason: HPDError | None = None
        may_be_a_consequence = False
        for line in process.stdout:
            word = line.decode(errors="replace").strip()
            if word.startswith(WRONG):
                reason = ModelError(word.removeprefix(WRONG))
            elif word.startswith(FULL):
                reason = EngineMemoryError(f"{_name(rank)} failed: {word.removeprefix(FULL)}; load the engine anew")
            elif word.startswith(BROKEN):
                reason = EngineError(f"{_name(rank)} failed: {word.removeprefix(BROKEN)}; load the engine anew")
                may_be_a_consequence = len(self._processes) > 1
            with self._changed:
                if may_be_a_consequence:
                    self._suspicion = self._suspicion or reason
                self._said[word] += 1
                self._changed.notify_all()
        code = process.wait()
        with self._changed:
            if may_be_a_consequence:
                # It may have waited for another one that died. That one's thread has seen it or is about to, and knows
                # the reason.
                self._changed.wait_for(lambda: self._failure, _NOTICE_SECONDS)
                reason = self._suspicion
            if self._is_closed or self._failure is not None:
                return
            self._failure = reason or EngineError(f"{_name(rank)} died (exit code {code}); load the engine anew")
            self._changed.notify_all()
        for other in self._processes:
            other.kill()
        if self._on_gpus:
            abort()


def _name(rank: int) -> str:
    return f"rank {rank} of the tensor-parallel engine"
