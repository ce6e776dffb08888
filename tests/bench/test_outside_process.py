"""Nobody is measured beside a rival that has not come to rest."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from bench.rivals import outside_process
from bench.rivals.outside_process import wait_until_idle
from pipelines.errors import UsageError

SPIN = "import time; end = time.monotonic() + {}\nwhile time.monotonic() < end: pass\ntime.sleep({})"


@contextmanager
def workers(*children: tuple[float, float]) -> Iterator[psutil.Process]:
    """A process that sleeps, with children that are busy for so many seconds, sleep for so many more, and end."""
    codes = [SPIN.format(*child) for child in children]
    code = (
        f"import subprocess, sys, time; [subprocess.Popen([sys.executable, '-c', x]) for x in {codes}]; time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as started:
        process = psutil.Process(started.pid)
        try:
            while sum(child.cpu_times().user > 0.2 for child in process.children()) < len(children):
                time.sleep(0.02)
            yield process
        finally:
            for each in (*process.children(recursive=True), process):
                each.kill()


def busy_seconds(process: psutil.Process) -> float:
    return sum(child.cpu_times().user for child in process.children())


def test_a_child_that_is_busy_is_waited_for() -> None:
    with workers((1.5, 60)) as process:
        wait_until_idle(process.pid)
        before = busy_seconds(process)
        time.sleep(0.5)
        assert busy_seconds(process) - before < 0.1


def test_one_that_ends_does_not_hide_another() -> None:
    started = time.monotonic()
    with workers((1, 0), (4, 60)) as process:
        wait_until_idle(process.pid)
        assert time.monotonic() - started > 3


def test_one_that_never_rests_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside_process, "_MOST_SECONDS_TO_REST", 1)
    with workers((60, 0)) as process, pytest.raises(UsageError, match="goes on working after its answer"):
        wait_until_idle(process.pid)


def test_one_that_is_gone_rests() -> None:
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    wait_until_idle(ended.pid)
