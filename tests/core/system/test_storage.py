"""Copies of model folders on the local disk. On a real S3 server: tests/pipelines/job/on_s3."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from hpd_core.errors import StorageError
from hpd_core.system import storage
from hpd_core.system.storage import local_copy, open_filesystem
from tests.tables import table


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "bucket" / "v1.0-model"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def copy(model: Path, cache: Path, *, weights: bool = True) -> Path:
    return local_copy(f"file://{model}", cache, weights=weights)


def age(folder: Path, seconds: float) -> None:
    """As if it had last been asked for so long ago."""
    then = time.time() - seconds
    os.utime(f"{folder}.lock", (then, then))


def change(model: Path, text: str) -> None:
    (model / "config.json").write_text(text)


def test_copies_that_nobody_asks_for_are_deleted_with_the_next_download(model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = copy(model, cache)
    tokenizer = copy(model, cache, weights=False)
    other = model.with_name("other")
    other.mkdir()
    (other / "config.json").write_text("{}")
    kept = copy(other, cache)
    for folder in (first, tokenizer, kept):
        age(folder, storage._UNASKED_SECONDS + 60)

    change(model, "{'second': 1}")
    second = copy(model, cache)
    assert (second / "model.safetensors").read_bytes() == b"weights"
    assert not first.exists()
    assert tokenizer.is_dir(), "another kind of copy, which those who only read may still use"
    assert kept.is_dir(), "of another folder"
    assert {path.name for path in cache.glob("*.lock")} == {f"{path.name}.lock" for path in (second, tokenizer, kept)}

    age(second, storage._UNASKED_SECONDS - 600)
    change(model, "{'third': 12}")
    third = copy(model, cache)
    assert second.is_dir(), "asked for within a day"
    assert third.is_dir()


def test_to_ask_for_a_copy_keeps_it(model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = copy(model, cache)
    age(first, storage._UNASKED_SECONDS + 60)
    assert copy(model, cache) == first
    change(model, "{'second': 1}")
    assert copy(model, cache) != first
    assert first.is_dir()


def test_a_cache_that_can_only_be_read(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    first = copy(model, cache)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "read-only file system")

    monkeypatch.setattr(Path, "touch", refuse)
    assert copy(model, cache) == first


@table("place", ["s3:/bucket/run", "s3:bucket", "S3://bucket/run", " s3://bucket", "s3n://bucket/run"])
def test_what_is_meant_for_s3_is_no_folder_of_this_disk(place: str) -> None:
    with pytest.raises(StorageError, match="a place on S3 is written s3://bucket/folder"):
        open_filesystem(place)
