from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from pipelines.store.folders import Folder
from tests.tables import table


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "out") if request.param == "local" else f"memory://{tmp_path.name}/out")


def test_objects_are_written_read_listed_copied_and_removed(folder: Folder) -> None:
    assert folder.is_empty()
    folder.write("a/b/x.json", b"1")
    folder.write("a/b/x.json", b"2")
    folder.write("a/y.json", b"3")
    assert not folder.is_empty()
    assert folder.read("a/b/x.json") == b"2"
    assert folder.read_json("a/b/x.json") == 2
    assert folder.read_json("nothing.json") is None
    assert folder.list("a/b") == ["x.json"]
    assert folder.list("nothing") == []
    folder.copy("a/b/x.json", "public/x.json")
    folder.copy("a/y.json", "public/x.json")
    assert folder.read("public/x.json") == b"3"
    assert folder.exists("public/x.json")
    with folder.open("public/x.json") as file:
        assert file.read() == b"3"
    folder.remove("a")
    folder.remove("a")
    assert not folder.exists("a/y.json")
    assert folder.read("public/x.json") == b"3"
    with pytest.raises(FileNotFoundError):
        folder.copy("a/y.json", "public/z.json")


def assert_one_writer_wins(folder: Folder, num_writers: int, num_objects: int) -> None:
    """Of several that create the same objects at once, each is told the truth."""
    winners: list[tuple[int, int]] = []
    barrier = threading.Barrier(num_writers)

    def write(number: int) -> None:
        barrier.wait()
        for name in range(num_objects):
            if folder.create(f"s/{name}", b"%d" % number):
                winners.append((name, number))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(num_writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(name for name, _ in winners) == list(range(num_objects))
    assert all(folder.read(f"s/{name}") == b"%d" % number for name, number in winners)


def test_of_many_writers_at_once_exactly_one_wins(tmp_path: Path) -> None:
    assert_one_writer_wins(Folder(str(tmp_path)), 8, 20)
    assert not list(tmp_path.rglob(".*")), "temporary files are left"


def test_a_half_written_file_of_a_killed_start_does_not_make_a_folder_a_foreign_one(tmp_path: Path) -> None:
    assert Folder(str(tmp_path / "new")).is_empty()
    (tmp_path / "._plan.json.0123.tmp").write_bytes(b"{")
    assert Folder(str(tmp_path)).is_empty()
    (tmp_path / "notes.txt").write_bytes(b"mine")
    assert not Folder(str(tmp_path)).is_empty()


@table("is_other_disk", [False, True])
def test_a_local_file_is_put_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_other_disk: bool
) -> None:
    source, folder = tmp_path / "rows.parquet", Folder(str(tmp_path / "out"))
    source.write_bytes(b"one")

    def refuses(*_: object) -> None:
        raise OSError(18, "another disk")

    if is_other_disk:
        monkeypatch.setattr("os.link", refuses)
    for content in (b"one", b"two"):
        source.write_bytes(content)
        folder.put(str(source), "_input/rows.parquet")
        assert folder.read("_input/rows.parquet") == content
    with monkeypatch.context() as patched:
        patched.setattr("os.replace", refuses)
        with pytest.raises(OSError, match="another disk"):
            folder.put(str(source), "_input/other.parquet")
    assert [path.name for path in (tmp_path / "out" / "_input").iterdir()] == ["rows.parquet"]


@table("change", ["write", "create", "put"])
def test_what_does_not_fit_on_the_disk_leaves_nothing_behind_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    folder, source = Folder(str(tmp_path / "out")), tmp_path / "rows.parquet"
    source.write_bytes(b"1")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(os, "link", lambda *_: full(0))  # another disk
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/out/a/b.json'"):
        folder.put(str(source), "a/b.json") if change == "put" else getattr(folder, change)("a/b.json", b"1")
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
