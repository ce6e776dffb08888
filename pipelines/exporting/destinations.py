"""Checks of an export's destination: not over a file that the run read, nor among the run's own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from pipelines.errors import UsageError
from pipelines.exporting.outputs import Outputs
from pipelines.runs.run import Run
from pipelines.store.folders import Folder, open_filesystem
from pipelines.store.ledger import PLAN_NAME

DEFAULT_FOLDER = "export"
"""Default folder, in the run's own; the only one there that exports may write to."""

# A storage and a path in it.
_Place = tuple[str, str]


def check_destination(side: Run, original: str | None, outputs: Outputs, is_written: Callable[[str], bool]) -> None:
    """Raise `UsageError` if a file would replace one that belongs to the run, or lie among a run's own files.

    Args:
        original: file that was named instead of the run's input.
        is_written: function that tells whether a file of a name will be written in the folder, or removed there.
    """
    folder, run = _real(outputs.folder), _real(side.uri)
    in_own = _is_within(folder, run)
    if not _is_within(folder, (run[0], f"{run[1]}/{DEFAULT_FOLDER}")) and (in_own or _is_in_a_run(outputs.folder)):
        raise UsageError(
            f"--out: {outputs.folder} is in the folder of {f'the run {side.uri}' if in_own else 'another run'}, beside "
            f"its own files; name another place, or none for {side.uri}/{DEFAULT_FOLDER}"
        )
    for name in [*(file.name for file in side.plan.files), *([original] if original is not None else [])]:
        for system, path in _places(name):
            above, leaf = os.path.split(path)
            if (system, above) == folder and is_written(leaf):
                raise UsageError(f"--out: {outputs.describe(leaf)} is the file that the run read; name another place")


def _is_in_a_run(uri: str) -> bool:
    filesystem, path = open_filesystem(uri)[0], _real(uri)[1]
    while path.strip("/"):
        if filesystem.exists(f"{path}/{PLAN_NAME}"):
            return True
        path = path.rpartition("/")[0]
    return False


def _places(name: str) -> Sequence[_Place]:
    """Return the place of a file as it is named, and with its links resolved."""
    above, leaf = os.path.split(name)
    system, folder = _real(above or ".")
    return [(system, f"{folder.rstrip('/')}/{leaf}"), _real(name)]


def _real(uri: str) -> _Place:
    filesystem, path = open_filesystem(uri)
    is_local = isinstance(filesystem, LocalFileSystem)
    return type(filesystem).__name__, os.path.realpath(path) if is_local else path.rstrip("/")


def _is_within(place: _Place, folder: _Place) -> bool:
    return place[0] == folder[0] and f"{place[1]}/".startswith(f"{folder[1].rstrip('/')}/")


EXPORTS_NAME = "_exports.json"


@dataclass(frozen=True, slots=True)
class EarlierExports:
    """Files written so far by the exports of a run.

    Attributes:
        run: folder of the run.
        forces: whether any file may be replaced.
    """

    run: Folder
    forces: bool

    def check(self, outputs: Outputs, is_written: Callable[[str], bool]) -> None:
        """Raise `UsageError` if a file would be replaced or removed that is not as an export of the run wrote it.

        Args:
            is_written: function that tells whether a file of a name will be written in the folder, or removed there.
        """
        if self.forces:
            return
        folder = Folder(outputs.folder)
        try:
            there = [name for name in folder.list("") if is_written(name)]
        except OSError:
            return  # no folder: writing there says what is wrong
        known = self._read() if there else {}
        for name in there:
            key, checksum = _seen(outputs.describe(name))
            if known.get(key) != checksum:
                raise UsageError(
                    f"{outputs.describe(name)} exists already, and is not as an export of this run left it; --force "
                    "writes over it"
                )

    def keep(self, files: Iterable[str]) -> str | None:
        """Record files as they are now; return a note if they cannot be recorded, else None."""
        seen = dict(map(_seen, files))
        if not seen:
            return None
        try:
            self.run.write(EXPORTS_NAME, json.dumps({**self._read(), **seen}, ensure_ascii=False).encode())
        except OSError:
            return f"{self.run.uri} cannot be written to: the next export to the same place needs --force."
        return None

    def _read(self) -> dict[str, Any]:
        try:
            known = self.run.read_json(EXPORTS_NAME)
        except ValueError:
            return {}  # damaged: as if nothing had been exported
        return known if isinstance(known, dict) else {}


def _seen(file: str) -> tuple[str, str]:
    """Return a file's key, and a checksum that changes with it."""
    filesystem, path = open_filesystem(file)
    return f"{type(filesystem).__name__}:{path}", f"{filesystem.checksum(path):x}"
