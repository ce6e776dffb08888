"""Both executors: what they are chosen by, what they say while they work, and that they commit the same bytes."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hpd_core.system.user_cache import cache_folder
from pipelines.errors import UsageError
from pipelines.job import local_executor, ray_executor
from pipelines.job.driver import make_executor, run_job
from pipelines.job.loading_note import FIRST_SHARDS, loading_note
from pipelines.job.local_executor import LocalExecutor
from pipelines.job.preflight import plan_job
from pipelines.job.ray_executor import RayExecutor
from pipelines.job.ray_notes import note, restart_note
from pipelines.store.folders import Folder
from pipelines.store.isolation import Span
from pipelines.store.ledger import Ledger
from tests.pipelines.conftest import Workplace, product, products, read_table


def committed(output: Path) -> dict[str, Any]:
    """Digests of the answers' files, and the other rows without times and tries."""
    parts = sorted((output / "attributes").glob("*.parquet"))
    rows = [*read_table(output, "products"), *read_table(output, "dead_letter")]
    return {
        "answers": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in parts},
        "rows": [
            {key: value for key, value in row.items() if key not in ("engine_seconds", "attempts")} for row in rows
        ],
    }


def test_both_executors_commit_the_same_bytes_and_continue_each_others_runs(
    on_ray: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_ray.write_jsonl("c.jsonl", [*products(30), product(30, category="Hats"), product(31, id=None)])
    folder = on_ray.folder
    common: dict[str, Any] = {"run_id": "same", "max_dead_letter_share": 1, "decoding": "made-up"}
    on_ray.run(executor="ray", output=str(folder / "ray"), **common)
    on_ray.run(executor="local", output=str(folder / "local"), **common)
    assert committed(folder / "local") == committed(folder / "ray")
    assert len(committed(folder / "ray")["answers"]) > 3

    commit, numbers = local_executor.commit_shard, iter(range(100))

    def interrupted(*arguments: Any) -> Any:
        if next(numbers) == 3:
            raise KeyboardInterrupt
        return commit(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(local_executor, "commit_shard", interrupted)
        with pytest.raises(KeyboardInterrupt):
            on_ray.run(executor="local", output=str(folder / "both"), **common)
    on_ray.run(executor="ray", output=str(folder / "both"), **common)
    assert committed(folder / "both") == committed(folder / "ray")


def test_a_run_that_is_stopped_while_its_engine_is_loaded_anew_ends(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A try has failed, and the interrupt comes between the engine that is gone and the next one."""
    from pipelines.job.decode_stage import ShardDecoder

    workplace.write_parquet("a.parquet", products(24))
    load, loads, loading = ShardDecoder._load, iter(range(10)), threading.Event()

    def slow(decoder: Any) -> None:
        if next(loads):
            loading.set()
            time.sleep(0.5)
        load(decoder)

    def fails(*_: Any) -> Any:
        raise RuntimeError("out of memory, as it were")

    def interrupted(*arguments: Any, **options: Any) -> Any:
        assert loading.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(ShardDecoder, "_load", slow)
    monkeypatch.setattr(ShardDecoder, "_wait", fails)
    monkeypatch.setattr(local_executor, "wait", interrupted)
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        workplace.run()
    assert {thread.name for thread in set(threading.enumerate()) - before} == set()


def test_what_the_job_needs_decides(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    workplace.write_jsonl("c.jsonl", products(3))
    ledger, console = Ledger(Folder(str(workplace.folder / "tries")), "s"), Console(file=io.StringIO())

    def chosen(**changes: Any) -> type:
        return type(make_executor(plan_job(workplace.config(**changes)), ledger, (), console))

    assert chosen() is LocalExecutor
    assert chosen(executor="ray") is RayExecutor
    assert chosen(actors={"max": 2}) is RayExecutor
    assert chosen(shards={"cluster_by_category": True}) is RayExecutor
    for number in range(7):
        assert chosen() is LocalExecutor
        attempt = ledger.begin_try(3, 1, Span(0, 1))
        if number % 2:
            ledger.end_try(3, attempt, "the run was stopped")
    assert chosen() is RayExecutor, "a shard that ended its process four times is searched by processes that survive it"
    assert chosen(executor="local") is LocalExecutor
    clustered = plan_job(workplace.config(shards={"cluster_by_category": True}))
    resumed = dataclasses.replace(clustered, config=workplace.config(executor="local"))
    with pytest.raises(UsageError, match=r"begun with shards\.cluster_by_category, which needs Ray"):
        make_executor(resumed, ledger, (), console)
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert chosen() is RayExecutor
    with pytest.raises(Exception, match=r"executor 'local' is one process, actors\.max needs Ray"):
        chosen(executor="local", actors={"max": 2})
    cascade = {"model": str(workplace.model), "below": 0.5, "actors": {"max": 4}}
    with pytest.raises(Exception, match=r"executor 'local' is one process, cascade\.actors\.max needs Ray"):
        chosen(executor="local", cascade=cascade)


def test_a_run_says_what_it_waits_for_and_counts_what_no_shard_has_committed_yet(workplace: Workplace) -> None:
    workplace.write_jsonl("a.jsonl", products(60))
    text = io.StringIO()
    shards = {"target_tokens": 10**6, "ramp": []}
    job = plan_job(
        workplace.config(log_seconds=0.005, shards=shards, engine={"max_prompts_per_cohort": 4, "device": "cpu"})
    )
    assert len(job.shards) == 1
    run_job(job, Console(file=text, width=200))
    said = text.getvalue().splitlines()
    assert any(f"starting: loading the model {workplace.model}" in line for line in said), said
    counts = [int(line.split()[1]) for line in said if " of 60 products" in line]
    assert counts == sorted(counts)
    assert any(0 < count < 60 for count in counts), said


def test_the_log_is_a_file(workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    workplace.write_jsonl("a.jsonl", products(4))
    workplace.run(run_id="logged")
    lines = [json.loads(line) for line in (tmp_path / "hpd-logged.jsonl").read_text().splitlines()]
    assert [line["message"] for line in lines if line["shard"] == 0] == ["prepared", "decoded", "committed"]
    assert {line["run"] for line in lines} == {"logged"}


def test_a_log_that_cannot_be_written_stops_no_run(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "hpd-logged.jsonl").mkdir()
    workplace.write_jsonl("a.jsonl", products(4))
    assert workplace.run(run_id="logged").totals.products == 4


def test_what_is_fetched_and_compiled_first_is_said(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPD_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    local = str(workplace.model)
    assert loading_note(workplace.config()) == f"loading the model {local}, compiling kernels for this processor"
    (cache_folder() / "native").mkdir(parents=True)
    (cache_folder() / "native/kernels-0.so").touch()
    assert loading_note(workplace.config()) == f"loading the model {local}"
    for place in ("s3://bucket/model", "somebody/a-model-that-is-nowhere"):
        assert loading_note(workplace.config(model=place)) == f"fetching the model {place}, loading the model {place}"
    assert loading_note(workplace.config(model="smollm2")) == "loading the model smollm2"
    assert loading_note(workplace.config(model="/no/such/folder")) == "loading the model /no/such/folder"


# Ray's watch


@pytest.mark.full
def test_what_the_engines_on_ray_are_at(on_ray: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    @ray.remote(num_cpus=0)
    class Engine:
        def note(self, what: str, count: int = 0) -> None:
            note("run-x", what, count)

        def restarted(self) -> str:
            return restart_note()

        def die(self) -> None:
            os._exit(1)

    monkeypatch.setattr(ray_executor, "_SECONDS_BETWEEN_LOOKS", 0.0)
    config = on_ray.config(actors={"num_cpus": 1, "num_gpus": 0})
    executor = RayExecutor(config, "run-x")
    deadline = time.monotonic() + 30
    while ray.available_resources().get("CPU", 0.0) < 1 and time.monotonic() < deadline:
        time.sleep(0.1)  # actors of the test before are ending
    assert executor.watch().said == "waiting for an engine's process"
    crowded = RayExecutor(on_ray.config(actors={"num_cpus": 1, "num_gpus": 3}), "run-x")
    assert crowded.watch().said == "waiting for an engine's place in the cluster (3 GPU)"
    note("run-x", "loading")  # here, in no actor: nobody waits for this process
    first, second = Engine.remote(), Engine.remote()  # type: ignore[attr-defined]
    ray.get(first.note.remote("loading the model m"))
    assert executor.watch().said == "loading the model m"
    ray.get(second.note.remote("loading the model m"))
    assert executor.watch().said == "2 engines loading the model m"
    ray.get(first.note.remote(FIRST_SHARDS, 3))
    assert executor.watch() == (FIRST_SHARDS, 3)
    ray.get(second.note.remote(FIRST_SHARDS, 4))
    assert executor.watch() == (FIRST_SHARDS, 7)
    assert RayExecutor(config, "run-y").watch().said == "waiting for an engine's process", (
        "another run's are not its own"
    )
    third = Engine.options(max_restarts=1, max_task_retries=-1).remote()  # type: ignore[attr-defined]
    assert ray.get(third.restarted.remote()) == ""
    third.die.options(max_task_retries=0).remote()
    assert ray.get(third.restarted.remote()).startswith("an engine's process died (Ray ends processes at 95% of")


def test_the_cluster_that_is_waited_for_is_named(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody answers Ray tries for minutes."""
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    assert RayExecutor(workplace.config(), "run-x").watch().said == "waiting for Ray"
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert RayExecutor(workplace.config(), "run-x").watch().said == "waiting for Ray at RAY_ADDRESS head:6379"
