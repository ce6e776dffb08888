"""Lease in the output folder that keeps one driver per run, and that a dead driver's successor can take.

    _lease/00000007.json    the latest number counts: who holds the run, or that it is free

Taking, renewing and releasing all write the next number, only if it does not exist: of several drivers, one wins. A
driver that finds a higher number than its own has lost the lease. Clocks need not agree: a lease has expired if it was
not renewed for its duration, measured by the driver that waits.

The lease saves money, not rows: two drivers on one run do the work twice and commit it once (store/ledger.py).
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from pipelines.errors import RunError
from pipelines.store.folders import Folder

logger = logging.getLogger(__name__)

_FOLDER = "_lease"
_OBJECT_NAME = re.compile(r"\d{8}\.json")
_KEPT = 3
"""Number of entries below the latest that are removed at a time."""
_NOBODYS = {"owner": "", "state": "free"}
"""Entry that stands for a damaged one: at worst two drivers do the same work, and it is committed once."""


class RunLease:
    """Lease of one driver on one run."""

    def __init__(self, folder: Folder, seconds: float) -> None:
        self._folder = folder
        self._seconds = seconds
        me = {"host": _host(), "pid": os.getpid(), "started": _started(os.getpid())}
        self._owner = {"owner": secrets.token_hex(8), **me, "seconds": seconds}
        self._number = 0
        self._taken_by: dict[str, Any] | None = None
        self._stop = threading.Event()

    @contextmanager
    def hold(self, console: Console) -> Iterator[RunLease]:
        """Take the lease and renew it until the block ends. Raise `RunError` if another driver is active."""
        self._take(console)
        thread = threading.Thread(target=self._renew_until_stopped, name="lease", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()
            # Who cannot give it back lets it run out.
            with suppress(OSError):
                if self._taken_by is None:
                    self._advance("free")

    def holder(self) -> tuple[str | None, bool]:
        """Return who held the run last, and whether it still does. Wait up to the lease's duration for a renewal."""
        number, entry = self._latest()
        if entry is None:
            return None, False
        if entry["state"] == "free" or _is_dead(entry):
            return _name(entry), False
        if entry["host"] == _host():
            return _name(entry), True  # a process that is alive
        end = time.monotonic() + entry["seconds"]
        while time.monotonic() < end:
            time.sleep(min(1.0, entry["seconds"] / 10))
            if self._latest()[0] != number:
                return _name(entry), True
        return _name(entry), False

    @property
    def is_lost(self) -> bool:
        """Whether another driver has taken the run, because this one could not renew for too long."""
        return self._taken_by is not None

    def check(self) -> None:
        """Raise `RunError` if the lease is lost."""
        if self._taken_by is not None:
            raise RunError(
                f"another driver ({_name(self._taken_by)}) has taken over {self._folder.uri}; this one stops"
            )

    def _take(self, console: Console) -> None:
        watched, since = 0, time.monotonic()
        while True:
            self._number, entry = self._latest()
            has_run_out = entry is not None and (
                self._number == watched and time.monotonic() - since >= entry["seconds"]
            )
            if entry is None or entry["state"] == "free" or _is_dead(entry) or has_run_out:
                if self._advance("held"):
                    return
            elif not watched:
                watched, since = self._number, time.monotonic()
                console.print(
                    f"Another driver ({_name(entry)}) held this run last. Waiting up to {entry['seconds']:g} s to see "
                    f"whether it lives."
                )
            elif self._number != watched:
                raise RunError(
                    f"another driver ({_name(entry)}) is working on {self._folder.uri}. Let it finish, or stop it; "
                    f"then this command continues its run"
                )
            time.sleep(min(1.0, self._seconds / 10))

    def _renew_until_stopped(self) -> None:
        while not self._stop.wait(self._seconds / 3):
            try:
                if not self._advance("held"):
                    self._taken_by = self._latest()[1] or {}
                    return
            except Exception as error:
                logger.warning("the lease on %s could not be renewed: %s", self._folder.uri, error)

    def _advance(self, state: str) -> bool:
        """Write the next number, and return whether the latest one is ours."""
        mine = json.dumps(self._owner | {"state": state}).encode()
        is_written = self._folder.create(_object(self._number + 1), mine)
        latest, entry = self._latest()
        if entry is not None and entry["owner"] == self._owner["owner"]:
            # Also where the answer was lost and the repeated request found the object there already.
            for number in range(max(self._number, latest - _KEPT), latest):
                self._remove(number)
            self._number = latest
            return True
        if is_written:
            # This process slept so long that the numbers between were tidied away.
            self._remove(self._number + 1)
        return False

    def _remove(self, number: int) -> None:
        # Tidying: a lease is held also where nothing may be deleted.
        with suppress(OSError):
            self._folder.remove(_object(number))

    def _latest(self) -> tuple[int, dict[str, Any] | None]:
        while True:
            names = [name for name in self._folder.list(_FOLDER) if _OBJECT_NAME.fullmatch(name)]
            if not names:
                return 0, None
            try:
                entry = self._folder.read_json(f"{_FOLDER}/{names[-1]}")
            except ValueError:
                entry = {}
            if entry is not None:  # else it was tidied away between listing and reading
                return int(names[-1].removesuffix(".json")), entry if _is_whole(entry) else _NOBODYS


def _is_whole(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.keys() >= {"owner", "host", "pid", "seconds", "state"}


def _object(number: int) -> str:
    return f"{_FOLDER}/{number:08d}.json"


def _name(entry: dict[str, Any]) -> str:
    return f"process {entry.get('pid', '?')} on {str(entry.get('host', '?')).split('/')[0]}"


def _host() -> str:
    """Return an id of this machine or container since its start: process ids are valid only within it."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()}/{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    return socket.gethostname()


def _is_dead(entry: dict[str, Any]) -> bool:
    """Return whether the holder is a dead process of this machine; processes elsewhere cannot be checked."""
    if entry["host"] != _host():
        return False
    try:
        os.kill(entry["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # somebody else's, and alive
    # Ids come again, in a container that is started anew the same ones.
    return entry.get("started") not in (None, _started(entry["pid"]))


def _started(pid: int) -> int | None:
    """Return when the process started, in ticks since the machine's start. Return None if it has ended, is a zombie, or
    cannot be queried."""
    with suppress(OSError, ValueError, IndexError):
        state, *others = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else int(others[18])
    return None
