"""What is said before the first shard: who waits for what, of real engines in real actors."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
import ray
from rich.console import Console

from hpd_core.system.user_cache import cache_folder
from pipelines.job import startup_notes
from pipelines.job.driver import run_job
from pipelines.job.preflight import plan_job
from pipelines.job.startup_notes import FIRST_SHARDS, Beginnings, loading, note
from tests.pipelines.conftest import Workplace, products


@ray.remote(num_cpus=0)
class _Engine:
    def note(self, run_id: str, what: str) -> None:
        note(run_id, what)


@pytest.mark.usefixtures("shared_ray")
def test_what_the_engines_are_at(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup_notes, "_SECONDS_BETWEEN_LOOKS", 0.0)
    config = workplace.config(actors={"num_cpus": 1, "num_gpus": 0})
    waits_for = Beginnings(config, "run-x")
    deadline = time.monotonic() + 30
    while ray.available_resources().get("CPU", 0.0) < 1 and time.monotonic() < deadline:
        time.sleep(0.1)  # actors of the test before are ending
    assert waits_for() == "waiting for an engine's process"
    crowded = Beginnings(workplace.config(actors={"num_cpus": 1, "num_gpus": 3}), "run-x")
    assert crowded() == "waiting for an engine's place in the cluster (3 GPU)"
    note("run-x", "loading")  # here, in no actor: nobody waits for this process
    first, second = _Engine.remote(), _Engine.remote()  # type: ignore[attr-defined]
    ray.get(first.note.remote("run-x", "loading the model m"))
    assert waits_for() == "loading the model m"
    ray.get(second.note.remote("run-x", "loading the model m"))
    assert waits_for() == "2 engines loading the model m"
    ray.get(first.note.remote("run-x", FIRST_SHARDS))
    assert waits_for() == FIRST_SHARDS
    assert Beginnings(config, "run-y")() == "waiting for an engine's process", "another run's are not its own"


def test_before_ray_is_there(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    assert Beginnings(workplace.config(), "run-x")() == "waiting for Ray"
    note("run-x", "nothing happens")


def test_what_is_fetched_and_compiled_first_is_said(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPD_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    local = str(workplace.model)
    assert loading(workplace.config()) == f"loading the model {local}, compiling kernels for this processor"
    (cache_folder() / "native").mkdir(parents=True)
    (cache_folder() / "native/kernels-0.so").touch()
    assert loading(workplace.config()) == f"loading the model {local}"
    for place in ("s3://bucket/model", "somebody/a-model-that-is-nowhere"):
        assert loading(workplace.config(model=place)) == f"fetching the model {place}, loading the model {place}"
    assert loading(workplace.config(model="smollm2")) == "loading the model smollm2"
    assert loading(workplace.config(model="/no/such/folder")) == "loading the model /no/such/folder"


@pytest.mark.usefixtures("shared_ray")
def test_a_run_says_what_it_waits_for(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup_notes, "_SECONDS_BETWEEN_LOOKS", 0.0)
    workplace.write_jsonl("a.jsonl", products(4))
    text = io.StringIO()
    job = plan_job(workplace.config(log_seconds=0.02))
    run_job(job, Console(file=text, width=200))
    said = [line for line in text.getvalue().splitlines() if "starting: " in line]
    assert any("waiting for an engine's process" in line for line in said), text.getvalue()
    assert any(f"loading the model {workplace.model}" in line for line in said), text.getvalue()


def test_the_cluster_that_is_waited_for_is_named(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody answers Ray tries for minutes."""
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert Beginnings(workplace.config(), "run-x")._said == "waiting for Ray at RAY_ADDRESS head:6379"
