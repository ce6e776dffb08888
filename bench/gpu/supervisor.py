"""Runs the parts in worker processes, one after the other: one that hangs or dies does not take the others along.

Parts of one process follow one another in it. It is ended when another process' part comes, so that the GPU is free; it
is killed, with all its children, when a part takes too long, and a new one does the rest.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from bench.gpu.plan import FAULTS, SECONDS_TO_LOAD, Part

ROOT = Path(__file__).resolve().parents[2]

Outcome = Literal["ok", "failed", "too long", "died", "no time"]

_SECONDS_TO_START = 120.0
_LINES_OF_A_CRASH = 12
_PATIENCE_ON_CPU = 5.0


@dataclass(frozen=True, slots=True)
class GpuSettings:
    """What a worker must know.

    Attributes:
        device: "cuda", or "cpu" in a rehearsal.
        rehearsal: tiny models of the shapes' names.
        records: of a workload.
        tokenizer: a model's name or folder.
        vllm: the Python of an environment that has it.
        out: the folder for what is too long for a line.
    """

    device: str
    rehearsal: bool
    records: int
    tokenizer: str
    vllm: str | None
    out: str


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a part; `message`: why it is not ok."""

    part: Part
    outcome: Outcome
    seconds: float
    message: str = ""


class Worker:
    """A process that measures. It tells in JSON lines what it says, what it found, and when a part is done."""

    def __init__(self, process: str, settings: GpuSettings, errors: Path) -> None:
        """`process`: of the parts that it will be given; `errors`: where its standard error goes."""
        self.name, self._errors = process, errors
        self.has_run = False
        with errors.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-m", "bench.gpu.worker", process, json.dumps(asdict(settings))],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                errors="replace",
                start_new_session=True,  # a group of its own, children and all, to be killed together
            )
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, name=f"worker-{process}", daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(json.JSONDecodeError):
                self._messages.put(json.loads(line))
        self._messages.put(None)

    def ask(self, name: str) -> None:
        """Hands it a part."""
        assert self._process.stdin is not None
        self.has_run = True
        with suppress(OSError):  # it has ended: so its messages do
            print(name, file=self._process.stdin, flush=True)

    def messages(self, seconds: float) -> Iterator[dict[str, Any]]:
        """What it tells until it is done with what it was given.

        Raises:
            TimeoutError: it took more seconds.
            EOFError: it ended.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                message = self._messages.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError from None
            if message is None:
                raise EOFError
            yield message
            if message["type"] in ("ready", "done"):
                return

    def show_where_it_hangs(self) -> None:
        """Makes it write all its threads' stacks to its standard error (worker.py asks faulthandler to)."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)

    def last_words(self) -> list[str]:
        """The last lines of its standard error."""
        text = self._errors.read_text(errors="replace")
        return [line for line in text.splitlines() if line.strip()][-_LINES_OF_A_CRASH:]

    def end(self) -> int:
        """Kills it and its children, those in groups of their own as well (vLLM's); its exit code."""
        family: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(self._process.pid).children(recursive=True)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for child in family:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        return self._process.wait()


class Supervisor:
    """Runs parts; `say` is given every line for people, `keep` every row that was found."""

    def __init__(
        self,
        settings: GpuSettings,
        budget: float,
        say: Callable[[str], object],
        keep: Callable[[Mapping[str, Any]], object],
    ) -> None:
        """`budget`: seconds for all together, counted from now."""
        self._settings, self._say, self._keep = settings, say, keep
        self._started = time.monotonic()
        self._budget = budget
        self._worker: Worker | None = None
        self._next: Worker | None = None  # that is being started while another one works

    @property
    def elapsed(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self._started

    def run(self, parts: Sequence[Part]) -> list[Done]:
        """All of them, in this order."""
        done = []
        with self._ending_workers():
            for number, part in enumerate(parts):
                left = self._budget - self.elapsed
                if left < part.seconds:
                    done.append(Done(part, "no time", 0.0, f"{left:.0f} s of {self._budget:.0f} are left"))
                else:
                    later = [item.process for item in parts[number + 1 :] if item.process != part.process]
                    done.append(self._run(part, left, later[0] if later else None))
                last = done[-1]
                self._say(
                    f"-- {part.name}: {last.outcome}, {last.seconds:.1f} s, at {self.elapsed:.0f} s"
                    + (f": {last.message}" if last.message else "")
                )
        return done

    def _run(self, part: Part, left: float, later: str | None) -> Done:
        started = time.monotonic()
        self._say(f"== {part.name}")
        outcome: Outcome
        try:
            worker = self._worker_for(part.process, min(_SECONDS_TO_START, left))
            limit = part.limit + (0.0 if worker.has_run or part.shape is None else SECONDS_TO_LOAD)
            if self._settings.rehearsal and part.kind not in FAULTS:
                limit *= _PATIENCE_ON_CPU
            worker.ask(part.name)
            if later is not None and self._next is None:
                self._next = Worker(later, self._settings, self._errors(later))  # imports while this one works
            outcome, message = self._listen(worker, min(limit, self._budget - self.elapsed))
        except TimeoutError:
            outcome, message = "too long", "its process did not start"
        except EOFError:
            outcome, message = "died", "its process did not start"
        if outcome == "too long" and self.elapsed >= self._budget:
            outcome = "no time"
        if outcome in ("too long", "died", "no time"):
            message = self._bury(message)
        return Done(part, outcome, time.monotonic() - started, message)

    def _listen(self, worker: Worker, limit: float) -> tuple[Outcome, str]:
        try:
            for message in worker.messages(limit):
                if message["type"] == "say":
                    self._say(f"   {message['text']}")
                elif message["type"] == "row":
                    self._keep(message["row"])
                elif message["type"] == "done":
                    if message["ends"]:
                        self._end_worker()
                    return ("failed" if message["problem"] else "ok"), message["problem"]
        except TimeoutError:
            worker.show_where_it_hangs()
            return "too long", f"ended after {limit:.0f} s"
        except EOFError:
            return "died", ""
        raise AssertionError("messages end with 'done'")

    def _worker_for(self, process: str, seconds: float) -> Worker:
        if self._worker is not None and self._worker.name == process:
            return self._worker
        self._end_worker()
        if self._next is not None and self._next.name != process:
            self._next.end()
            self._next = None
        self._worker = self._next or Worker(process, self._settings, self._errors(process))
        self._next = None
        for _ in self._worker.messages(seconds):
            pass
        return self._worker

    def _errors(self, process: str) -> Path:
        return Path(self._settings.out) / f"errors-{process.replace(', ', '-')}.txt"

    def _bury(self, message: str) -> str:
        """Ends the worker, shows its last words; what became of it."""
        worker = self._worker
        assert worker is not None
        code = worker.end()
        self._worker = None
        for line in worker.last_words():
            self._say(f"   | {line[:200]}")
        return message or (f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}")

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    @contextmanager
    def _ending_workers(self) -> Iterator[None]:
        """No process is left behind, on SIGTERM neither."""

        def stop(*_: object) -> None:
            raise SystemExit(143)

        before = signal.signal(signal.SIGTERM, stop) if threading.current_thread() is threading.main_thread() else None
        try:
            yield
        finally:
            self._end_worker()
            if self._next is not None:
                self._next.end()
                self._next = None
            if before is not None:
                signal.signal(signal.SIGTERM, before)
