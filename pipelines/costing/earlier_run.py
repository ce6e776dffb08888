"""Costs of an earlier run over a similar catalog, by category, for a forecast without a pilot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.costing.estimate import FloatArray
from pipelines.costing.pilot import read_costs, read_metrics
from pipelines.errors import UsageError
from pipelines.job.run_plan import Plan, find_finished
from pipelines.rewriting.decided_run import asked_by_calibration

# Number of groups that shards are merged into: enough for the interval, and independent of the run's size.
_GROUPS = 40


@dataclass(frozen=True, slots=True)
class EarlierCosts:
    """Costs of products by category in an earlier run.

    Attributes:
        plan: plan of the run.
        counts, seconds: category -> decoded products and their engine seconds, float64 [groups]. Groups are of shards,
            or of rows if the run is clustered.
        metrics: one row per shard.
        engine: description of the engine.
        asked: counts of what a cascade's larger model was asked (cascading/standing.py); empty without a cascade.
        asked_by: hash of the first model's calibration that decided what was asked; None without one.
    """

    run_id: str
    plan: Plan
    counts: Mapping[str, FloatArray]
    seconds: Mapping[str, FloatArray]
    metrics: list[dict[str, Any]]
    engine: Mapping[str, Any]
    asked: Mapping[str, int]
    asked_by: str | None


def read_earlier(uri: str, model: int = 1) -> EarlierCosts:
    """Read the costs of one model of the run at `uri`.

    Args:
        model: 1, or 2 for the larger model of a cascade.

    Raises `UsageError` if there is no finished run, or it does not record what products cost; `RunError` if it cannot
    be read.
    """
    folder, plan, manifest = find_finished(uri, "--from-run")
    column = "engine_seconds" if model == 1 else "cascade_seconds"
    names = folder.list("products")
    num_groups = min(_GROUPS, len(names))
    counts: dict[str, FloatArray] = defaultdict(lambda: np.zeros(num_groups))
    seconds: dict[str, FloatArray] = defaultdict(lambda: np.zeros(num_groups))
    for number, name in enumerate(names):
        part = read_costs(folder, name, ["category", "source_row", "cascade_seconds"])
        groups = np.full(part.num_rows, number % num_groups)
        if plan.is_clustered:
            # A category lies in one shard: groups of shards would not say how its products differ.
            groups = part["source_row"].to_numpy() % num_groups
        part = part.append_column("group", pa.array(groups))
        # Null: carried over from a run before, which says nothing about the cost of decoding.
        known = part.filter(part[column].is_valid())
        sums = known.group_by(["category", "group"]).aggregate([(column, "sum"), (column, "count")])
        for row in sums.to_pylist():
            counts[row["category"]][row["group"]] += row[f"{column}_count"]
            seconds[row["category"]][row["group"]] += row[f"{column}_sum"]
    if num_groups < 2 or not counts:
        raise UsageError(
            f"--from-run: run {plan.run_id} in {uri} has decoded too little to say what a product costs "
            f"({num_groups} shard(s), {len(counts)} categories); run a pilot"
        )
    engine = manifest["engine"] if model == 1 else manifest["cascade"]["engine"]
    asked = manifest["totals"].get("cascade", {})
    metrics, asked_by = read_metrics(folder, model), asked_by_calibration(manifest)
    return EarlierCosts(plan.run_id, plan, dict(counts), dict(seconds), metrics, engine, asked, asked_by)
