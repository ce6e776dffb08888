"""Finding files on a storage where every question takes time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from pipelines.catalog.finding import find_files
from pipelines.errors import UsageError


def counting(method: Callable[..., Any], counts: Counter[str]) -> Callable[..., Any]:
    def counted(self: Any, path: str, *args: Any, **options: Any) -> Any:
        counts[path] += 1
        return method(self, path, *args, **options)

    return counted


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """What is asked of a storage that is not the local disk; it is empty."""
    counts: Counter[str] = Counter()
    for method in ("find", "info", "isdir", "ls"):
        monkeypatch.setattr(MemoryFileSystem, method, counting(getattr(MemoryFileSystem, method), counts))
    yield counts
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


@pytest.mark.parametrize("pattern", ["*/*.jsonl", "*", "dt=*", "**/p*", "dt=[0-9]*/part.jsonl", ""])
def test_partitions_on_a_storage_are_not_asked_for_one_by_one(asked: Counter[str], pattern: str) -> None:
    storage = MemoryFileSystem()
    for number in range(300):
        storage.pipe(f"/b/t/dt={number}/part.jsonl", b"{}")
    if pattern not in ("", "*"):
        storage.pipe("/b/t/other/_delta_log/0.json", b"{}")
    asked.clear()
    assert len(find_files([f"memory://b/t/{pattern}"]).files) == 300
    assert asked.total() < 20
    storage.pipe("/b/t/dt=7/_delta_log/0.json", b"{}")
    with pytest.raises(UsageError, match=r"memory://.*b/t/dt=7 is a table of Delta"):
        find_files([f"memory://b/t/{pattern}"])
    storage.rm("/b/t/dt=7/_delta_log", recursive=True)
    storage.pipe("/b/t/_delta_log/0.json", b"{}")
    with pytest.raises(UsageError, match=r"memory://.*b/t is a table of Delta"):
        find_files([f"memory://b/t/{pattern}"])


def test_files_named_one_by_one_have_their_folder_asked_once(asked: Counter[str]) -> None:
    storage = MemoryFileSystem()
    paths = [f"memory://b/t/dt={number % 2}/{number:03}.jsonl" for number in range(100)]
    for path in paths:
        storage.pipe(path, b"{}")
    asked.clear()
    assert len(find_files(paths).files) == 100
    assert max(asked[path] for path in asked if not path.endswith(".jsonl")) < 4
    storage.pipe("/b/t/_delta_log/0.json", b"{}")
    with pytest.raises(UsageError, match=r"memory://.*b/t is a table of Delta"):
        find_files(paths)
