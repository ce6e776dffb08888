"""A rival that has an environment and a process of its own (`make rivals`), driven over its standard input."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import psutil

from bench.rivals.resident_memory import reset_peak, status
from pipelines.console.exit_codes import heed_termination
from pipelines.errors import UsageError

_SECONDS_OF_A_LOOK = 0.2
_IDLE_SHARE = 0.1
"""Of a core. Less is no load."""
_MOST_SECONDS_TO_REST = 60


class OutsideProcess:
    """A script that has loaded a model once; it sleeps between runs.

    The script gets a JSON file with its work, says one JSON line when it is ready, reads names of runs line by line and
    answers each with a JSON line.

    Attributes:
        facts: what it says when it is ready; with `ready_bytes`, its resident memory, if that is measured.
    """

    def __init__(
        self, name: str, option: str, python: str, script: str, work: Mapping[str, Any], *, measures_memory: bool = True
    ) -> None:
        """Starts it and waits until it is ready.

        Args:
            name: of the rival.
            option: of the benchmark, by which `python` was named.
            python: the interpreter of its environment.
            script: a file beside this one.
            work: what the script is to read; the folder `scratch`, which goes when the process ends, is added.

        Raises:
            UsageError: it does not start.
        """
        self._name = name
        self._scratch = tempfile.TemporaryDirectory(prefix="hpd-rival-")
        path = Path(self._scratch.name, "work.json")
        path.write_text(json.dumps({**work, "scratch": self._scratch.name}), encoding="utf-8")
        self._log = Path(self._scratch.name, "log.txt")
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [python, "-P", str(Path(__file__).with_name(script)), str(path)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
        except OSError as error:
            raise UsageError(f"{option} {python}: {error.strerror}; `make rivals` installs {name}") from error
        # It has a session of its own, and would outlive a benchmark that is ended.
        heed_termination()
        atexit.register(self.close)
        try:
            self.facts = self._answer()
            if measures_memory and self._reset_peaks():
                self.facts["ready_bytes"] = self._resident("VmRSS")
        except BaseException:
            self.close()
            raise

    def ask(self, run: str) -> tuple[dict[str, Any], int | None]:
        """One run of that name, and its resident memory at the highest, above what it held when it was ready.

        Returns when nothing of the rival is running any more. The memory is None where it is not measured.

        Raises:
            UsageError: it has ended.
        """
        assert self._process.stdin is not None
        is_measured = "ready_bytes" in self.facts and self._reset_peaks()
        with suppress(BrokenPipeError):  # then there is no answer
            print(run, file=self._process.stdin, flush=True)
        answer = self._answer()
        return answer, self._resident("VmHWM") - self.facts["ready_bytes"] if is_measured else None

    def _reset_peaks(self) -> bool:
        return all(reset_peak(process.pid) for process in _family(self._process.pid))

    def _resident(self, name: Literal["VmRSS", "VmHWM"]) -> int:
        """Of all its processes; peaks added up, though they may be at different times."""
        total = 0
        for process in _family(self._process.pid):
            with suppress(OSError):  # it has ended, and holds nothing
                total += status(process.pid, name)
        return total

    def close(self) -> None:
        """Ends it."""
        atexit.unregister(self.close)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._scratch.cleanup()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line.startswith("{"):
            wait_until_idle(self._process.pid)
            answer: dict[str, Any] = json.loads(line)
            return answer
        self._process.kill()
        self._process.wait()
        last = [text for text in self._log.read_text(errors="replace").splitlines() if text.strip()][-5:]
        hint = f"\n`make rivals` installs {self._name}" if any("ModuleNotFoundError" in text for text in last) else ""
        raise UsageError(f"{self._name} has ended:\n  " + "\n  ".join(last) + hint)


def wait_until_idle(pid: int) -> None:
    """Returns when a process and its children use no processor any more.

    vLLM's workers look for the next request in a busy loop for seconds, on cores that the next contender is to have.

    Raises:
        UsageError: they go on for a minute.
    """
    deadline = time.monotonic() + _MOST_SECONDS_TO_REST
    before = _processor_seconds(pid)
    while time.monotonic() < deadline:
        time.sleep(_SECONDS_OF_A_LOOK)
        now = _processor_seconds(pid)
        used = sum(seconds - before.get(process, 0.0) for process, seconds in now.items())
        if used < _IDLE_SHARE * _SECONDS_OF_A_LOOK:
            return
        before = now
    raise UsageError(f"process {pid} goes on working after its answer: whoever comes next would be measured beside it")


def _processor_seconds(pid: int) -> dict[psutil.Process, float]:
    """Of each that is there; one that has ended takes its seconds with it."""
    found = {}
    for process in _family(pid):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found[process] = times.user + times.system
    return found


def _family(pid: int) -> list[psutil.Process]:
    """The process and its children; none that has ended."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    return []
