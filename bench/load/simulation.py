"""What a run on many GPUs would ask of everything that is not a GPU, computed from what was measured here.

Measured: CPU time of the stages for a product; requests to the storage for a shard; the driver's CPU time and memory
for a shard, from two real runs that differ in their number of shards; and the plan, made in full for as many products.
Assumed: what a GPU does a second, and the limits of machines and storage. Each demand is given as a share of its limit:
the largest breaks first.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.load.counting_folder import READS, WRITES
from pipelines.catalog.input_files import SourceFile
from pipelines.catalog.segments import Segment
from pipelines.catalog.sharding import plan_shards
from pipelines.config.operation import ShardConfig
from pipelines.job.run_plan import Plan, planned_files

GPUS = (1, 8, 64, 512)
PRODUCTS = (50_000_000, 1_000_000_000)
_FILE_ROWS, _GROUP_ROWS = 1_000_000, 10_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What there is of everything.

    Attributes:
        s3_reads, s3_writes: requests a second that a prefix of a bucket takes at least (AWS's documentation).
        request_seconds, requests_at_once: of a small request, and how many the driver has under way.
        driver_cores: a Python process uses one.
        driver_bytes: memory for the driver on the head node.
        cpus_per_gpu: of a g6e.48xlarge, for prepare, finish and commit.
    """

    s3_reads: float = 5500
    s3_writes: float = 3500
    request_seconds: float = 0.03
    requests_at_once: int = 16
    driver_cores: float = 1
    driver_bytes: float = 16 * 2**30
    cpus_per_gpu: float = 24


@dataclass(frozen=True, slots=True)
class Rates:
    """What was measured, and `gpu_products_per_second`, which is assumed.

    Attributes:
        row_bytes: text of a product.
        row_tokens: as `plan_shards` takes it.
        stage_cpu_seconds: of prepare, finish and commit; for a product.
        requests: to the run's folder, by kind; for a shard.
        driver_cpu_seconds, driver_bytes: of the driver while it runs; for a shard.
    """

    gpu_products_per_second: float
    row_bytes: float
    row_tokens: int
    stage_cpu_seconds: float
    requests: Mapping[str, float]
    driver_cpu_seconds: float
    driver_bytes: float


@dataclass(frozen=True, slots=True)
class PlanCosts:
    """A plan for so many products, made in full in a process of its own.

    Attributes:
        seconds: until it is ready to be stored.
        peak_bytes: of the process, over what it had before.
        stored_bytes: of `_plan.json`.
    """

    num_products: int
    num_shards: int
    seconds: float
    peak_bytes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run of `num_products` on `num_gpus`.

    Attributes:
        end_seconds: reading all manifests, as the driver does at its end.
        demands: shares of the limits, by name.
    """

    num_gpus: int
    num_products: int
    num_shards: int
    hours: float
    shards_per_second: float
    end_seconds: float
    demands: Mapping[str, float]

    @property
    def first(self) -> str:
        """The demand that comes nearest to its limit, or exceeds it most."""
        return max(self.demands, key=self.demands.__getitem__)


def plan_costs(num_products: int, rates: Rates, shards: ShardConfig, num_actors: int) -> PlanCosts:
    """Plans so many products of a made-up listing of files, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_plan_costs, (num_products, rates, shards, num_actors))


def _plan_costs(num_products: int, rates: Rates, config: ShardConfig, num_actors: int) -> PlanCosts:
    before, started = _peak_bytes(), time.perf_counter()
    files = []
    for number, first in enumerate(range(0, num_products, _FILE_ROWS)):
        rows = min(_FILE_ROWS, num_products - first)
        sizes = [min(_GROUP_ROWS, rows - start) for start in range(0, rows, _GROUP_ROWS)]
        segments = [Segment(size, round(size * rates.row_bytes)) for size in sizes]
        name = f"s3://bucket/catalog/2026-11-20/part-{number:05}.snappy.parquet"
        files.append(SourceFile(name, "parquet", round(rows * rates.row_bytes), "0" * 32, segments))
    shards = plan_shards(files, config, rates.row_tokens, num_actors)
    plan = Plan("run", "", {}, "", "", None, planned_files(files), shards)
    stored = plan.to_json()
    Plan.from_json(json.loads(stored), "")  # what a driver that continues the run does
    return PlanCosts(num_products, len(shards), time.perf_counter() - started, _peak_bytes() - before, len(stored))


def _peak_bytes() -> int:
    """Of this process since it began. (`getrusage` counts what its parent had when it was started.)"""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak) * 1024


def simulate(plan: PlanCosts, num_gpus: int, rates: Rates, limits: Limits) -> Scenario:
    """A run of the planned products on so many GPUs, all of them busy."""
    products_per_second = num_gpus * rates.gpu_products_per_second
    seconds = plan.num_products / products_per_second
    shards_per_second = plan.num_shards / seconds
    end_seconds = plan.num_shards * limits.request_seconds / limits.requests_at_once

    def requests(kinds: Sequence[str]) -> float:
        return shards_per_second * sum(rates.requests.get(kind, 0.0) for kind in kinds)

    demands = {
        "driver CPU": shards_per_second * rates.driver_cpu_seconds / limits.driver_cores,
        "driver memory": (plan.peak_bytes + plan.num_shards * rates.driver_bytes) / limits.driver_bytes,
        "S3 reads": requests(READS) / limits.s3_reads,
        "S3 writes": requests(WRITES) / limits.s3_writes,
        "CPUs beside the GPUs": rates.gpu_products_per_second * rates.stage_cpu_seconds / limits.cpus_per_gpu,
        "planning and end": (plan.seconds + end_seconds) / seconds,
    }
    return Scenario(
        num_gpus, plan.num_products, plan.num_shards, seconds / 3600, shards_per_second, end_seconds, demands
    )


def simulate_all(rates: Rates, shards: ShardConfig, limits: Limits) -> tuple[list[PlanCosts], list[Scenario]]:
    """Every number of products on every number of GPUs."""
    plans = [plan_costs(num_products, rates, shards, max(GPUS)) for num_products in PRODUCTS]
    return plans, [simulate(plan, num_gpus, rates, limits) for plan in plans for num_gpus in GPUS]


def to_dict(scenario: Scenario) -> dict[str, object]:
    """For machines."""
    return asdict(scenario) | {"first": scenario.first}
