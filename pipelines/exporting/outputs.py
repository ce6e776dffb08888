"""Places of an export's files. Each is written beside its place, or on the local disk, and moved when complete."""

from __future__ import annotations

import errno
import json
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from pipelines.errors import UsageError
from pipelines.job.run import Run
from pipelines.store.folders import Folder, open_filesystem
from pipelines.store.ledger import PLAN_NAME

_NUMBER = 6
_ENDINGS = (".csv", ".tsv", ".txt", ".xlsx", ".xls", ".parquet", ".jsonl", ".json", ".xml")


@dataclass(frozen=True, slots=True)
class Outputs:
    """Folder for files, or the one file that the user named.

    Attributes:
        folder: local path or any fsspec URI.
        file: name of the only file; None if there may be several.
    """

    folder: str
    file: str | None

    @classmethod
    def of(cls, out: str, suffix: str) -> Outputs:
        """Return the outputs for `out`: a file if its name ends with `suffix`, else a folder.

        Raises `UsageError` for the name of a file of another kind, unless a folder of that name exists.
        """
        if not out.lower().endswith(suffix):
            if suffix != "." and out.lower().endswith(_ENDINGS) and not _is_folder(out):
                raise UsageError(f"--out {out}: this kind of file ends with {suffix}; name one that does, or a folder")
            return cls(out.rstrip("/") or out, None)
        folder, _, name = out.rpartition("/")
        return cls(folder or ("/" if out.startswith("/") else "."), name)

    def name(self, stem: str, suffix: str, number: int | None) -> str:
        """Return a file's name: the user's, or one from `stem`; with `number` if it is one of several."""
        named = self.file[: -len(suffix)] if self.file else stem
        return f"{named}{suffix}" if number is None else f"{named}-{number:0{_NUMBER}d}{suffix}"

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a path to write a file to; after the block it gets its name. An error in the block leaves nothing.

        Raises `UsageError` if the file cannot be put there.
        """
        filesystem, root = open_filesystem(self.folder)
        try:
            if isinstance(filesystem, LocalFileSystem):
                yield from _local(Path(root), name)
            else:
                yield from _remote(filesystem, f"{root}/{name}", name)
        except OSError as error:
            raise UsageError(f"cannot write {self.describe(name)}: {_reason(error)}") from error

    def describe(self, name: str) -> str:
        """Return the file's path as a user would write it."""
        return name if self.folder == "." else f"{self.folder.rstrip('/')}/{name}"

    def is_name(self, stem: str, suffix: str, name: str) -> bool:
        """Return whether `name` is that of the file or of one of its numbered parts."""
        return name == self.name(stem, suffix, None) or self._part_number(stem, suffix, name) is not None

    def _part_number(self, stem: str, suffix: str, name: str) -> int | None:
        head = self.name(stem, suffix, 0).removesuffix(f"{0:0{_NUMBER}d}{suffix}")
        found = re.fullmatch(rf"{re.escape(head)}(\d{{{_NUMBER},}}){re.escape(suffix)}", name)
        return int(found[1]) if found else None

    def remove_later_parts(self, stem: str, suffix: str, count: int) -> None:
        """Remove numbered files of an earlier, larger export, which have the same name but are not part of this one."""
        filesystem, root = open_filesystem(self.folder)
        for path in filesystem.ls(root, detail=False):
            number = self._part_number(stem, suffix, str(path).rsplit("/", 1)[-1])
            if number is not None and number >= count:
                filesystem.rm_file(path)


def _local(folder: Path, name: str) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{name}.{uuid.uuid4().hex}.tmp"
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, folder / name)
    finally:
        temporary.unlink(missing_ok=True)


def _remote(filesystem: Any, target: str, name: str) -> Iterator[Path]:
    # Not as a stream: what is closed after an error would be an object, half of the file.
    with tempfile.TemporaryDirectory(prefix="hpd-export-") as scratch:
        path = Path(scratch, name)
        yield path
        filesystem.put_file(str(path), target)


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "no space is left"
    return error.strerror or str(error) or type(error).__name__


def _is_folder(out: str) -> bool:
    filesystem, path = open_filesystem(out)
    return bool(filesystem.isdir(path))


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
