"""A DuckDB database of a command, in a temporary folder: what does not fit into memory is on the disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

_MEMORY_LIMIT = "2GB"
_MAX_THREADS = 8  # each needs memory of its own


@contextmanager
def temporary_database(*, keeps_order: bool = True) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open an empty database for the block. `keeps_order`: whether rows come in the order in which they were put in."""
    with tempfile.TemporaryDirectory(prefix="hpd-") as folder:
        options: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": _MEMORY_LIMIT,
            "temp_directory": str(Path(folder, "spilled")),
            "threads": min(_MAX_THREADS, os.cpu_count() or 1),
            "preserve_insertion_order": keeps_order,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        with duckdb.connect(str(Path(folder, "tables.duckdb")), config=options) as database:
            yield database
