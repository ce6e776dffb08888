"""Table formats whose files are not all current rows (Delta, Iceberg, Hudi), told by the folder beside the files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from pipelines.errors import UsageError
from pipelines.store.folders import map_requests

_SIGNS = {"_delta_log": "Delta", ".hoodie": "Hudi", "metadata": "Iceberg"}
_READERS = {"Delta": "duckdb's delta_scan", "Hudi": "Spark or hudi-rs", "Iceberg": "duckdb's iceberg_scan"}


def refuse_tables(files: Iterable[tuple[Any, str]]) -> None:
    """Raise `UsageError` if a file, given with its file system, lies in the folder of such a table."""
    folders: dict[str, tuple[Any, str]] = {}
    for filesystem, path in files:
        is_local = isinstance(filesystem, LocalFileSystem)
        for spelling in (
            {path, os.path.realpath(path)} if is_local else {path} if "http" not in filesystem.protocol else ()
        ):
            for folder in _tables_folders(spelling.rpartition("/")[0]):
                folders.setdefault(
                    folder if is_local else str(filesystem.unstrip_protocol(folder)), (filesystem, folder)
                )
    for address, name in zip(folders, map_requests(lambda folder: _format(*folder), folders.values()), strict=True):
        if name is not None:
            raise UsageError(
                f"input.path: {address} is a table of {name}: its files also hold rows that were removed or replaced. "
                f"Write its current rows as Parquet, with {_READERS[name]}, and name that file"
            )


def _tables_folders(folder: str) -> Iterator[str]:
    """Yield the folders that may be the table's: not those of partitions; and the one around `data`."""
    parent, _, leaf = folder.rpartition("/")
    if "=" not in leaf:
        yield folder
    if parent and ("=" in leaf or leaf == "data"):
        yield from _tables_folders(parent)


def _format(filesystem: Any, folder: str) -> str | None:
    for sign, name in _SIGNS.items():
        # Who may read some files need not be allowed to list what is around them.
        with suppress(OSError):
            entries = filesystem.ls(f"{folder}/{sign}", detail=False)
            if sign != "metadata" or any(str(entry).endswith(".metadata.json") for entry in entries):
                return name
    return None
