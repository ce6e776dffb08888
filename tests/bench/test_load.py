"""The load test: its catalog, its measuring, and a small run of the command. No test here looks at speed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bench.load.made_up_catalog import COLUMNS, FILE_ROWS, category_names, make_rows, write_catalog
from bench.load.processes import Watch
from hpd_core import DocumentTokenizer, Record
from pipelines.schemas.schema_file import load_schemas
from tests.pipelines.commands import ROOT, wait_until
from tests.pipelines.conftest import Workplace, products, read_table


def test_the_catalog_is_what_the_load_test_promises(tmp_path: Path, tiny_model_dir: Path) -> None:
    catalog = write_catalog(tmp_path, 1200)
    (path,) = catalog.glob("*.parquet")
    rows = pq.read_table(path).to_pylist()
    assert [row["id"] for row in rows] == [f"p{i}" for i in range(1200)]
    assert {row["category"] for row in rows} == set(category_names())
    schemas = load_schemas(str(tmp_path / "schemas.yaml"))
    assert set(schemas) == set(category_names())
    assert {len(schema.attributes) for schema in schemas.values()} == {8}
    tokenizer = DocumentTokenizer.from_pretrained(str(tiny_model_dir))
    documents = tokenizer.encode([Record("", "", {name: row[name] for name in COLUMNS}) for row in rows])
    assert min(map(len, documents)) >= 60
    assert len({row["description"] for row in rows}) == 1200


def test_a_catalog_of_many_categories(tmp_path: Path) -> None:
    write_catalog(tmp_path, 2000, num_categories=30)
    names = {*category_names(), *(f"{name} 2" for name in category_names()), *(f"{n} 3" for n in category_names(6))}
    assert set(load_schemas(str(tmp_path / "schemas.yaml"))) == names == set(category_names(30))
    (path,) = (tmp_path / "catalog").glob("*.parquet")
    assert set(pq.read_table(path)["category"].to_pylist()) == names


def test_the_same_seed_gives_the_same_rows_and_another_one_others() -> None:
    assert make_rows(0, 500).equals(make_rows(0, 500))
    assert not make_rows(0, 500).equals(make_rows(0, 500, seed=1))


def test_a_large_catalog_has_several_files(tmp_path: Path) -> None:
    catalog = write_catalog(tmp_path, FILE_ROWS + 10)
    assert [pq.read_metadata(path).num_rows for path in sorted(catalog.iterdir())] == [FILE_ROWS, 10]


def test_processes_are_told_apart_and_counted() -> None:
    code = "import sys; data = bytearray(50_000_000); print('there', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        watched = Watch(process.pid)
        watched.look()
        process.communicate()
    watched.look()  # it has ended: nothing more to see
    usage = watched.usage()
    assert usage["driver"].num_processes == 1
    assert 50_000_000 < usage["driver"].peak_bytes == usage["driver"].peak_bytes_together
    assert usage["driver"].cpu_seconds > 0
    assert usage["tasks"].num_processes == 0


def test_a_run_without_a_model_fills_every_table_and_says_so(workplace: Workplace) -> None:
    workplace.write_parquet("a.parquet", [*products(40), products(1)[0] | {"category": None}])
    outcome = workplace.run(decoding="made-up")
    output = workplace.folder / "out"
    assert (outcome.totals.products, outcome.totals.dead_letters) == (40, 1)
    rows = read_table(output, "attributes")
    assert {row["model_id"] for row in rows} == {f"made-up (tokenizer of {workplace.model})"}
    assert {row["layout"] for row in rows} == {"made-up"}
    assert {row["status"] for row in rows} == {"value", "absent"}
    assert any(row["evidence"] for row in rows)
    assert any("made up" in note for note in outcome.notes)


@pytest.mark.full
def test_the_command_measures_and_accounts_for_every_row(tmp_path: Path, tiny_model_dir: Path) -> None:
    command = [sys.executable, "bench/load_test.py", "--rows", "600", "--stages", "2"]
    command += ["--model", str(tiny_model_dir), "--folder", str(tmp_path / "load")]
    command += ["--set", "shards.target_tokens=20000", "--profile", str(tmp_path / "profile.txt")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    run, stages = facts["run"], facts["stages"]
    assert run["totals"]["rows"] == run["row_counts"]["products"] == 600
    assert run["is_complete"]
    assert run["products_per_second"] > 0
    assert 0 < run["first_commit_seconds"] <= run["work_seconds"]
    assert run["tail_seconds"] < run["work_seconds"]
    assert {"driver", "engine", "tasks", "ray"} == set(run["usage"])
    assert all(usage["num_processes"] and usage["peak_bytes"] > 0 for usage in run["usage"].values())
    assert min(stages["cpu_seconds"].values()) > 0
    assert 0 < stages["num_products"] < 600
    assert "tables.py" in (tmp_path / "profile.txt").read_text()
    assert "products/s" in done.stdout

    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "is there already" in again.stderr


@pytest.mark.full
def test_a_large_csv_file_takes_no_more_memory_than_a_small_one(tiny_model_dir: Path) -> None:
    grown = []
    for rows in (100_000, 400_000):
        command = [sys.executable, "bench/load_test.py", "--rows", str(rows), "--stages", "0", "--no-run", "--csv"]
        done = subprocess.run(
            [*command, "--model", str(tiny_model_dir)], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        cost = json.loads(done.stdout.splitlines()[-1])["csv"]
        assert cost["num_rows"] == rows
        assert cost["again_seconds"] < cost["seconds"]
        grown.append(cost["peak_bytes"] - cost["bytes_before"])
    assert grown[1] < grown[0] + 60e6 < 200e6, grown


@pytest.mark.soak
def test_two_million_rows_of_csv_go_through_the_job(tiny_model_dir: Path) -> None:
    command = [sys.executable, "bench/load_test.py", "--rows", "2000000", "--stages", "0", "--csv"]
    done = subprocess.run(
        [*command, "--model", str(tiny_model_dir)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    for run in (facts["run"], facts["csv"]):
        assert run["totals"]["rows"] == run["row_counts"]["products"] == 2_000_000
    plain, from_csv = facts["csv"]["driver_peak_megabytes"]
    assert from_csv < plain + 150


@pytest.mark.soak
def test_what_clustering_gains_is_measured(tmp_path: Path, tiny_model_dir: Path) -> None:
    command = [sys.executable, "bench/load_test.py", "--rows", "240", "--categories", "40", "--stages", "0"]
    command += ["--clustered", "--model", str(tiny_model_dir), "--set", "decoding=hpd", "--set", "engine.device=cpu"]
    command += ["--set", "shards.target_tokens=8000", "--set", "engine.max_value_tokens=3"]
    command += ["--set", "engine.max_cached_prefixes=4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    plain, clustered = facts["run"], facts["clustered"]
    assert (plain["is_complete"], clustered["is_complete"]) == (True, True)
    assert plain["clustering_seconds"] == 0
    assert 0 < clustered["clustering_seconds"] < clustered["startup_seconds"]
    computed = [each["totals"]["metrics"]["prefix_tokens_computed"] for each in (plain, clustered)]
    assert computed[1] < computed[0]
    assert clustered["gain"] > 0
    assert f"{clustered['gain']:.2f} times as many products a second" in done.stdout


def test_a_gain_of_made_up_answers_is_none(tmp_path: Path) -> None:
    command = [sys.executable, "bench/load_test.py", "--rows", "10", "--clustered"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, "--set decoding=hpd" in done.stderr) == (2, True)


@pytest.mark.full
def test_a_load_test_that_is_ended_takes_its_job_along(tmp_path: Path, tiny_model_dir: Path) -> None:
    folder = tmp_path / "load"
    command = [sys.executable, "bench/load_test.py", "--rows", "20000", "--stages", "0", "--folder", str(folder)]
    command += ["--model", str(tiny_model_dir), "--set", "shards.target_tokens=2000"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: (folder / "run/_lease").exists() or process.poll() is not None)
        assert running(folder / "job.yaml")
        process.terminate()
        assert process.wait(600) == 128 + signal.SIGTERM
        assert not running(folder / "job.yaml")
        assert not (folder / "run/manifest.json").exists(), "it ended too late to test anything"
    finally:
        process.kill()
        process.wait()
        for pid in running(folder / "job.yaml"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def running(config: Path) -> list[int]:
    """Processes that work on the job."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(config).encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


@pytest.mark.soak
def test_a_job_is_compared_with_the_bare_engine(workplace: Workplace) -> None:
    workplace.write_parquet("a.parquet", products(120))
    config = workplace.write_config(output=str(workplace.folder / "elsewhere"))
    command = [sys.executable, "bench/load_test.py", "--compare", str(config)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["core"]["num_records"] == facts["job"]["row_counts"]["products"] == 120
    assert facts["job"]["totals"]["shards"] >= 10
    assert facts["ratio"] == pytest.approx(facts["core"]["seconds"] / facts["job_seconds"])
    assert facts["job_seconds"] > 0
    assert "of the bare engine's speed" in done.stdout

    few = subprocess.run([*command, "--set", "shards.target_tokens=100000"], cwd=ROOT, capture_output=True, text=True)
    assert few.returncode == 2
    assert "shards.target_tokens" in few.stderr
