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
from typer.testing import CliRunner

from hpd_core.errors import ModelError, StorageError
from hpd_core.models.loading import resolve_source
from pipelines.catalog.readers import read_piece
from pipelines.catalog.sharding import RowRange
from pipelines.compare import app as compare_app
from pipelines.errors import RunError
from pipelines.job.run_status import read_status
from pipelines.report import app as report_app
from pipelines.store.folders import Folder
from tests.pipelines.comparing import made_runs
from tests.pipelines.conftest import Workplace, products
from tests.pipelines.job.no_runs import assert_all_refuse, readers
from tests.pipelines.job.on_s3.places import assert_same_run, download, everything_on_s3, extract, mixed_catalog, upload
from tests.pipelines.job.on_s3.s3_server import (
    BUCKET,
    READ_SECONDS,
    SECRET_KEY,
    Fault,
    FaultyProxy,
    S3Server,
)
from tests.pipelines.reporting.made_runs import Answer, Product, metrics, write_run


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
@pytest.mark.ray
def test_a_clustered_run_on_s3_is_the_run_on_the_local_disk(
    workplace: Workplace, server: S3Server, bucket: str, tmp_path: Path
) -> None:
    mixed_catalog(workplace)
    settings = ["--set", "max_dead_letter_share=1", "--set", "shards.cluster_by_category=true"]
    config, cache = everything_on_s3(workplace, bucket), {"HPD_CACHE": str(tmp_path / "cache")}
    clustered = extract(config, server, *settings, **cache)
    assert clustered.returncode == 0, clustered.stderr
    workplace.run(max_dead_letter_share=1.0)
    remote = download(f"{bucket}/out", tmp_path / "remote")
    assert_same_run(workplace.folder / "out", remote)
    assert not (remote / "_clustered").exists()


@pytest.mark.full
def test_csv_on_s3_is_read_as_on_the_local_disk(
    workplace: Workplace, server: S3Server, bucket: str, tmp_path: Path
) -> None:
    """Its rows are kept in the run's folder, where every process can read them, until the run is finished."""
    workplace.catalog.mkdir()
    rows = "".join(f'p{number},Shoes,"Shoe {number}, red",light\n' for number in range(40))
    (workplace.catalog / "c.csv").write_text(f"id,category,title,bullets\n{rows}broken\n")
    config = everything_on_s3(workplace, bucket)
    settings = ["--set", "max_dead_letter_share=1", "--set", "decoding=made-up", "--json"]
    finished = extract(config, server, *settings, HPD_CACHE=str(tmp_path / "cache"))
    assert finished.returncode == 0, finished.stderr
    totals = json.loads(finished.stdout.splitlines()[-1])
    assert (totals["rows"], totals["products"], totals["dead_letters"]) == (41, 40, 1)
    workplace.run(max_dead_letter_share=1.0, decoding="made-up")
    remote = download(f"{bucket}/out", tmp_path / "remote")
    assert_same_run(workplace.folder / "out", remote)
    assert not (remote / "_input").exists()


@pytest.mark.full
def test_an_earlier_run_on_s3_is_built_upon(
    workplace: Workplace, server: S3Server, bucket: str, tmp_path: Path
) -> None:
    mixed_catalog(workplace)
    config = everything_on_s3(workplace, bucket)

    def run(*arguments: str) -> dict[str, Any]:
        settings = ("--set", "max_dead_letter_share=1", "--json")
        finished = extract(config, server, *settings, *arguments, HPD_CACHE=str(tmp_path / "cache"))
        assert finished.returncode == 0, finished.stderr
        totals: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
        return totals

    first = run()
    again = run("--set", f"output={bucket}/again", "--retry-failed", f"{bucket}/out/")
    assert (again["rows"], again["products"], again["reasons"]) == (2, 0, first["reasons"])
    night = run("--set", f"output={bucket}/night", "--base", f"{bucket}/*")
    assert night["changes"]["base_run_id"] == first["run_id"], "the newest of a whole catalog"
    assert night["changes"]["carried"] == 50
    assert_same_run(download(f"{bucket}/out", tmp_path / "out"), download(f"{bucket}/night", tmp_path / "night"))
    assert read_status(f"{bucket}/night").state == "finished"


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


@pytest.mark.full
@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_a_run_is_reported_on_where_it_lies(bucket: str, tmp_path: Path, file_format: str) -> None:
    item = Product("p", {"title": "Velor shoe, größe 42"}, {"Size": Answer("größe 42")}, "Shoes", 2.0)
    source = f"{bucket}/catalog.{file_format}"
    rows = [metrics(0, 60, busy_seconds=30.0)]
    run = write_run(tmp_path, [[item]], rows, file_format=file_format, source=source)
    upload(run, f"{bucket}/run")
    upload(tmp_path / f"catalog.{file_format}", source)
    result = CliRunner().invoke(report_app, [f"{bucket}/run"])
    assert result.exit_code == 0, result.output
    assert f"{bucket}/run/report.html" in result.output
    page = Folder(f"{bucket}/run").read("report.html").decode()
    assert "größe 42</mark>" in page
    assert "Its text could not be read back" not in page
    assert CliRunner().invoke(report_app, [f"{bucket}/nowhere"]).exit_code == 2


@pytest.mark.full
def test_runs_are_compared_where_they_lie(bucket: str, tmp_path: Path) -> None:
    for name, brand in (("a", "Velor"), ("b", "Größe")):
        run = made_runs.write_run(tmp_path / name, [made_runs.Row("p0", {"Brand": brand}, text="Velor, Größe 42")])
        upload(Path(run), f"{bucket}/{name}")
    result = CliRunner().invoke(compare_app, [f"{bucket}/a", f"{bucket}/b", "--out", f"{bucket}/out"])
    assert result.exit_code == 0, result.output
    assert "0 of 1 answers are the same" in result.output
    assert "Größe</bdi>" in Folder(f"{bucket}/out").read("compare.html").decode()
    assert CliRunner().invoke(compare_app, [f"{bucket}/a", f"{bucket}/nowhere"]).exit_code == 2


def test_a_place_on_s3_without_a_run(workplace: Workplace, bucket: str) -> None:
    asked = readers(workplace)
    upload(Path(made_runs.write_run(workplace.folder / "monday", [made_runs.Row("p0", {"Brand": "Acme"})])), bucket)
    Folder(f"{bucket}-other").write("notes.txt", b"x")
    config = f"{bucket}-other/job.yaml"
    Folder(f"{bucket}-other").write("job.yaml", b"output: s3://elsewhere/run\n")
    for place, told in (
        (f"{bucket}-nowhere", "there is no such folder"),
        ("s3://no-such-bucket-here/run", "there is no such folder"),
        (f"{bucket}-other", "it has no _plan.json"),
        (config, "it is a file, a folder is needed; the configuration's run is in s3://elsewhere/run"),
        (f"{bucket}/products", f"the run is in {bucket}"),
        (f"s3://{BUCKET}", f"there is one in {bucket}"),
    ):
        assert_all_refuse(asked, place, told)
