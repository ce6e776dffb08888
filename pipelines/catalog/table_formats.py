"""Table formats whose files are not all current rows (Delta, Iceberg, Hudi and others), detected by file names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from fsspec.implementations.local import LocalFileSystem

from pipelines.errors import UsageError
from pipelines.store.folders import map_requests

_WITH_DUCKDB = (
    "python -c \"import duckdb; duckdb.sql(\\\"COPY (FROM {function}('{folder}')) TO 'catalog.parquet'\\\")\""
)


class _Format(NamedTuple):
    name: str
    sign: re.Pattern[str]
    way_out: str


_FORMATS = (
    _Format("Delta", re.compile(r"(?P<table>(?s:.*))/_delta_log/"), _WITH_DUCKDB.replace("{function}", "delta_scan")),
    _Format("Hudi", re.compile(r"(?P<table>(?s:.*))/\.hoodie(/|_partition_metadata)"), "read it with Spark or hudi-rs"),
    _Format(
        "Iceberg",
        re.compile(r"(?P<table>(?s:.*))/metadata/[^/]*\.metadata\.json$"),
        _WITH_DUCKDB.replace("{function}", "iceberg_scan"),
    ),
    _Format(
        "Lance",
        re.compile(r"(?P<table>(?s:.*)\.lance)/_versions/"),
        "read it with lance.dataset('{folder}').to_table()",
    ),
    _Format("Paimon", re.compile(r"(?P<table>(?s:.*))/snapshot/snapshot-\d+$"), "read it with Spark or pypaimon"),
    _Format("DuckLake", re.compile(r"(?P<table>(?s:.*))/ducklake-[0-9a-f-]{36}\.parquet$"), "read it with duckdb"),
)
_FOLDER_SIGNS = ("_delta_log", ".hoodie", "_versions")
_LISTED_SIGNS = ("metadata", "snapshot")
# Of most paths this says at once that they are no sign.
_PERHAPS = re.compile(r"/(_delta_log/|\.hoodie|_versions/|ducklake-|metadata/|snapshot/)")


def refuse_tables(folder: str, names: Iterable[str]) -> None:
    """Raise `UsageError` if a folder is, or holds, such a table.

    Args:
        folder: folder as the user wrote it.
        names: entries in it, each with a leading slash; folders that are not searched also end in one.
    """
    for name in names:
        for table_format, table in _signs(name):
            raise _refusal(table_format, folder + table)


class TablesAround:
    """Detector of such tables around the files that are read. Folders seen in a listing are not queried, and none
    twice."""

    def __init__(self) -> None:
        self._homes: dict[str, tuple[Any, str]] = {}
        self._listed: list[str] = []
        self._tables: dict[str, _Format] = {}

    def add_file(self, filesystem: Any, path: str) -> None:
        """Add a file that is read."""
        self._see(filesystem, path)
        self.add_home(filesystem, path.rpartition("/")[0])

    def add_home(self, filesystem: Any, folder: str) -> None:
        """Add a folder some of whose files are read."""
        if "http" in filesystem.protocol:
            return  # has no folders: whatever it is asked for may be there
        for outer in _outer_folders(folder):
            self._homes.setdefault(_address(filesystem, outer), (filesystem, outer))

    def add_listing(self, filesystem: Any, beginning: str, paths: Iterable[str]) -> None:
        """Add a complete listing of the paths with this prefix."""
        self._listed.append(_address(filesystem, beginning))
        for path in paths:
            self._see(filesystem, path)

    def refuse(self) -> None:
        """Raise `UsageError` if a folder lies in a table, where that can be checked."""
        listed = tuple(self._listed)
        unknown = [home for address, home in self._homes.items() if not f"{address}/".startswith(listed)]
        for (filesystem, folder), found in zip(unknown, map_requests(lambda home: _asked(*home), unknown), strict=True):
            self._tables |= {_address(filesystem, folder): table_format for table_format in found}
        for address in self._homes:
            if address in self._tables:
                raise _refusal(self._tables[address], address)

    def _see(self, filesystem: Any, path: str) -> None:
        self._tables |= {_address(filesystem, table): table_format for table_format, table in _signs(path)}


def _signs(path: str) -> Iterator[tuple[_Format, str]]:
    """Yield the tables that a path is a sign of."""
    if _PERHAPS.search(path):
        for table_format in _FORMATS:
            if found := table_format.sign.match(path):
                yield table_format, found["table"]


def _asked(filesystem: Any, folder: str) -> list[_Format]:
    """Return the formats of which a folder is a table."""
    signs = []
    # Who may read some files need not be allowed to list what is around them.
    with suppress(OSError):
        signs += [f"{folder}/{sign}/" for sign in _FOLDER_SIGNS if filesystem.isdir(f"{folder}/{sign}")]
    for sign in _LISTED_SIGNS:
        with suppress(OSError):
            signs += map(str, filesystem.ls(f"{folder}/{sign}", detail=False))
    return [table_format for path in signs for table_format, table in _signs(path) if table == folder]


def _refusal(table_format: _Format, folder: str) -> UsageError:
    way_out = table_format.way_out.format(folder=_in_quotes(folder))
    return UsageError(
        f"input.path: {folder or '/'} is a table of {table_format.name}: its files also hold rows that were removed or "
        f"replaced. Write its current rows as Parquet and name that file: {way_out}"
    )


def _address(filesystem: Any, path: str) -> str:
    return path if isinstance(filesystem, LocalFileSystem) else str(filesystem.unstrip_protocol(path))


def _outer_folders(folder: str) -> Iterator[str]:
    """Yield the folder, and the folders around it that may be its table's."""
    yield folder
    parent, _, leaf = folder.rpartition("/")
    if parent and ("=" in leaf or leaf == "data" or leaf.startswith("bucket-")):
        yield from _outer_folders(parent)


def _in_quotes(name: str) -> str:
    """Escape a name for single quotes of SQL within double quotes of a shell."""
    return re.sub(r'[\\"$`]', r"\\\g<0>", name.replace("'", "''"))
