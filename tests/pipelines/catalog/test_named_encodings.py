"""Where an encoding is named, a file is read once to know whether it is that, and not at each command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.catalog.staging import StagedFile, stage
from pipelines.config.reading import Reading
from pipelines.store.folders import open_filesystem

HEADER = b"id,title\n"
PLAIN = b"1,A plain title that says nothing\n" * 60_000


class _Counted:
    """A filesystem that counts the bytes which are read of it, and tells of a file whether it has changed."""

    def __init__(self, path: Path) -> None:
        self._inner, _ = open_filesystem(str(path))
        self.num_bytes = 0

    def open(self, path: str, mode: str, **options: Any) -> Any:
        file, counted = self._inner.open(path, mode, **options), self

        class File:
            def read(self, size: int = -1) -> bytes:
                data: bytes = file.read(size)
                counted.num_bytes += len(data)
                return data

            def __getattr__(self, name: str) -> Any:
                return getattr(file, name)

            def __enter__(self) -> File:
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

        return File()

    def info(self, path: str) -> dict[str, Any]:
        told = self._inner.info(path)
        return {**told, "ETag": f"{told['mtime']}"}


@pytest.mark.parametrize(
    ("ending", "encoding"), [("2,Größe\n".encode(), "utf-8"), (b"", "cp1252"), (b"2,Gr\xf6\n", "cp1252")]
)
def test_a_file_is_read_to_its_end_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: bytes, encoding: str
) -> None:
    monkeypatch.setenv("HPD_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "c.csv"
    path.write_bytes(HEADER + PLAIN + ending)
    files = _Counted(path)
    monkeypatch.setattr("pipelines.catalog.staging.open_filesystem", lambda name, **_: (files, name))

    def staged() -> tuple[StagedFile, int]:
        files.num_bytes = 0
        return stage(str(path), "csv", Reading("csv", "cp1252")), files.num_bytes

    first, num_bytes = staged()
    assert num_bytes > 2 * len(PLAIN)
    again, num_bytes = staged()
    assert num_bytes < len(PLAIN)
    assert (again, again.facts["encoding"]) == (first, encoding)
    path.write_bytes(HEADER + b"1,Gr\xf6\xdfe\n")
    assert staged()[0].facts["encoding"] == "cp1252"
