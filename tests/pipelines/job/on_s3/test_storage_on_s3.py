"""Inputs, folders and leases on S3, and what is said where there is no access: a real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.catalog.finding import find_files
from pipelines.catalog.input_files import scan_sources
from pipelines.catalog.readers import read_piece
from pipelines.catalog.sharding import RowRange
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import UsageError
from pipelines.extract import app
from pipelines.store.folders import Folder
from tests.pipelines.conftest import Workplace, products
from tests.pipelines.job.on_s3.places import everything_on_s3, upload
from tests.pipelines.job.on_s3.s3_server import (
    PUBLIC_BUCKET,
    READER_KEY,
    READER_SECRET,
    FaultyProxy,
    S3Server,
)
from tests.pipelines.store.test_folders import assert_one_writer_wins


def test_a_listing_that_breaks_leaves_no_file_out(server: S3Server, reach: Any, bucket: str) -> None:
    """An error or all files, never some."""
    for name in ("x/a.jsonl", "x/b.jsonl", "y/c.jsonl", "y/z/d.jsonl", "other/e.jsonl"):
        Folder(bucket).write(name, b"{}")
    everything = [f"{bucket}/{name}" for name in ("x/a.jsonl", "x/b.jsonl", "y/c.jsonl")]
    for path, expected in (
        (f"{bucket}/[xy]/*.jsonl", everything),
        (f"{bucket}/x*/?.jsonl", everything[:2]),
        (f"{bucket}/x", everything[:2]),
        (f"{bucket}/x/a.jsonl", everything[:1]),
    ):
        reach(server)
        assert [file.name for file in find_files([path]).files] == expected
        with FaultyProxy(server, lambda method, _: "busy") as proxy:
            reach(proxy.server, AWS_MAX_ATTEMPTS="1")
            with pytest.raises(UsageError, match="cannot list"):
                find_files([path])
    reach(server)
    for hopeless in ("s3://", "s3://*/x.jsonl", f"{bucket}/a**.jsonl"):
        with pytest.raises(UsageError):
            find_files([hopeless])


def test_every_object_of_a_folder_is_read_or_named(bucket: str, tmp_path: Path) -> None:
    folder = Folder(bucket)
    parquet = Workplace(tmp_path, tmp_path).write_parquet("a", products(1)).read_bytes()
    read = {"x/2024 #1%+ä/a": parquet, "x/[1]/b.jsonl": b"{}", "x/c": b"{}\n{}", "x/d=1/_e=2/f.json": b"{}"}
    others = {"x/a.csv": b"id", "x/2024_$folder$": b"", "x/_tmp/g.jsonl": b"{}", "x/y/.h.crc": b"h", "x/_SUCCESS": b""}
    for name, content in {**read, **others, "x": b"", "lake/_delta_log/0.json": b"{}", "lake/k=1/a": parquet}.items():
        folder.write(name, content)
    everything = sorted(f"{bucket}/{name}" for name in read)
    for paths in ([f"{bucket}/x"], [f"{bucket}/x/"], [f"{bucket}/x", everything[0], f"{bucket}/x/[[]1]"]):
        found = find_files(paths)
        assert [file.name for file in found.files] == everything, paths
        assert {each["files"] for each in found.left_out.to_dict()["kinds"].values()} == {1, 3}
        assert "3 hidden" in str(found.left_out)
        assert len(found.left_out.doubled) == 2 * (len(paths) > 1)
    found = find_files([f"{bucket}/x/*[!v]", f"s3a{bucket[2:]}/x/d*"])
    assert [file.name for file in found.files] == everything
    assert find_files([f"{bucket}/x/2024 #1%+ä"]).files == [(everything[0], "parquet")]
    for path in ("lake", "lake/k=1", "lake/k=1/a", "lake/*/a", "l*"):
        with pytest.raises(UsageError, match=f"{bucket}/lake is a table of Delta"):
            find_files([f"{bucket}/{path}"])
    with pytest.raises(UsageError, match="no such file or folder"):
        find_files([f"{bucket}/x/nothing.parquet"])


def test_of_many_writers_of_one_object_exactly_one_wins(bucket: str) -> None:
    assert_one_writer_wins(Folder(f"{bucket}/out"), 6, 10)


def test_missing_buckets_and_read_only_ones_stop_the_command_before_any_work(
    workplace: Workplace, server: S3Server, reach: Any, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPD_CACHE", str(tmp_path / "cache"))
    workplace.write_parquet("a.parquet", products(3))
    config = everything_on_s3(workplace, bucket)

    def refused(*arguments: str, config: str = config) -> str:
        result = CliRunner().invoke(app, ["--config", config, *arguments])
        assert result.exit_code == 2, result.output
        assert result.stderr.startswith("Error: ")
        return result.stderr

    assert "no such file or folder: s3://nowhere-at-all/in" in refused("--set", "input.path=s3://nowhere-at-all/in")
    for arguments in ([], ["--dry-run"]):
        missing = refused("--set", "output=s3://nowhere-at-all/out", *arguments)
        assert "s3://nowhere-at-all/out: there is no bucket 'nowhere-at-all'" in missing
    assert "no such file: s3://nowhere-at-all/job.yaml" in refused(config="s3://nowhere-at-all/job.yaml")
    for arguments in ([], ["--dry-run"]):
        nothing = refused("--set", f"model={bucket}/nothing", *arguments)
        assert f"model: cannot load the model '{bucket}/nothing': there is no such folder" in nothing
    reach(server, AWS_ACCESS_KEY_ID=READER_KEY, AWS_SECRET_ACCESS_KEY=READER_SECRET)
    read_only = refused()
    assert "cannot write to output folder" in read_only
    assert "access denied" in read_only


def test_a_public_bucket_is_read_without_credentials(server: S3Server, reach: Any, tmp_path: Path) -> None:
    reach(server)
    workplace = Workplace(tmp_path, tmp_path)
    uri = upload(workplace.write_parquet("a.parquet", products(5)), f"s3://{PUBLIC_BUCKET}/a.parquet")
    reach(server, AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None, HOME="/nonexistent")
    config = {"path": uri, "id": "id", "fields": ["title"], "anonymous": True}
    files = scan_sources(InputConfig.model_validate(config)).files
    assert [file.num_rows for file in files] == [5]
    rows = list(read_piece(uri, "parquet", RowRange(0, 0, 5, 5), ["title"], anonymous=True))
    assert [row.number for row in rows] == [0, 1, 2, 3, 4]
    with pytest.raises(UsageError, match="no usable AWS credentials"):
        scan_sources(InputConfig.model_validate(config | {"anonymous": False}))
