"""Places of an export's files. Each is written beside its place, or on the local disk, and moved when complete."""

from __future__ import annotations

import errno
import os
import re
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from pipelines.errors import UsageError
from pipelines.store.folders import open_filesystem

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
