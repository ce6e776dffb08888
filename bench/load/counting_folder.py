"""A run's folder that counts what it asks of its storage."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pipelines.store.folders import Folder

READS, WRITES = ("GET", "HEAD", "LIST"), ("PUT", "COPY")


class CountingFolder(Folder):
    """`requests` by kind, as s3fs sends them for small objects: a look for what is missing is HEAD and LIST, a copy
    asks for the size first."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.requests: Counter[str] = Counter()

    def read(self, name: str) -> bytes:
        """Counted as GET."""
        self.requests["GET"] += 1
        return super().read(name)

    def open(self, name: str) -> Any:
        """Counted as GET, however much is read."""
        self.requests["GET"] += 1
        return super().open(name)

    def exists(self, name: str) -> bool:
        """Counted as HEAD, and as LIST if it is not there."""
        found = super().exists(name)
        self.requests.update(["HEAD"] if found else ["HEAD", "LIST"])
        return found

    def find(self, folder: str) -> list[str]:
        """Counted as LIST."""
        self.requests["LIST"] += 1
        return super().find(folder)

    def write(self, name: str, data: bytes) -> None:
        """Counted as PUT."""
        self.requests["PUT"] += 1
        super().write(name, data)

    def create(self, name: str, data: bytes) -> bool:
        """Counted as PUT."""
        self.requests["PUT"] += 1
        return super().create(name, data)

    def copy(self, source: str, target: str) -> None:
        """Counted as HEAD and COPY."""
        self.requests.update(["HEAD", "COPY"])
        super().copy(source, target)

    def list(self, folder: str) -> list[str]:
        """Counted as LIST."""
        self.requests["LIST"] += 1
        return super().list(folder)
