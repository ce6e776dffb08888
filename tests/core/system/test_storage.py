"""Copies of model folders on the local disk. On a real S3 server: tests/pipelines/job/on_s3."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpd_core.errors import StorageError
from hpd_core.system.storage import open_filesystem
from tests.tables import table


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "bucket" / "v1.0-model"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


@table("place", ["s3:/bucket/run", "s3:bucket", "S3://bucket/run", " s3://bucket", "s3n://bucket/run"])
def test_what_is_meant_for_s3_is_no_folder_of_this_disk(place: str) -> None:
    with pytest.raises(StorageError, match="a place on S3 is written s3://bucket/folder"):
        open_filesystem(place)
