"""Costs measured by a finished run, and the forecast of another run from them.

A pilot is such a run, over evenly spaced rows of the catalog, dealt to shards in turn: each shard is a sample of the
whole catalog. Leaving out one group of shards at a time (the delete-a-group jackknife; Wolter, Introduction to Variance
Estimation, chapter 4) gives the variance of the whole estimate. It covers both the choice of products and a machine
that is slower for a while. Products are never resampled one by one, because those that ran in the same steps are
correlated.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from pipelines.config.extraction import JobConfig
from pipelines.errors import UsageError
from pipelines.job.run_plan import Plan, find_finished
from pipelines.reporting.forecast import TOKEN_KINDS, CategoryForecast, Forecast, ForecastAsked, Interval
from pipelines.reporting.machines import Gpu, assumed_seconds, planned_price, rate_text, share_in_fp8, work_per_row
from pipelines.store.tables import read_columns, read_part

UTILISATION = 0.95
"""Assumed share of an engine's time in which it computes, if no long run has measured it."""

FloatArray = npt.NDArray[np.float64]

# Number of groups that shards are merged into: enough for the interval, and independent of the run's size.
_GROUPS = 40
# From so many shards on, a pilot's first and last are not counted: the engine fills, and drains, in them.
_LEAST_TO_TRIM = 8
# Categories with fewer measured products share one rate.
_LEAST_PER_CATEGORY = 4


@dataclass(frozen=True, slots=True)
class Measurements:
    """Measurements of S strata, B batches, C categories.

    Attributes:
        counts: float64 [S, B], number of products measured.
        seconds: float64 [S, B], sum of their engine seconds.
        rows: float64 [C, S], number of rows in the catalog.
    """

    counts: FloatArray
    seconds: FloatArray
    rows: FloatArray


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """Engine seconds of the catalog: total, and [C] by category."""

    total: Interval
    by_category: list[Interval]


def estimate(measured: Measurements) -> CostEstimate:
    """Sum rows x mean seconds over strata. Raises `ValueError` for a stratum without a product or a single batch."""
    num_batches = measured.counts.shape[1]
    n, y = measured.counts.sum(axis=1), measured.seconds.sum(axis=1)
    if num_batches < 2 or (n == 0).any():
        raise ValueError("every stratum needs a product, and there must be two batches")
    means = y / n
    of_category = measured.rows @ means
    total = float(of_category.sum())
    # [S, B]: the means without each batch; a stratum that one batch holds alone keeps its own.
    rest = n[:, None] - measured.counts
    without = np.where(rest > 0, (y[:, None] - measured.seconds) / np.maximum(rest, 1), means[:, None])
    replicates = measured.rows @ without  # [C, B]
    # Degrees of freedom of a stratum: its number of batches, less one.
    freedom = (measured.counts > 0).sum(axis=1) - 1  # [S]

    def interval(value: float, moved: FloatArray, strata: npt.NDArray[np.bool_]) -> Interval:
        variance = (num_batches - 1) / num_batches * float(((moved - moved.mean()) ** 2).sum())
        degrees = max(1, min(num_batches - 1, int(freedom[strata].sum())))
        half = float(stdtrit(degrees, 0.975)) * variance**0.5
        return Interval(value, max(0.0, value - half), value + half)

    by_category = [
        interval(float(value), moved, rows > 0)
        for value, moved, rows in zip(of_category, replicates, measured.rows, strict=True)
    ]
    return CostEstimate(interval(total, replicates.sum(axis=0), n > 0), by_category)


def by_strata(
    counts: Mapping[str, FloatArray], seconds: Mapping[str, FloatArray], rows: Mapping[str, int]
) -> tuple[Measurements, set[str]]:
    """Make a stratum of each category that was measured often enough, and one of all others.

    Args:
        counts, seconds: category -> products and their seconds, float64 [B].
        rows: category -> rows of the catalog.

    Returns:
        The measurements, categories in the order of their names; and the categories of the last stratum.
    """
    measured = sorted(name for name, each in counts.items() if each.sum() >= _LEAST_PER_CATEGORY)
    known = {name: number for number, name in enumerate(measured)}
    pooled = [name for name, each in counts.items() if name not in known and each.any()] or measured
    strata = [[name] for name in known] + [pooled]
    names = sorted(rows)
    matrix = np.zeros((len(names), len(strata)))
    for number, name in enumerate(names):
        matrix[number, known.get(name, -1)] = rows[name]
    in_strata, their_seconds = (
        np.stack([sum(each[name] for name in part) for part in strata]) for each in (counts, seconds)
    )
    return Measurements(in_strata, their_seconds, matrix), set(names).difference(known)


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """Costs of products by category in a finished run.

    Attributes:
        uri: the run's folder.
        plan: plan of the run.
        counts, seconds: category -> decoded products and their engine seconds, float64 [groups of shards].
        metrics: one row per shard.
        engine: description of the engine.
        asked: counts of what a cascade's larger model was asked; empty without a cascade.
    """

    uri: str
    plan: Plan
    counts: Mapping[str, FloatArray]
    seconds: Mapping[str, FloatArray]
    metrics: list[dict[str, Any]]
    engine: Mapping[str, Any]
    asked: Mapping[str, int]


def read_costs(uri: str, option: str, model: int = 1, *, is_pilot: bool = False) -> MeasuredCosts:
    """Read the costs of one model of the finished run at `uri`, which the user has named by `option`.

    Args:
        model: 1, or 2 for the larger model of a cascade.
        is_pilot: whether the first and the last shard only filled and drained the engine.

    Raises `UsageError` if there is no finished run, or it decoded too little; `RunError` if it cannot be read.
    """
    folder, plan, manifest = find_finished(uri, option)
    column = "engine_seconds" if model == 1 else "cascade_seconds"
    names = sorted(folder.list("products"))
    if is_pilot and len(names) >= _LEAST_TO_TRIM:
        names = names[1:-1]
    num_groups = min(_GROUPS, len(names))
    counts: dict[str, FloatArray] = defaultdict(lambda: np.zeros(num_groups))
    seconds: dict[str, FloatArray] = defaultdict(lambda: np.zeros(num_groups))
    for number, name in enumerate(names):
        table = read_columns(folder, "products", name, ["category", column])
        # Null: carried over from a run before, which says nothing about the cost of decoding.
        sums = (
            table.filter(table[column].is_valid()).group_by("category").aggregate([(column, "sum"), (column, "count")])
        )
        for row in sums.to_pylist():
            counts[row["category"]][number % num_groups] += row[f"{column}_count"]
            seconds[row["category"]][number % num_groups] += row[f"{column}_sum"]
    if num_groups < 2 or not counts:
        raise UsageError(
            f"{option}: run {plan.run_id} in {uri} has decoded too little to say what a product costs "
            f"({num_groups} shard(s), {len(counts)} categories with answers): take more rows"
        )
    engine = manifest["engine"] if model == 1 else manifest["cascade"]["engine"]
    asked = manifest["totals"].get("cascade", {})
    metrics = [row for name in folder.list("metrics") for row in read_part(folder, f"metrics/{name}").to_pylist()]
    own = [row for row in metrics if (row.get("pass") or 1) == model]
    return MeasuredCosts(uri, plan, dict(counts), dict(seconds), own, engine, asked)


def forecast_of(
    config: JobConfig,
    costs: MeasuredCosts,
    rows: Mapping[str, int],
    num_dead: int,
    utilisation: float | None,
    num_others: int,
    *,
    is_pilot: bool,
    is_same_schemas: bool = True,
) -> Forecast:
    """Forecast from measured costs by category. Rare categories cost the mean of all that are rare.

    Args:
        rows: category -> rows of the catalog.
        num_dead: rows that cannot be extracted.
        utilisation: share of an engine's time in which it computes; None: measured, or assumed of a pilot.
        num_others: engines of another model that share machines without GPUs.
        is_pilot: whether the run sampled this catalog.
        is_same_schemas: whether the run asked for the same attributes.
    """
    strata, pooled = by_strata(costs.counts, costs.seconds, rows)
    found = estimate(strata)
    metrics, sampled = costs.metrics, {name: int(each.sum()) for name, each in costs.counts.items()}
    busy, load, billed = (
        sum(row[name] or 0.0 for row in metrics) for name in ("busy_seconds", "load_seconds", "billed_seconds")
    )
    measured = min(1.0, busy / (billed - load)) if billed > load and not is_pilot else UTILISATION
    decoded = sum(row["num_products"] - (row["num_carried"] or 0) for row in metrics)
    new = sum(count for name, count in rows.items() if name not in sampled)
    price = planned_price(config, metrics, num_others)
    return Forecast(
        basis="pilot" if is_pilot else "earlier run",
        source=costs.uri,
        created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        model=str(costs.engine["model_id"]),
        device=str(costs.engine.get("device_name") or costs.engine.get("device")),
        rows=sum(rows.values()) + num_dead,
        dead_rows=num_dead,
        sampled=sum(sampled.values()),
        num_batches=strata.counts.shape[1],
        work_hours=found.total.scaled(1 / 3600),
        # Rare categories that were not measured have prefixes, too.
        prefix_hours=_prefix_seconds(metrics) * max(1.0, len(rows) / len(sampled)) / 3600,
        load_seconds=_load_seconds(metrics),
        utilisation=measured if utilisation is None else utilisation,
        utilisation_source="set" if utilisation is not None else "assumed" if is_pilot else "measured",
        engines=config.actors.most(1 if metrics[0]["gpu_type"] is None else price.engines_per_node),
        price=price,
        categories=[
            CategoryForecast(name, rows[name], sampled.get(name, 0), hours.scaled(1 / 3600), name in pooled)
            for name, hours in zip(sorted(rows), found.by_category, strict=True)
        ],
        tokens={kind: sum(row.get(f"{kind}_tokens") or 0 for row in metrics) / max(1, decoded) for kind in TOKEN_KINDS},
        model_size=costs.engine.get("model_size"),
        assumed=[
            *(_assumed_of_pilot(config, costs, len(rows)) if is_pilot else []),
            *([f"texts are as long as those of run {costs.plan.run_id}"] if not is_pilot else []),
            *([f"{new:,} rows of categories that it did not have cost what rows of its rare ones did"] if new else []),
            *(["their schemas are like those of that run, which were others"] if not is_same_schemas else []),
            *(
                [f"after loading, an engine computes for {UTILISATION:.0%} of its time"]
                if is_pilot and utilisation is None
                else []
            ),
        ],
    )


def _assumed_of_pilot(config: JobConfig, costs: MeasuredCosts, num_categories: int) -> list[str]:
    rows, full = costs.plan.num_rows, (costs.engine.get("limits") or {}).get("max_prompts_per_cohort", 0)
    kept = config.engine.max_cached_prefixes
    notes = []
    if rows < full:
        notes.append(f"at most {rows} products were in the engine at a time: with {full} and more, each may cost less")
    if num_categories > kept:
        notes.append(
            f"prefixes are computed once an engine, although it keeps {kept} of {num_categories} "
            f"(engine.max_cached_prefixes)"
        )
    return notes


def _prefix_seconds(metrics: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean seconds that an engine spends on prefixes."""
    engines = len({row["actor_id"] for row in metrics if row["prefix_seconds"]})
    return sum(row["prefix_seconds"] or 0.0 for row in metrics) / max(1, engines)


def _load_seconds(metrics: Sequence[Mapping[str, Any]]) -> float:
    loads = [row["load_seconds"] for row in metrics if row["load_seconds"] > 0]
    return sum(loads) / len(loads) if loads else 0.0


def with_larger(first: Forecast, larger: Forecast, below: float, costs: MeasuredCosts) -> Forecast:
    """Combine the forecasts of both models of a cascade. `costs`: those of the first, which say what was asked."""
    # An assumption about both is stated once.
    assumed = [each for each in larger.assumed if each not in first.assumed]
    answers = costs.asked.get("asked", 0) / max(1, costs.asked.get("answers", 0))
    products = sum(row["num_products"] for row in costs.metrics)
    share = min(1.0, costs.asked.get("products", 0) / max(1, products))
    asked = ForecastAsked(below, Interval(answers, answers, answers), share)
    return replace(first, larger=replace(larger, assumed=assumed), asked=asked)


def on_other_machine(
    forecast: Forecast, config: JobConfig, engine: Mapping[str, Any], gpu: Gpu, efficiency: float
) -> Forecast:
    """Convert the forecast to the same work on a GPU that was not measured."""
    taken = forecast.rows - forecast.dead_rows
    work = work_per_row(config, engine, forecast.tokens)
    seconds, in_fp8 = assumed_seconds(work, gpu, efficiency) * taken, share_in_fp8(work, gpu)
    measured = forecast.work_hours.estimate * 3600
    factor = seconds / measured if measured else 0.0
    return replace(
        forecast,
        device=gpu.name,
        engines=config.actors.most(forecast.price.engines_per_node),
        measured_on=forecast.device,
        work_hours=forecast.work_hours.scaled(factor),
        prefix_hours=forecast.prefix_hours * factor,
        categories=[replace(each, hours=each.hours.scaled(factor)) for each in forecast.categories],
        assumed=[
            *forecast.assumed,
            f"{gpu.name} was not measured: the pilot's operations at {efficiency:.0%} of its {rate_text(work, gpu)}, "
            f"at least its weights at {efficiency:.0%} of {gpu.bandwidth / 1e9:,.0f} GB/s in every step",
            f"of its {gpu.memory / 1e9:,.0f} GB the weights take {work.weight_bytes / 1e9:,.1f}",
            *([f"with engine.quantization: fp8 the work would take {in_fp8:.0%} of the time"] if in_fp8 < 1 else []),
            f"loading takes as long as on {forecast.device}",
            *([f"utilisation is as on {forecast.device}"] if forecast.utilisation_source == "measured" else []),
            f"the interval is that of the sample alone: at {efficiency / 2:.0%} instead of {efficiency:.0%} the work "
            "takes twice as long",
        ],
    )
