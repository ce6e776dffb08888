"""Who may drive a run. Several drivers of one process stand for drivers on several machines."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from pipelines.errors import RunError
from pipelines.store import lease as lease_module
from pipelines.store.folders import Folder
from pipelines.store.lease import RunLease
from tests.pipelines.commands import wait_until

SECONDS = 0.3


def console() -> Console:
    return Console(file=io.StringIO())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "out"))


def latest(folder: Folder) -> int:
    return max((int(name.removesuffix(".json")) for name in folder.list("_lease")), default=0)


def lasting(folder: Folder, seconds: float = SECONDS) -> RunLease:
    """A lease that is renewed three times in `seconds` and would not run out for an hour: whatever a machine does to
    the thread that renews it, nobody can take it for a dead driver's."""
    lease = RunLease(folder, seconds)
    lease._owner["seconds"] = 3600.0
    return lease


def silent(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> RunLease:
    """The lease of a driver that was killed after it had taken it, on another machine."""
    with monkeypatch.context() as patch:
        patch.setattr(lease_module, "_host", lambda: "elsewhere/1")
        dead = RunLease(folder, SECONDS)
    dead._take(console())
    return dead


def test_a_lease_is_taken_renewed_and_given_back(folder: Folder) -> None:
    with RunLease(folder, SECONDS).hold(console()) as lease:
        wait_until(lambda: latest(folder) >= 3)
        lease.check()
        assert len(folder.list("_lease")) <= 2, "old numbers are left"
    said = io.StringIO()
    with RunLease(folder, SECONDS).hold(Console(file=said)):
        assert said.getvalue() == "", "it waited for a lease that was given back"


def test_a_second_driver_is_refused_while_the_first_lives(folder: Folder) -> None:
    with lasting(folder).hold(console()) as lease:
        with (
            pytest.raises(RunError, match=rf"another driver \(process {os.getpid()} on .*\) is working on .*out\. "),
            RunLease(folder, SECONDS).hold(console()),
        ):
            pass
        lease.check()


def test_a_successor_of_a_silent_driver_waits_and_takes_over(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = silent(folder, monkeypatch)
    start, said = time.monotonic(), io.StringIO()
    with RunLease(folder, SECONDS).hold(Console(file=said, width=200)) as lease:
        assert time.monotonic() - start >= SECONDS
        assert "on elsewhere) held this run last. Waiting up to 0.3 s" in said.getvalue()
        # The silent one was only asleep: it finds out, and takes nothing back.
        assert not dead._advance("held")
        lease.check()


NEEDS_PROC = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="no /proc tells when processes began")


@NEEDS_PROC
def test_a_driver_that_nobody_has_waited_for_is_gone(folder: Folder) -> None:
    """In a container whose first process does not care for the others', a killed one stays in the table for ever."""
    process = subprocess.Popen(["sleep", "600"])
    try:
        driver = RunLease(folder, 60)
        driver._owner |= {"pid": process.pid, "started": lease_module._started(process.pid)}
        driver._take(console())
        assert RunLease(folder, 1).holder()[1] is True
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert RunLease(folder, 1).holder()[1] is False
        RunLease(folder, 60)._take(console())
    finally:
        process.kill()
        process.wait()


@NEEDS_PROC
def test_another_process_with_the_drivers_number_is_not_the_driver(folder: Folder) -> None:
    """A container that is started anew gives the same numbers to its processes."""
    gone = RunLease(folder, 3600)
    gone._owner["started"] -= 1
    gone._take(console())
    assert RunLease(folder, 1).holder()[1] is False
    RunLease(folder, 60)._take(console())


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"owner": '])
def test_a_damaged_lease_is_nobodys(folder: Folder, content: bytes) -> None:
    folder.write("_lease/00000007.json", content)
    assert RunLease(folder, SECONDS).holder()[1] is False
    with lasting(folder).hold(console()):
        assert latest(folder) == 8


def test_a_driver_that_slept_past_its_lease_stops(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = RunLease(folder, SECONDS)
    asleep = threading.Event()
    renew = sleeper._renew_until_stopped

    def renew_late() -> None:
        asleep.wait()
        renew()

    monkeypatch.setattr(sleeper, "_renew_until_stopped", renew_late)
    with sleeper.hold(console()):
        successor = RunLease(folder, SECONDS)
        try:
            with successor.hold(console()) as lease:
                wait_until(lambda: latest(folder) >= 3)  # the number after the sleeper's is gone
                asleep.set()
                wait_until(lambda: sleeper.is_lost)
                with pytest.raises(RunError, match=r"has taken over .*; this one stops"):
                    sleeper.check()
                lease.check()
        finally:
            asleep.set()
    assert json.loads(folder.read(f"_lease/{folder.list('_lease')[-1]}"))["state"] == "free"


def test_of_many_that_come_at_once_one_gets_it(folder: Folder) -> None:
    count = 6
    inside, most, refused = [0], [0], [0]
    barrier, guard = threading.Barrier(count), threading.Lock()

    @contextlib.contextmanager
    def counted() -> Iterator[None]:
        with guard:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        try:
            yield
        finally:
            with guard:
                inside[0] -= 1

    def drive() -> None:
        barrier.wait()
        try:
            with lasting(folder).hold(console()), counted():
                # However late the others are: the run is taken until all of them have seen it.
                wait_until(lambda: refused[0] == count - 1 or most[0] > 1)
        except RunError:
            with guard:
                refused[0] += 1

    threads = [threading.Thread(target=drive) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] == 1
    assert refused[0] == count - 1


def test_a_renewal_that_fails_is_repeated(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    create: Callable[[str, bytes], bool] = folder.create
    failures = iter([OSError("no network")] * 2)

    def failing(name: str, data: bytes) -> bool:
        error = next(failures, None) if int(name[-13:-5]) > 1 else None
        if error is not None:
            raise error
        return create(name, data)

    monkeypatch.setattr(folder, "create", failing)
    with RunLease(folder, SECONDS).hold(console()) as lease:
        wait_until(lambda: latest(folder) > 1)
        lease.check()
        assert next(failures, None) is None
