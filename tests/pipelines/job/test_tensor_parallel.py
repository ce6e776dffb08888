"""Engines of several processes in a job."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from pipelines.job import ray_stages
from tests.pipelines.commands import ROOT
from tests.pipelines.conftest import Workplace, products, read_table
from tests.pipelines.job import faulty

# A node as the job finds it on AWS; nobody computes on its GPUs here.
ON_A_NODE_OF_EIGHT = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
cluster.add_node(num_cpus=4, num_gpus=8)
import os
os.environ["RAY_ADDRESS"] = cluster.address
from pipelines.extract import app
app(sys.argv[1:])
"""


def _texts(workplace: Workplace, output: str) -> list[tuple[Any, ...]]:
    rows = read_table(workplace.folder / output, "attributes")
    assert len(rows) > 20
    return sorted((row["product_id"], row["attribute"], row["status"], str(row["value_raw"])) for row in rows)


@pytest.mark.full
def test_a_process_that_dies_costs_a_retry(on_ray: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    on_ray.write_parquet("a.parquet", products(20))
    engine: dict[str, Any] = {"dtype": "float32", "device": "cpu"}
    on_ray.run(output=str(on_ray.folder / "whole"), engine=engine)
    monkeypatch.setattr(ray_stages, "Decode", faulty.BereavedDecode)
    outcome = on_ray.run(output=str(on_ray.folder / "cut"), engine=engine | {"tensor_parallel": 2})
    assert (outcome.totals.products, outcome.totals.dead_letters) == (20, 0)
    assert max(row["retries"] for row in read_table(on_ray.folder / "cut", "metrics")) >= 1
    assert _texts(on_ray, "cut") == _texts(on_ray, "whole")


@pytest.mark.soak
def test_an_engine_that_had_too_little_memory_comes_back_smaller(
    on_ray: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_ray.write_parquet("a.parquet", products(6))
    monkeypatch.setattr(ray_stages, "Decode", faulty.CrampedDecode)
    engine = {"dtype": "float32", "device": "cpu", "tensor_parallel": 2, "max_value_tokens": 6}
    outcome = on_ray.run(engine=engine, shards={"target_tokens": 10**6, "ramp": []})
    assert (outcome.totals.products, outcome.totals.dead_letters) == (6, 0)
    [row] = read_table(on_ray.folder / "out", "metrics")
    assert row["retries"] == 2, "4,096 tokens a step, 2,048, and 1,024 at last"


@pytest.mark.soak
def test_an_actor_takes_as_many_gpus_of_a_node_as_share_its_model(on_ray: Workplace) -> None:
    on_ray.write_parquet("a.parquet", products(12))
    engine = {"dtype": "float32", "device": "cpu", "tensor_parallel": 2, "max_value_tokens": 6}
    config = on_ray.write_config(engine=engine, actors={"max": 1, "num_threads": 1})
    done = subprocess.run(
        [sys.executable, "-c", ON_A_NODE_OF_EIGHT, "--config", str(config)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Note: 6 of the cluster's 8 GPUs will do nothing: raise actors.max" in done.stdout + done.stderr
    assert len(read_table(on_ray.folder / "out", "products")) == 12
    assert {row["node_share"] for row in read_table(on_ray.folder / "out", "metrics")} == {2 / 8}
