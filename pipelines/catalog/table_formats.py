"""Tables whose files are only in part their rows: Delta, Iceberg, Hudi and others, told by the names around them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from fsspec.implementations.local import LocalFileSystem

from pipelines.errors import UsageError

_WITH_DUCKDB = "duckdb -c \"COPY (FROM {function}('{folder}')) TO 'catalog.parquet'\""


class _Format(NamedTuple):
    name: str
    sign: re.Pattern[str]
    way_out: str


_FORMATS = (
    _Format("Delta", re.compile(r"(?P<table>.*)/_delta_log/"), _WITH_DUCKDB.replace("{function}", "delta_scan")),
    _Format("Hudi", re.compile(r"(?P<table>.*)/\.hoodie(/|_partition_metadata)"), "read it with Spark or hudi-rs"),
    _Format(
        "Iceberg",
        re.compile(r"(?P<table>.*)/metadata/[^/]*\.metadata\.json$"),
        _WITH_DUCKDB.replace("{function}", "iceberg_scan"),
    ),
    _Format(
        "Lance", re.compile(r"(?P<table>.*\.lance)/_versions/"), "read it with lance.dataset('{folder}').to_table()"
    ),
    _Format("Paimon", re.compile(r"(?P<table>.*)/snapshot/snapshot-\d+$"), "read it with Spark or pypaimon"),
    _Format("DuckLake", re.compile(r"(?P<table>.*)/ducklake-[0-9a-f-]{36}\.parquet$"), "read it with duckdb"),
)
_SIGNS = ("_delta_log", ".hoodie", "_versions")


def refuse_tables(folder: str, names: Iterable[str]) -> None:
    """Raises `UsageError` if a folder is, or holds, such a table.

    Args:
        folder: as the user wrote it.
        names: what lies in it, each with a slash in front; those of folders that are not looked into end in one.
    """
    for name in names:
        for table_format in _FORMATS:
            if found := table_format.sign.match(name):
                raise _refusal(table_format, folder + found["table"])


def refuse_tables_around(filesystem: Any, folder: str) -> None:
    """Raises `UsageError` if the folder lies in such a table as the home of some of its files, as far as that can be
    seen."""
    for outer in _outer_folders(folder):
        # Who may read some files need not be allowed to list what is around them.
        with suppress(OSError):
            signs = [f"/{sign}/" for sign in _SIGNS if filesystem.isdir(f"{outer}/{sign}")]
            if filesystem.isdir(f"{outer}/metadata"):
                signs += [str(path)[len(outer) :] for path in filesystem.ls(f"{outer}/metadata", detail=False)]
            refuse_tables(_address(filesystem, outer), signs)


def _refusal(table_format: _Format, folder: str) -> UsageError:
    return UsageError(
        f"input.path: {folder or '/'} is a table of {table_format.name}: its files also hold rows that were removed or "
        f"replaced. Write its current rows as Parquet and name that file: {table_format.way_out.format(folder=folder)}"
    )


def _address(filesystem: Any, folder: str) -> str:
    return folder if isinstance(filesystem, LocalFileSystem) else str(filesystem.unstrip_protocol(folder))


def _outer_folders(folder: str) -> Iterator[str]:
    """The folder, and those around it that may be its table's."""
    yield folder
    parent, _, leaf = folder.rpartition("/")
    if parent and ("=" in leaf or leaf == "data"):
        yield from _outer_folders(parent)
