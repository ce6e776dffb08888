"""Runs the parts in worker processes, one after the other: one that hangs or dies does not take the others along.

Parts of one process follow one another in it. It is ended when another process' part comes, so that the GPU is free; it
is killed, with all its children, when a part takes too long, and a new one does the rest.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

import psutil

from bench.gpu import plan
from bench.gpu.plan import FAULTS, SECONDS_TO_LOAD, GpuSettings, Part, PartError
from hpd_core.errors import HPDError
from pipelines.errors import UsageError

Outcome = Literal["ok", "failed", "too long", "died", "no time"]

_LINES_OF_A_CRASH = 12
_PATIENCE_ON_CPU = 5.0
_SECONDS_TO_START = 60.0
_SECONDS_FOR_STACKS = 0.5


@dataclass(frozen=True, slots=True)
class Done:
    """Outcome of a part; `message`: why it is not ok."""

    part: Part
    outcome: Outcome
    seconds: float
    message: str = ""


class Supervisor:
    """Runs parts; `say` is given every line for people, `keep` every row that was found."""

    def __init__(
        self,
        settings: GpuSettings,
        budget: float,
        say: Callable[[str], object],
        keep: Callable[[Mapping[str, Any]], object],
    ) -> None:
        """Start the clock. `budget`: seconds for all parts together."""
        self._settings, self._say, self._keep = settings, say, keep
        self._started = time.monotonic()
        self._budget = budget
        self._worker: _Worker | None = None

    @property
    def elapsed(self) -> float:
        """Return the seconds since it was made."""
        return time.monotonic() - self._started

    def run(self, parts: Sequence[Part]) -> list[Done]:
        """Run all of them, in this order."""
        done = []
        with self._ending_the_worker():
            for part in parts:
                left = self._budget - self.elapsed
                if left < part.seconds:
                    done.append(Done(part, "no time", 0.0, f"{left:.0f} s of {self._budget:.0f} are left"))
                else:
                    done.append(self._run(part, left))
                last = done[-1]
                self._say(
                    f"-- {part.name}: {last.outcome}, {last.seconds:.1f} s, at {self.elapsed:.0f} s"
                    + (f": {last.message}" if last.message else "")
                )
        return done

    def _run(self, part: Part, left: float) -> Done:
        started = time.monotonic()
        self._say(f"== {part.name}")
        limit = part.limit
        if self._worker is None or self._worker.name != part.process:
            self._end_worker()
            self._worker = _Worker(part.process, self._settings)
            limit += SECONDS_TO_LOAD if part.shape is not None else 0.0
        if self._settings.rehearsal and part.kind not in FAULTS:
            limit *= _PATIENCE_ON_CPU
        limit = min(limit, left)
        worker, message = self._worker, ""
        outcome: Outcome = "ok"
        try:
            for kind, content in worker.messages(part.name, limit):
                if kind == "say":
                    self._say(f"   {content}")
                elif kind == "row":
                    self._keep(content)
                elif content:
                    outcome, message = "failed", content
        except TimeoutError:
            outcome, message = "too long" if limit < left else "no time", f"ended after {limit:.0f} s"
        except (EOFError, ConnectionError):  # the second, if it died before it read what it was sent
            outcome = "died"
        if outcome not in ("ok", "failed"):
            code = self._end_worker()
            for line in worker.last_words():
                self._say(f"   | {line[:200]}")
            message = message or (f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}")
        elif not worker.is_sound:
            self._end_worker()
        return Done(part, outcome, time.monotonic() - started, message)

    def _end_worker(self) -> int:
        worker, self._worker = self._worker, None
        return worker.end() if worker is not None else 0

    @contextmanager
    def _ending_the_worker(self) -> Iterator[None]:
        """Leave no process behind, on SIGTERM neither."""
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            yield
        finally:
            self._end_worker()
            signal.signal(signal.SIGTERM, before)


class _Worker:
    """A process that measures, and tells what it says, what it found, and when a part is done."""

    def __init__(self, name: str, settings: GpuSettings) -> None:
        self.name, self.is_sound = name, True
        self._errors = Path(settings.out) / f"errors-{name.replace(', ', '-')}.txt"
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, settings, str(self._errors)), daemon=False)
        self._process.start()
        theirs.close()
        wait([self._connection, self._process.sentinel], _SECONDS_TO_START)  # for its imports

    def messages(self, part: str, seconds: float) -> Iterator[tuple[str, Any]]:
        """Hand it a part, and yield what it tells until that is done: ("say", line), ("row", row), ("done", problem).

        Raises:
            TimeoutError: it took more seconds.
            EOFError, ConnectionError: it ended.
        """
        deadline = time.monotonic() + seconds
        with suppress(ConnectionError):  # it has ended: so its messages do
            self._connection.send((part, seconds - _SECONDS_FOR_STACKS))
        while True:
            # Its children may hold the pipe open when it has ended.
            ready = wait([self._connection, self._process.sentinel], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            if self._connection not in ready:
                raise EOFError
            kind, content = self._connection.recv()
            if kind == "done":
                content, self.is_sound = content
            if kind != "ready":
                yield kind, content
            if kind == "done":
                return

    def last_words(self) -> list[str]:
        """Return the last lines of its standard error."""
        text = self._errors.read_text(errors="replace") if self._errors.exists() else ""
        return [line for line in text.splitlines() if line.strip()][-_LINES_OF_A_CRASH:]

    def end(self) -> int:
        """Kill it and its children, those in groups of their own as well (vLLM's); return its exit code."""
        family: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            family = [*process.children(recursive=True), process]
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self._process.join()
        self._connection.close()
        code = self._process.exitcode or 0
        self._process.close()
        return code


def _serve(connection: Connection, settings: GpuSettings, errors: str) -> None:
    """Measure the parts that come, until the process is ended. All output of libraries goes to the file `errors`."""
    with open(errors, "a", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    faulthandler.enable()

    def say(text: str) -> None:
        connection.send(("say", text))

    model: Any = None

    def rows(part: Part) -> Iterator[dict[str, Any]]:
        nonlocal model
        if part.kind in FAULTS:
            _go_wrong(part.kind)
        if part.kind in plan.OF_THE_CARD:
            from bench.gpu.card import exactness, speed_of_card

            yield from (
                exactness(part.limit, settings, say) if part.kind == plan.EXACT else speed_of_card(settings, say)
            )
            return
        if part.kind == plan.VLLM:
            from bench.gpu.vllm import run_vllm

            yield from run_vllm(part, settings, say)
            return
        from bench.gpu.loaded import Loaded
        from bench.gpu.parts import run_part

        model = model or Loaded.of_shape(part, settings, say)
        yield from run_part(model, part)

    connection.send(("ready", None))
    while True:
        name, seconds = connection.recv()
        problem = ""
        faulthandler.dump_traceback_later(max(0.1, seconds))
        try:
            for row in rows(plan.parse(name)):
                connection.send(("row", {"part": name, **row}))
        except (HPDError, UsageError, PartError) as error:
            problem = str(error)
        except Exception as error:
            traceback.print_exc()
            for line in [line for line in traceback.format_exc().splitlines() if line.strip()][-8:]:
                say(f"| {line[:220]}")
            problem = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}"
        faulthandler.cancel_dump_traceback_later()
        connection.send(("done", (problem, _is_sound())))


def _is_sound() -> bool:
    """Give memory back. Return whether the GPU can go on: after some errors nothing works any more."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return True
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError:
        return False
    return True


def _go_wrong(how: str) -> None:
    if how == "hang":
        time.sleep(3600)
    if how == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    raise RuntimeError("as a part fails")
