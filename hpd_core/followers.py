"""Both ends of the pipes between the leader of a tensor-parallel engine and the processes that follow it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import traceback
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from hpd_core import models, ranks
from hpd_core.errors import EngineError, EngineMemoryError, HPDError, ModelError
from hpd_core.memory import is_out_of_memory
from hpd_core.ranks import Ranks, Setup, SharedDecoder, abort, take_device
from hpd_core.tokenization import SegmentTokenizer

HOST = "127.0.0.1"

_GRACE_SECONDS = 10.0
"""For a process that was told to end."""

_NOTICE_SECONDS = 2.0
"""After something went wrong, for the news that it was because another process died."""

HERE, LOADED, READY = "here", "loaded", "ready"
_WRONG, _FULL, _BROKEN = "wrong ", "full ", "broken "
"""What a process says: it has its device; its part; it is proved; why it ends: the user's fault, too little memory, or
anything else."""


class Followers:
    """The processes of the ranks from 1 on, as rank 0 sees them. `close` them.

    A thread for each listens to what it says and sees it die; with one, all are ended: those that wait for it would
    wait for ever, and rank 0 for them.
    """

    def __init__(self, setup: Setup) -> None:
        """Starts them; `setup` is rank 0's."""
        self._on_gpus = models.resolve_device(setup.config).type == "cuda"
        self._changed = threading.Condition()
        self._said: Counter[str] = Counter()
        self._failure: HPDError | None = None
        # What the first of those said that may only have noticed that another was gone. Who fails in earnest says so
        # before its connections close, so it is the first, unless the cause is one that died without a word.
        self._suspicion: HPDError | None = None
        self._is_closed = False
        self._processes: list[subprocess.Popen[bytes]] = []
        root = str(Path(__file__).parents[1])
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)]),
            "TQDM_DISABLE": "1",  # the leader shows that a model is loaded
        }
        with ExitStack() as stack:
            stack.callback(self.close)
            for rank in range(1, setup.config.tensor_parallel):
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", "from hpd_core.followers import follow; follow()"],
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
        """Until all (or so many) have said it. Raises what has gone wrong in one of them."""
        count = len(self._processes) if count is None else count
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._said[word] >= count)
        self.check()

    def load(self) -> None:
        """Has them load their parts, one after the other: a node's memory need not hold several copies of the model."""
        for count, process in enumerate(self._processes, start=1):
            self._send(process, ("load", ()))
            self.wait_for(LOADED, count)

    def tell(self, name: str, *arguments: Any) -> None:
        """Has them call a method of their decoder. Whether they are still there is seen in the next step."""
        for process in self._processes:
            self._send(process, (name, arguments))

    def check(self) -> None:
        """Raises `EngineError`, or the `ModelError` of one that does not start, if they are gone."""
        if self._failure is not None:
            raise self._failure

    def end_after(self, error: BaseException) -> HPDError | None:
        """Ends them, after something failed in rank 0. Returns the reason where it was one of them."""
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
        """Ends them."""
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
            if word.startswith(_WRONG):
                reason = ModelError(word.removeprefix(_WRONG))
            elif word.startswith(_FULL):
                reason = EngineMemoryError(f"{_name(rank)} failed: {word.removeprefix(_FULL)}; load the engine anew")
            elif word.startswith(_BROKEN):
                reason = EngineError(f"{_name(rank)} failed: {word.removeprefix(_BROKEN)}; load the engine anew")
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


def follow() -> None:
    """The life of a process of rank 1 or higher: loads its part, then does what it is told."""
    # The pipe to the leader is for a few words; what others print belongs into the log.
    answer = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def say(word: str) -> None:
        answer.write(" ".join(word.split()).encode() + b"\n")

    try:
        setup: Setup = pickle.load(sys.stdin.buffer)
        orders: SimpleQueue[tuple[str, tuple[Any, ...]]] = SimpleQueue()
        threading.Thread(target=_listen, args=[orders], name="hpd-listen", daemon=True).start()
        take_device(setup.config, setup.rank)
        store = TCPStore(HOST, setup.port, setup.config.tensor_parallel, False, ranks.LONGEST_WAIT)
        # If one ended while they meet, rank 0 would wait for it, and could not meet others after that: torch numbers
        # the tries of a process. So all else comes before.
        say(HERE)
        place = Ranks(setup, store)
        tokenizer = models.load_tokenizer(setup.model, setup.config)
        orders.get()  # its turn to load
        model = place.load(tokenizer)[0].model
        say(LOADED)
        models.attach(model)
        endings = models.endings(model, SegmentTokenizer(tokenizer))
        decoder = SharedDecoder(place, model, endings, setup.config)
        models.run_probe(model, tokenizer, decoder)
        decoder.fit(setup.config)
        say(READY)
        while True:
            name, arguments = orders.get()
            getattr(decoder, name)(*arguments)
    except BaseException as error:
        traceback.print_exc()
        kind = _FULL if is_out_of_memory(error) else _BROKEN
        say(f"{_WRONG}{error}" if isinstance(error, HPDError) else f"{kind}{type(error).__name__}: {error}")
        os._exit(1)  # not in order: a thread reads from the pipe


def _listen(orders: SimpleQueue[tuple[str, tuple[Any, ...]]]) -> None:
    try:
        while True:
            orders.put(pickle.load(sys.stdin.buffer))
    except EOFError:
        pass  # the leader is gone, or has told all there was: whatever the main thread waits for will not come
    finally:
        os._exit(0)
