"""The rates that `load/simulation.py` needs, measured on this machine with the real command and a made-up catalog."""

from __future__ import annotations

import json
from pathlib import Path

from bench.load.measured_run import run_measured
from bench.load.simulation import Rates
from bench.load.stages_alone import run_stages
from pipelines.catalog.sharding import BYTES_PER_TOKEN, tokens_per_row
from pipelines.config.extraction import JobConfig
from pipelines.errors import UsageError
from pipelines.job.preflight import plan_job

# Sizes of a shard, in estimated tokens, of the two runs whose difference is what a shard costs.
_FEW_SHARDS, _MANY_SHARDS = 200_000, 4_000
_NUM_STAGE_SHARDS = 4
_STAGES_BESIDE_THE_GPU = ("prepare", "finish", "commit")


def measure_rates(config: JobConfig, place: Path, gpu_products_per_second: float) -> Rates:
    """Takes some shards through the stages, and runs the job twice. Raises `RunError`, or `UsageError` for few rows."""
    sized = config.shards.model_copy(update={"target_tokens": _FEW_SHARDS})
    job = plan_job(config.model_copy(update={"output": str(place / "alone"), "shards": sized}))
    if job.plan.estimated_tokens < 2 * _FEW_SHARDS:
        raise UsageError(f"--simulate: {job.plan.num_rows:,} rows make too few shards; more --rows are needed")
    text_tokens = job.plan.estimated_tokens / job.plan.num_rows - tokens_per_row(job.schemas)
    costs = run_stages(job, _NUM_STAGE_SHARDS)
    runs = []
    for name, target in (("few", _FEW_SHARDS), ("many", _MANY_SHARDS)):
        document = json.loads(config.model_dump_json(exclude_none=True))
        document |= {"output": str(place / name), "shards": {"target_tokens": target, "ramp": []}}
        runs.append(run_measured(document, place))
    few, many = runs
    more = many.totals["shards"] - few.totals["shards"]
    drivers = [run.usage["driver"] for run in runs]
    return Rates(
        gpu_products_per_second=gpu_products_per_second,
        row_bytes=text_tokens * BYTES_PER_TOKEN,
        row_tokens=tokens_per_row(job.schemas),
        stage_cpu_seconds=sum(costs.cpu_seconds[name] for name in _STAGES_BESIDE_THE_GPU) / costs.num_products,
        requests={kind: count / costs.num_shards for kind, count in costs.requests.items()},
        driver_cpu_seconds=max(0.0, drivers[1].cpu_seconds - drivers[0].cpu_seconds) / more,
        driver_bytes=max(0.0, drivers[1].peak_bytes - drivers[0].peak_bytes) / more,
    )
