"""Runs whose every file lies on S3: a real server, the real command, and requests that break on the way."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import duckdb
import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from hpd_core.errors import ModelError, StorageError
from hpd_core.models.loading import resolve_source
from hpd_core.system import storage
from pipelines.catalog.finding import find_files
from pipelines.catalog.input_files import scan_sources
from pipelines.catalog.readers import read_piece
from pipelines.catalog.sharding import Piece
from pipelines.compare import app as compare_app
from pipelines.config.catalog_input import InputConfig
from pipelines.config.yaml_files import load_yaml
from pipelines.errors import RunError, UsageError
from pipelines.extract import app
from pipelines.job.run_status import read_status
from pipelines.report import app as report_app
from pipelines.store.folders import Folder, open_filesystem
from pipelines.store.lease import RunLease
from tests.pipelines.commands import ROOT, assert_same
from tests.pipelines.comparing import made_runs
from tests.pipelines.conftest import Workplace, product, products, read_table
from tests.pipelines.job.no_runs import readers
from tests.pipelines.job.s3_server import (
    BUCKET,
    PUBLIC_BUCKET,
    READ_SECONDS,
    READER_KEY,
    READER_SECRET,
    SECRET_KEY,
    Fault,
    FaultyProxy,
    S3Server,
    s3_server,
)
from tests.pipelines.reporting.made_runs import Answer, Product, metrics, write_run
from tests.pipelines.store.test_folders import assert_one_writer_wins
from tests.pipelines.store.test_lease import lasting


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Makes this process reach a server as a user would: through the environment."""

    def reach(server: S3Server, **changes: str | None) -> None:
        usual: dict[str, str | None] = dict.fromkeys(name for name in os.environ if name.startswith("AWS_"))
        usual |= {**server.environment, "AWS_EC2_METADATA_DISABLED": "true"}
        for name, value in {**usual, **changes}.items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)
        # Clients are kept per process; the environment is looked at when one is made.
        storage._s3_class().clear_instance_cache()

    yield reach
    storage._s3_class().clear_instance_cache()


@pytest.fixture
def bucket(server: S3Server, reach: Callable[..., None], request: pytest.FixtureRequest) -> str:
    """A place of the test's own in the bucket, reached with the owner's key."""
    reach(server)
    return f"s3://{BUCKET}/{request.node.name.replace('[', '-').rstrip(']')}"


def upload(source: Path, target: str) -> str:
    filesystem, path = storage.open_filesystem(target)
    filesystem.put(str(source), path, recursive=source.is_dir())
    return target


def download(source: str, target: Path) -> Path:
    filesystem, path = storage.open_filesystem(source)
    for name in filesystem.find(path):
        local = target / name.removeprefix(f"{path}/")
        local.parent.mkdir(parents=True, exist_ok=True)
        filesystem.get_file(name, str(local))
    return target


def everything_on_s3(workplace: Workplace, bucket: str) -> str:
    """Uploads catalog, schemas and model, and a configuration that names them there; returns its URI."""
    document = workplace.document()
    document["input"]["path"] = upload(workplace.catalog, f"{bucket}/catalog")
    document["schemas"] = upload(Path(document["schemas"]), f"{bucket}/schemas.yaml")
    document["model"] = upload(workplace.model, f"{bucket}/model")
    document["output"] = f"{bucket}/out"
    Folder(bucket).write("job.yaml", yaml.safe_dump(document, sort_keys=False).encode())
    return f"{bucket}/job.yaml"


def extract(config: str, server: S3Server, *arguments: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
    environment: dict[str, str] = {**os.environ, **server.environment, "AWS_EC2_METADATA_DISABLED": "true"}
    for name, value in changes.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    command = [sys.executable, "pipelines/extract.py", "--config", config, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3000, env=environment)


def mixed_catalog(workplace: Workplace) -> None:
    workplace.write_parquet("a.parquet", products(30), row_group_size=7)
    workplace.write_jsonl("b.jsonl", [*products(20, 30), product(50, category=None), '{"id": "p51"'])


def assert_same_run(local: Path, remote: Path) -> None:
    """Equal tables; a row's file is known by its last name, since the two runs read different folders."""
    for table in ("products", "attributes", "dead_letter"):
        rows = [read_table(folder, table) for folder in (local, remote)]
        for row in rows[0] + rows[1]:
            row["source_file"] = row["source_file"].rsplit("/", 1)[-1]
            row.pop("model_id", None)
            row.pop("carried_from", None)
        assert_same(*rows)


@pytest.mark.usefixtures("shared_ray")
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
@pytest.mark.usefixtures("shared_ray")
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
@pytest.mark.usefixtures("shared_ray")
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
@pytest.mark.usefixtures("shared_ray")
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
            rows = read_piece(f"{bucket}/{name}", file_format, Piece(0, 0, 30, 30, 0, size), None)
            with pytest.raises(RunError, match=f"cannot read s3://.*{name}"):
                list(rows)
        assert proxy.faults[fault]


def test_an_input_that_is_deleted_during_the_run_is_no_damaged_data(bucket: str, tmp_path: Path) -> None:
    path = Workplace(tmp_path, tmp_path).write_parquet("a.parquet", products(30), row_group_size=10)
    uri = upload(path, f"{bucket}/a.parquet")
    rows = read_piece(uri, "parquet", Piece(0, 0, 30, 30), None)
    assert [next(rows).number for _ in range(10)] == list(range(10))
    Folder(bucket).remove("a.parquet")
    with pytest.raises(RunError, match="cannot read s3://"):
        list(rows)


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


def test_folders_on_s3(bucket: str) -> None:
    folder = Folder(f"{bucket}/out")
    folder.require()
    assert folder.is_empty()
    assert folder.read_json("_plan.json") is None
    assert folder.create("_shards/1.json", b"1")
    assert not folder.create("_shards/1.json", b"2")
    folder.write("a/x.json", b"1")
    folder.write("a/x.json", b"2")
    folder.copy("a/x.json", "public/y.json")
    assert (folder.read("_shards/1.json"), folder.read("public/y.json")) == (b"1", b"2")
    assert folder.list("a") == ["x.json"]
    assert folder.list("nothing") == []
    with folder.open("a/x.json") as file:
        assert file.read() == b"2"
    with pytest.raises(FileNotFoundError):
        folder.copy("a/nothing", "public/z")
    folder.remove("a")
    folder.remove("a")
    assert not folder.exists("a/x.json")
    assert not folder.is_empty()


def test_of_many_writers_of_one_object_exactly_one_wins(bucket: str) -> None:
    assert_one_writer_wins(Folder(f"{bucket}/out"), 6, 10)


def test_a_lease_on_s3_is_held_by_one(bucket: str) -> None:
    folder, console = Folder(f"{bucket}/out"), Console(file=io.StringIO())
    with lasting(folder, 9).hold(console) as lease:
        with pytest.raises(RunError, match="is working on"), RunLease(folder, 9).hold(console):
            pass
        lease.check()
    with RunLease(folder, 9).hold(console):
        assert len(folder.list("_lease")) <= 2


def test_without_access_the_message_says_what_to_do(
    workplace: Workplace, server: S3Server, reach: Any, bucket: str
) -> None:
    workplace.write_parquet("a.parquet", products(3))
    config = everything_on_s3(workplace, bucket)
    reads = InputConfig.model_validate({"path": f"{bucket}/catalog", "id": "id", "fields": ["title"]})

    reach(server, AWS_SECRET_ACCESS_KEY="wrong-secret-5c1d")
    with pytest.raises(UsageError, match="access denied") as wrong:
        scan_sources(reads)
    assert "wrong-secret-5c1d" not in str(wrong.value)

    reach(server, AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None, HOME="/nonexistent")
    with pytest.raises(UsageError, match=r"no usable AWS credentials.*input\.anonymous"):
        scan_sources(reads)

    reach(server, AWS_PROFILE="nobody")
    with pytest.raises(UsageError, match=r"nobody"):
        load_yaml(config)

    reach(server, AWS_ENDPOINT_URL="http://127.0.0.1:9", AWS_MAX_ATTEMPTS="1")
    with pytest.raises(UsageError, match="AWS_ENDPOINT_URL"):
        scan_sources(reads)
    with pytest.raises(StorageError, match="AWS_ENDPOINT_URL"):
        Folder(f"{bucket}/out").read_json("_plan.json")

    reach(server, AWS_ENDPOINT_URL="localhost:9000")
    with pytest.raises(UsageError, match="AWS_ENDPOINT_URL must begin with http"):
        load_yaml(config)

    reach(server)
    with pytest.raises(UsageError, match="Invalid bucket name"):
        load_yaml("s3://No Such Name!/x.yaml")
    reach(server, AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None, HOME="/nonexistent")
    with pytest.raises(StorageError, match="no usable AWS credentials"), open_filesystem(f"{bucket}/x")[0].open(
        f"{bucket}/x", "wb"
    ) as file:  # fmt: skip
        file.write(b"1")


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
    missing = refused("--set", "output=s3://nowhere-at-all/out")
    assert "cannot write to output folder s3://nowhere-at-all/out" in missing
    assert "no such file: s3://nowhere-at-all/job.yaml" in refused(config="s3://nowhere-at-all/job.yaml")
    assert f"model '{bucket}/nothing': {bucket}/nothing: no such folder" in refused("--set", f"model={bucket}/nothing")
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
    rows = list(read_piece(uri, "parquet", Piece(0, 0, 5, 5), ["title"], anonymous=True))
    assert [row.number for row in rows] == [0, 1, 2, 3, 4]
    with pytest.raises(UsageError, match="no usable AWS credentials"):
        scan_sources(InputConfig.model_validate(config | {"anonymous": False}))


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
        for command, ask in asked.items():
            code, text = ask(place)
            flat = " ".join(text.split())
            assert code == 2, (command, place, text)
            assert f"there is no run in {place}" in flat, (command, place, text)
            assert told in flat, (command, place, text)
