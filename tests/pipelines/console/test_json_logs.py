"""What a run's processes log, read from the files of a real Ray."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import ray

from pipelines.console import json_logs
from tests.pipelines.conftest import Workplace, product, products, read_table


def logged(run_id: str) -> list[dict[str, Any]]:
    """The run's lines, from all workers of this node."""
    from ray._private.worker import global_worker

    lines = []
    for path in Path(global_worker.node.get_logs_dir_path()).glob("worker-*.err"):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("{") and f'"run": "{run_id}"' in line:
                lines.append(json.loads(line))
    return lines


@pytest.mark.full
def test_the_story_of_every_shard_can_be_put_together(on_ray: Workplace) -> None:
    on_ray.write_jsonl("c.jsonl", [*products(30), product(30, category="Hats")])
    on_ray.run(run_id="logged", max_dead_letter_share=1)
    lines = logged("logged")
    metrics = {row["shard"]: row for row in read_table(on_ray.folder / "out", "metrics")}
    for event in ("prepared", "decoded", "committed"):
        told = {line["shard"]: line for line in lines if line["message"] == event}
        assert told.keys() == metrics.keys()
        assert all({"time", "level", "logger", "node", "worker"} <= line.keys() for line in told.values())
    decoded = {line["shard"]: line for line in lines if line["message"] == "decoded"}
    for shard, row in metrics.items():
        assert decoded[shard]["attempt"] == row["attempt_id"]
        assert decoded[shard]["actor"] == row["actor_id"]
        assert decoded[shard]["busy_seconds"] == pytest.approx(row["busy_seconds"])
    assert sum(line["dead"] for line in lines if line["message"] == "prepared") == 1


def test_a_process_without_ray_logs_and_starts_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked() -> None:
        raise AssertionError("the question starts a Ray")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "get_runtime_context", asked)
    monkeypatch.setattr(json_logs, "_LOGGERS", ("a_process_without_ray",))
    json_logs.log_as_json("of a load test")
    logging.getLogger("a_process_without_ray").info("prepared")
    line = json.loads(capsys.readouterr().err)
    assert (line["run"], line["message"], "node" in line) == ("of a load test", "prepared", False)
