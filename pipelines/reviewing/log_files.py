"""Logs of a run's reviews, in its folder `reviews`. A line is durable before it is acknowledged.

    reviews/<reviewer>-<start>.jsonl             on a disk: a line is appended and fsynced for each verdict
    reviews/<reviewer>-<start>-<number>.jsonl    on an object store, which cannot append: an object for each verdict

Every start of a reviewer has files of its own, so that nothing is appended to a line that a kill has torn.
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path

from pipelines.errors import RunError
from pipelines.reviewing.verdicts import ReviewVerdict, parse_log
from pipelines.store.folders import Folder, map_requests

REVIEWS_FOLDER = "reviews"
_SUFFIX = ".jsonl"


def read_verdicts(run: Folder) -> list[ReviewVerdict]:
    """Read all verdicts on the run's answers, each once, oldest first.

    Raises `UsageError` for a damaged log, `OSError` if one cannot be read.
    """
    names = [f"{REVIEWS_FOLDER}/{name}" for name in run.list(REVIEWS_FOLDER) if name.endswith(_SUFFIX)]
    logs = zip(names, map_requests(run.read, names), strict=True)
    return in_order(verdict for name, data in logs for verdict in parse_log(data, run.describe(name)))


def in_order(verdicts: Iterable[ReviewVerdict]) -> list[ReviewVerdict]:
    """Sort verdicts by time and dedupe them by id; the oldest of equal ids counts."""
    found: dict[str, ReviewVerdict] = {}
    for verdict in sorted(verdicts, key=lambda each: (each.time, each.id)):
        found.setdefault(verdict.id, verdict)
    return list(found.values())


class ReviewLog:
    """Writer of verdicts; thread-safe."""

    def __init__(self, run: Folder) -> None:
        self._run = run
        self._start = uuid.uuid4().hex[:12]
        self._files: dict[str, int] = {}
        self._numbers = count()
        self._lock = threading.Lock()

    def append(self, verdict: ReviewVerdict) -> None:
        """Write a verdict durably, to the disk or to the store.

        Raises `OSError` or `RunError` if that may have failed; the same verdict may then be appended again.
        """
        with self._lock:
            folder = self._run.local_path(REVIEWS_FOLDER)
            if folder is None:
                self._put(verdict)
            else:
                self._append(folder, verdict)

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            for file in self._files.values():
                os.close(file)
            self._files.clear()

    def _append(self, folder: Path, verdict: ReviewVerdict) -> None:
        if verdict.reviewer not in self._files:
            self._files[verdict.reviewer] = _create(folder / f"{_plain(verdict.reviewer)}-{self._name()}{_SUFFIX}")
        file = self._files[verdict.reviewer]
        try:
            data = verdict.line()
            while data:
                data = data[os.write(file, data) :]
            os.fsync(file)
        except OSError:
            # It may be torn: what comes next must not stand behind it.
            del self._files[verdict.reviewer]
            with suppress(OSError):
                os.close(file)
            raise

    def _put(self, verdict: ReviewVerdict) -> None:
        name = f"{REVIEWS_FOLDER}/{_plain(verdict.reviewer)}-{self._name()}{_SUFFIX}"
        data = verdict.line()
        # A repeated request can say that the object was there already, although it is ours.
        if not self._run.create(name, data) and self._run.read(name) != data:
            raise RunError(f"{self._run.describe(name)}: another process has written it")

    def _name(self) -> str:
        return f"{self._start}-{next(self._numbers):06d}"


def _create(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
    for folder in (path.parent, path.parent.parent):
        _sync_folder(folder)
    return file


def _sync_folder(folder: Path) -> None:
    """Sync a folder, because a file whose name is not on the disk is lost in a power failure."""
    with suppress(OSError):  # not every file system lets a folder be synced
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _plain(reviewer: str) -> str:
    """Return the reviewer's name as part of a file name; the lines hold the full name."""
    return re.sub(r"[^a-z0-9]+", "-", reviewer.lower()).strip("-")[:40] or "reviewer"
