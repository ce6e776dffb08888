"""Both executors: what they are chosen by, what they say while they work, and that they commit the same bytes."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipelines.job import local_executor
from pipelines.job.job_run import make_executor
from pipelines.job.local_executor import LocalExecutor
from pipelines.job.preflight import plan_job
from pipelines.job.ray_executor import RayExecutor
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


def test_what_the_job_needs_decides(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    workplace.write_jsonl("c.jsonl", products(3))
    ledger, console = Ledger(Folder(str(workplace.folder / "tries")), "s"), Console(file=io.StringIO())

    def chosen(**changes: Any) -> type:
        return type(make_executor(plan_job(workplace.config(**changes)), ledger, (), console))

    assert chosen() is LocalExecutor
    assert chosen(executor="ray") is RayExecutor
    assert chosen(actors={"max": 2}) is RayExecutor
    with monkeypatch.context() as machine:
        machine.setattr("torch.cuda.device_count", lambda: 2)
        assert chosen(engine={}) is RayExecutor, "an engine for each GPU"
        assert chosen(engine={}, actors={"max": 1}) is LocalExecutor
    for number in range(7):
        assert chosen() is LocalExecutor
        attempt = ledger.begin_try(3, 1, Span(0, 1))
        if number % 2:
            ledger.end_try(3, attempt, "the run was stopped")
    assert chosen() is RayExecutor, "a shard that ended its process four times is searched by processes that survive it"
    assert chosen(executor="local") is LocalExecutor
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert chosen() is RayExecutor
    with pytest.raises(Exception, match=r"executor 'local' is one process, actors\.max needs Ray"):
        chosen(executor="local", actors={"max": 2})
    cascade = {"model": str(workplace.model), "below": 0.5, "actors": {"max": 4}}
    with pytest.raises(Exception, match=r"executor 'local' is one process, cascade\.actors\.max needs Ray"):
        chosen(executor="local", cascade=cascade)


# Ray's watch
