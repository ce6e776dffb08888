"""Runs whose every file lies on S3: a real server, the real command, and requests that break on the way."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import duckdb
import pytest

from hpd_core.errors import ModelError, StorageError
from hpd_core.models.loading import resolve_source
from pipelines.catalog.readers import read_piece
from pipelines.catalog.sharding import RowRange
from pipelines.errors import RunError
from pipelines.store.folders import Folder
from tests.pipelines.conftest import Workplace, products
from tests.pipelines.job.on_s3.places import assert_same_run, download, everything_on_s3, extract, mixed_catalog, upload
from tests.pipelines.job.on_s3.s3_server import (
    READ_SECONDS,
    SECRET_KEY,
    Fault,
    FaultyProxy,
    S3Server,
)


def test_a_run_on_s3_is_the_run_on_the_local_disk(
    workplace: Workplace, server: S3Server, bucket: str, tmp_path: Path
) -> None:
    """Configuration, catalog, schemas, model and output; nothing local but the cache of the model."""
    mixed_catalog(workplace)
    config = everything_on_s3(workplace, bucket)
    cache = {"HPD_CACHE": str(tmp_path / "cache")}
    finished = extract(config, server, "--set", "max_dead_letter_share=1", "--json", **cache)
    assert finished.returncode == 0, finished.stderr
    totals = json.loads(finished.stdout.splitlines()[-1])
    assert (totals["rows"], totals["products"], totals["dead_letters"]) == (52, 50, 2)

    workplace.run(max_dead_letter_share=1.0)
    remote = download(f"{bucket}/out", tmp_path / "remote")
    assert_same_run(workplace.folder / "out", remote)
    assert not (remote / "_parts").exists()

    again = extract(config, server, "--set", "max_dead_letter_share=1", **cache)
    assert again.returncode == 0, again.stderr
    assert "is finished already; nothing was done" in again.stdout

    # Secrets are in the environment only.
    printed = finished.stdout + finished.stderr + again.stdout + again.stderr
    assert SECRET_KEY not in printed
    for path in remote.rglob("*"):
        assert not path.is_file() or SECRET_KEY.encode() not in path.read_bytes(), path
    # Another tool reads the tables where they are.
    table = duckdb.connect().execute(f"select count(*) from '{remote}/products/*.parquet'").fetchone()
    assert table == (50,)


@pytest.mark.full
def test_requests_that_break_lose_and_double_nothing(
    workplace: Workplace, server: S3Server, bucket: str, tmp_path: Path
) -> None:
    """One request in six fails somehow, and the first answer to every commit is lost after it was carried out."""
    mixed_catalog(workplace)
    generator = random.Random(0)
    committed: set[str] = set()

    def choose(method: str, path: str) -> Fault | None:
        if method == "PUT" and "/_shards/" in path and path not in committed:
            committed.add(path)
            return "unanswered"
        if generator.random() < 1 / 6:
            # Waiting in vain costs time: seldom.
            fault: Fault = generator.choice(get_args(Fault))
            return fault if fault != "stalled" or generator.random() < 1 / 4 else "slow"
        return None

    config = everything_on_s3(workplace, bucket)
    with FaultyProxy(server, choose) as proxy:
        changes = {
            "HPD_CACHE": str(tmp_path / "cache"),
            # Chance may break one request several times.
            "AWS_MAX_ATTEMPTS": "10",
            "FSSPEC_S3": json.dumps({"config_kwargs": {"read_timeout": READ_SECONDS}}),
        }
        finished = extract(config, proxy.server, "--set", "max_dead_letter_share=1", **changes)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert all(proxy.faults[fault] for fault in ("busy", "broken", "refused", "unanswered", "cut", "slow")), (
        proxy.faults
    )
    assert len(committed) > 2
    workplace.run(max_dead_letter_share=1.0)
    assert_same_run(workplace.folder / "out", download(f"{bucket}/out", tmp_path / "remote"))


@pytest.mark.full
@pytest.mark.parametrize("fault", ["busy", "broken", "refused", "cut"])
def test_storage_that_stays_broken_is_no_damaged_data(
    fault: Fault, server: S3Server, reach: Any, bucket: str, tmp_path: Path
) -> None:
    """Rows that cannot be read because the storage is away are read again later, not dead-lettered."""
    workplace = Workplace(tmp_path, tmp_path)
    upload(workplace.write_parquet("a.parquet", products(30), row_group_size=10), f"{bucket}/a.parquet")
    upload(workplace.write_jsonl("b.jsonl", products(30)), f"{bucket}/b.jsonl")
    size = len((workplace.catalog / "b.jsonl").read_bytes())
    # Parquet: it breaks in the footer, in the first and in the second row group.
    for name, file_format, num_good in (("a.parquet", "parquet", 0), ("a.parquet", "parquet", 1),
                                        ("a.parquet", "parquet", 2), ("b.jsonl", "jsonl", 0)):  # fmt: skip
        good = iter(range(num_good))

        def choose(method: str, _: str, good: Iterator[int] = good) -> Fault | None:
            return fault if method == "GET" and next(good, None) is None else None

        with FaultyProxy(server, choose) as proxy:
            reach(proxy.server, AWS_MAX_ATTEMPTS="1")
            rows = read_piece(f"{bucket}/{name}", file_format, RowRange(0, 0, 30, 30, 0, size), None)
            with pytest.raises(RunError, match=f"cannot read s3://.*{name}"):
                list(rows)
        assert proxy.faults[fault]


@pytest.mark.full
def test_a_model_on_s3_is_copied_once_and_again_when_it_changes(
    workplace: Workplace, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPD_CACHE", str(tmp_path / "cache"))
    shutil.copytree(workplace.model, tmp_path / "model")
    (tmp_path / "model/pytorch_model.bin").write_bytes(b"an old copy of the weights")
    uri = upload(tmp_path / "model", f"{bucket}/model")

    tokenizer = Path(resolve_source(uri, weights=False))
    assert not list(tokenizer.glob("*.safetensors"))
    assert (tokenizer / "tokenizer.json").is_file()
    first = Path(resolve_source(uri))
    assert {path.name for path in first.iterdir()} == {path.name for path in workplace.model.iterdir()}
    inode = (first / "config.json").stat().st_ino
    assert Path(resolve_source(uri)) == first
    assert (first / "config.json").stat().st_ino == inode

    changed = json.loads((tmp_path / "model/config.json").read_text()) | {"rope_theta": 5000.0}
    Folder(uri).write("config.json", json.dumps(changed).encode())
    second = Path(resolve_source(uri))
    assert second != first
    assert json.loads((second / "config.json").read_text())["rope_theta"] == 5000.0
    with pytest.raises((StorageError, ModelError), match="no such folder"):
        resolve_source(f"{bucket}/nothing")
