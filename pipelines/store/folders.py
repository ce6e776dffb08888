"""A folder at a local path or any fsspec URI, with the few operations that commits are built on.

Every write is atomic: a reader sees the whole object or none. `create` lets exactly one of several writers
win: a hard link locally, a conditional PUT (`If-None-Match: *`) on S3.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from fsspec.implementations.local import LocalFileSystem

from hpd_core.errors import StorageError
from hpd_core.system import storage
from pipelines.errors import UsageError

# What file systems without hard links say: FAT and exFAT, some network shares, some mounted object stores.
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_CONFLICT_PAUSES = (0.5, 1.0, 2.0)
_REQUESTS_AT_ONCE = 16
_ANSWERS_AT_ONCE = 512

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def map_requests(function: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
    """Return `function` of every item, in order; calls run in parallel, because storage requests are mostly waiting."""
    return list(iter_requests(function, list(items)))


def open_filesystem(uri: str, *, anonymous: bool = False) -> tuple[Any, str]:
    """Return `storage.open_filesystem`. Raise `UsageError` for an unknown protocol or a missing library."""
    try:
        return storage.open_filesystem(uri, anonymous=anonymous)
    except StorageError as error:
        raise UsageError(str(error)) from error


def size_and_etag(filesystem: Any, path: str) -> tuple[int, str | None]:
    """Return a file's size in bytes, and the store's own mark of its content; None if it has none, as on a disk."""
    info = filesystem.info(path)
    etag = info.get("ETag") or info.get("etag")
    return int(info["size"]), str(etag).strip('"') if etag else None


def iter_requests(
    function: Callable[[Item], Answer], items: Sequence[Item], at_once: int = _ANSWERS_AT_ONCE
) -> Iterator[Answer]:
    """Yield the answers of `map_requests` without holding more than `at_once`."""
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        for start in range(0, len(items), at_once):
            yield from pool.map(function, items[start : start + at_once])


def file_at(place: str, option: str) -> tuple[Folder, str]:
    """Return the folder of a file to be written, and the file's name in it.

    Args:
        place: a local path or any fsspec URI.
        option: option that names the place, for messages.

    Raise `UsageError` if it names no file, or a file is where the folder should be.
    """
    protocol, mark, path = place.rpartition("://")
    parent, slash, name = path.rpartition("/")
    if not name or name in (".", "..") or (mark and not slash):
        raise UsageError(f"{option}: {place!r} names no file")
    folder = Folder(f"{protocol}{mark}{parent}" if parent else f"{protocol}{mark}/" if slash else ".")
    folder.require()
    return folder, name


class Folder:
    """Named objects below one root. Names are relative, with forward slashes."""

    def __init__(self, uri: str) -> None:
        if not uri.strip():  # it would be the current folder, or the root
            raise UsageError("an empty name is no folder: name one (a variable of the shell that is not set is empty)")
        self.uri = uri.rstrip("/") or uri
        self._fs, self._root = open_filesystem(uri)
        self._is_local = isinstance(self._fs, LocalFileSystem)

    def __reduce__(self) -> tuple[type[Folder], tuple[str]]:
        # File systems hold connections and locks; each process opens its own.
        return Folder, (self.absolute_uri,)

    @property
    def is_local(self) -> bool:
        """Whether it is on a local disk."""
        return self._is_local

    @property
    def absolute_uri(self) -> str:
        """URI of the same folder for a process with another working directory."""
        return self._root if self._is_local else self.uri

    def path(self, name: str) -> str:
        """Return the path of an object inside the file system."""
        return f"{self._root}/{name}"

    def local_path(self, name: str) -> Path | None:
        """Return the object's path on a disk; None if it is in an object store."""
        return Path(self.path(name)) if self._is_local else None

    def describe(self, name: str) -> str:
        """Return the object as a user would write it."""
        return f"{self.uri}/{name}"

    def read(self, name: str) -> bytes:
        """Return the object's bytes. Raise `FileNotFoundError` if there is no such object."""
        data: bytes = self._fs.cat_file(self.path(name))
        return data

    def open(self, name: str) -> Any:
        """Open the object as a binary file for reading, without read-ahead: Arrow requests just the ranges it needs."""
        return self._fs.open(self.path(name), "rb", cache_type="none")

    def read_json(self, name: str) -> Any:
        """Return the object's JSON, or None if there is no such object."""
        try:
            return json.loads(self.read(name))
        except FileNotFoundError:
            return None

    def exists(self, name: str) -> bool:
        """Return whether the object exists now."""
        return bool(self._fs.exists(self.path(name)))

    def is_file(self) -> bool:
        """Return whether a file is where the folder should be."""
        return bool(self._fs.isfile(self._root))

    def is_folder(self) -> bool:
        """Return whether it is there, as a folder."""
        return bool(self._fs.isdir(self._root))

    def require(self) -> None:
        """Raise `UsageError` if a file is where the folder should be, or its bucket does not exist."""
        if self.is_file():
            raise UsageError(f"{self.uri} is a file, a folder is needed")
        if bucket := storage.missing_bucket(self._fs, self._root):
            raise UsageError(f"{self.uri}: there is no bucket {bucket!r}; name one that is there, or make it first")

    def is_empty(self) -> bool:
        """Return whether the folder is empty or does not exist, ignoring half-written files of a killed start."""
        return not self.list("")

    def find(self, folder: str) -> list[str]:
        """Return the names of all objects below a sub-folder, sorted; without half-written ones."""
        root = self.path(folder)
        paths = (str(path)[len(root) + 1 :] for path in self._fs.find(root))
        return sorted(path for path in paths if not path.rsplit("/", 1)[-1].startswith("."))

    def list(self, folder: str) -> list[str]:
        """Return the names of the objects directly in a sub-folder, sorted; without half-written ones."""
        try:
            paths = self._fs.ls(self.path(folder), detail=False)
        except FileNotFoundError:
            return []
        names = (str(path).rstrip("/").rsplit("/", 1)[-1] for path in paths)
        return sorted(name for name in names if not name.startswith(".") and name != folder)

    def write(self, name: str, data: bytes) -> None:
        """Write or replace the object."""
        if not self._is_local:
            self._fs.pipe_file(self.path(name), data)
            return
        self._replace(self._write_temporary(name, data), name)

    def create(self, name: str, data: bytes) -> bool:
        """Write the object only if it does not exist yet, and return whether it was written.

        A retried request can return False although the object is ours: read it back, never assume.
        """
        if self._is_local:
            return self._link(self._write_temporary(name, data), name)
        for pause in (*_CONFLICT_PAUSES, None):
            try:
                self._fs.pipe_file(self.path(name), data, mode="create")
                return True
            except FileExistsError:
                return False
            except OSError as error:
                # S3 answers 409 to one of two conditional PUTs at the same time; whose object is there then counts.
                # While the other one is still under way there is none.
                if self.exists(name):
                    return False
                if pause is None or getattr(error.__cause__, "errno", None) != errno.EBUSY:
                    raise
                time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def put(self, local_path: str, name: str) -> None:
        """Store a local file of any size under a name, replacing what is there. Local copies share their bytes."""
        if not self._is_local:
            self._fs.put_file(local_path, self.path(name))
            return
        self._replace(self._copy_temporary(local_path, name), name)

    def copy(self, source: str, target: str) -> None:
        """Copy the object to a second name, replacing what is there. Local copies share their bytes."""
        if self._is_local:
            self.put(self.path(source), target)
        else:
            self._fs.copy(self.path(source), self.path(target))

    def remove(self, folder: str) -> None:
        """Remove a sub-folder with everything in it, if it exists."""
        if self._fs.exists(self.path(folder)):
            self._fs.rm(self.path(folder), recursive=True)

    def remove_half_written(self, folder: str) -> None:
        """Remove files directly in a sub-folder that killed processes left half-written. Only local writes leave any.

        A live process that is writing one gets a `FileNotFoundError`.
        """
        if self._is_local:
            for path in Path(self.path(folder)).glob(".*.tmp"):
                path.unlink(missing_ok=True)

    def _temporary(self, name: str) -> str:
        parent, _, leaf = name.rpartition("/")
        temporary = f".{leaf}.{uuid.uuid4().hex}.tmp"
        return f"{parent}/{temporary}" if parent else temporary

    def _write_temporary(self, name: str, data: bytes) -> str:
        path = self.path(self._temporary(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with self._whole_or_gone(path, name), open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return path

    def _copy_temporary(self, local_path: str, name: str) -> str:
        path = self.path(self._temporary(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with self._whole_or_gone(path, name):
            try:
                os.link(local_path, path)
            except OSError:  # it lies on another disk
                with open(local_path, "rb") as source, open(path, "wb") as target:
                    shutil.copyfileobj(source, target)
                    target.flush()
                    os.fsync(target.fileno())
        return path

    def _replace(self, temporary: str, name: str) -> None:
        with self._whole_or_gone(temporary, name):
            os.replace(temporary, self.path(name))
        # Where both names were links to one file already, replacing does nothing and leaves the temporary one behind.
        with suppress(FileNotFoundError):
            os.unlink(temporary)

    @contextmanager
    def _whole_or_gone(self, temporary: str, name: str) -> Iterator[None]:
        """Remove a file that could not be fully written (a full disk needs the room). The error names the target."""
        try:
            yield
        except BaseException as error:
            with suppress(OSError):
                os.unlink(temporary)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = self.path(name)
            raise

    def _link(self, source_path: str, name: str) -> bool:
        """Give a file its name unless there is one of that name, and return whether it was given."""
        try:
            os.link(source_path, self.path(name))
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            raise UsageError(
                f"{self.uri}: its file system has no hard links, which a run's commits need ({error.strerror}); name a "
                "folder on another disk, or one in an object store (s3://...)"
            ) from error
        finally:
            os.unlink(source_path)
        return True
