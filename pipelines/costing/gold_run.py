"""Run of both models of a cascade over the products of a gold file, which need not be in the pilot.

<output>.pilot/gold-<hash>/run     the run over them; another gold file, or other rows of it, is another one
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePosixPath

from rich.console import Console

from hpd_core.types import content_hash
from pipelines.cascading.doubt import ALL
from pipelines.catalog.rows import default_id, row_id
from pipelines.config.extraction import JobConfig
from pipelines.config.operation import CostConfig
from pipelines.costing.pilot import certainty_of, without_threshold
from pipelines.costing.survey import planned_rows
from pipelines.errors import RunError, UsageError
from pipelines.job.driver import run_job
from pipelines.job.preflight import PlannedJob, plan_job
from pipelines.quality.gold import read_gold
from pipelines.store.folders import Folder


def run_gold(job: PlannedJob, gold: str, pilot: Folder, console: Console) -> str:
    """Run the rest of the run over the gold file's products, and return its folder.

    Raises `UsageError` if the catalog has none of them, `RunError` if counts differ, and as `run_job`.
    """
    rows = _gold_rows(job, gold)
    if not rows:
        raise UsageError(f"{gold} does not belong to this catalog: it has none of its products")
    name = content_hash([rows, without_threshold(job.plan.result_config) | certainty_of(job.config)])
    config = _gold_config(job.config, pilot.describe(f"gold-{name}/run"))
    console.print(f"Both models answer the {sum(map(len, rows.values())):,} products of {gold}.", highlight=False)
    outcome = run_job(plan_job(config, only=rows), console)
    if outcome.discrepancy is not None:
        raise RunError(f"the counts of the run over {gold} do not add up: {outcome.discrepancy}")
    return config.output


def _gold_rows(job: PlannedJob, gold: str) -> dict[str, list[int]]:
    """Return input file -> numbers of its rows that the gold file labels, ascending."""
    products = read_gold(gold, job.schemas)
    ids = {product.product_id for product in products if product.product_id is not None}
    numbers = {product.row for product in products if product.product_id is None}
    name_of_gold = PurePosixPath(gold).name
    found: defaultdict[str, list[int]] = defaultdict(list)
    for file, row in planned_rows(job):
        if row.values is None:
            continue
        name = job.plan.files[file].name
        own = default_id(name, row.number) if job.config.input.id is None else row_id(row.values, job.config.input)
        # Lines without ids belong to the rows of the same number, where the job reads the gold file itself.
        if own in ids or (row.number in numbers and PurePosixPath(name).name == name_of_gold):
            found[name].append(row.number)
    return {name: sorted(rows) for name, rows in found.items()}


def _gold_config(config: JobConfig, output: str) -> JobConfig:
    assert config.cascade is not None
    changes = {
        "output": output,
        "cascade": config.cascade.model_copy(update={"below": ALL}),
        "shards": config.shards.model_copy(update={"cluster_by_category": False}),
        "run_id": None,
        "base": None,
        "retry_failed": None,
        "cost": CostConfig(),
        "max_dead_letter_share": 1.0,
    }
    return config.model_copy(update=changes)
