"""Compressed JSON Lines as staged rows: a line in a compressed file is found only by reading up to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pipelines.catalog.json_lines import parse_line
from pipelines.catalog.staged_rows import RowWriter
from pipelines.catalog.text_files import open_unpacked
from pipelines.errors import UsageError

_CHUNK = 2**20
_LOOKED_AT = 1000
"""Number of first lines, at least one of which must be an object."""


class PackedLines:
    """A compressed JSON Lines file that can be read."""

    def __init__(self, name: str, filesystem: Any, path: str) -> None:
        self._name, self._filesystem, self._path = name, filesystem, path

    def how(self) -> dict[str, Any]:
        """Return all settings that decide which rows come out, apart from the file itself."""
        return {"format": "packed jsonl"}

    def write(self, target: Path) -> None:
        """Write all rows to `target`. Raise `UsageError` if it is damaged, or none of its first lines is an object."""
        writer, first_problem = RowWriter(target, (), str), ""
        with open_unpacked(self._filesystem, self._path, self._name) as file:
            for number, line in enumerate(_lines(file)):
                if not line.strip():
                    continue
                parsed = parse_line(line)
                if parsed.row is not None:
                    writer.add_line(number, line.decode(), parsed.row)
                else:
                    problem = parsed.problem or ""
                    first_problem = first_problem or f"line {number + 1}: {problem}"
                    writer.refuse(number, "broken_line", problem, line.decode(errors="backslashreplace"))
                if writer.num_rows == _LOOKED_AT:
                    self._check(writer, first_problem)
        self._check(writer, first_problem)
        writer.close(self.how())

    def _check(self, writer: RowWriter, problem: str) -> None:
        if writer.num_rows and writer.num_rows == writer.num_refused:
            raise UsageError(
                f"{self._name} is not JSON Lines: of {writer.num_rows:,} lines looked at none is a JSON object; "
                f"{problem}"
            )


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the file's lines without their ends; Arrow's streams do not iterate over lines."""
    parts: list[bytes] = []
    while data := bytes(file.read(_CHUNK)):
        first, *rest = data.split(b"\n")
        parts.append(first)
        if rest:
            yield b"".join(parts)
            *whole, last = rest
            yield from whole
            parts = [last]
    yield b"".join(parts)
