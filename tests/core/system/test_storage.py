"""Copies of model folders on the local disk. On a real S3 server: tests/pipelines/job/on_s3."""

from __future__ import annotations

import pytest

from hpd_core.errors import StorageError
from hpd_core.system.storage import open_filesystem
from tests.tables import table


@table("place", ["s3:/bucket/run", "s3:bucket", "S3://bucket/run", " s3://bucket", "s3n://bucket/run"])
def test_what_is_meant_for_s3_is_no_folder_of_this_disk(place: str) -> None:
    with pytest.raises(StorageError, match="a place on S3 is written s3://bucket/folder"):
        open_filesystem(place)
