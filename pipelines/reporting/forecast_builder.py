"""Forecasts from measurements: the estimate, the fixed cost, and the effect of text length on the price."""

from __future__ import annotations

import dataclasses
import datetime
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.config.extraction import JobConfig
from pipelines.errors import UsageError
from pipelines.job.run_plan import Plan, find_finished
from pipelines.quality.curve import TOKEN_KINDS
from pipelines.reporting.forecast import CategoryForecast, Forecast, Interval
from pipelines.reporting.machines import Gpu, assumed_seconds, planned_price, rate_text, share_in_fp8, work_per_row
from pipelines.reporting.pilot import MeasuredRun, Pilot, batches_in_flight, read_costs, read_metrics
from pipelines.reporting.strata import CostEstimate, FloatArray, Measurements, estimate
from pipelines.reviewing.decided_run import asked_by_calibration

UTILISATION = 0.95
"""Assumed share of an engine's time in which it computes, if no long run has measured it."""


def forecast_from_pilots(
    config: JobConfig,
    pilots: Sequence[tuple[Pilot, MeasuredRun]],
    source: str,
    utilisation: float | None,
    num_others: int = 0,
) -> Forecast:
    """Forecast from one pilot, or from a first and a second one over the same strata.

    Args:
        num_others: engines of another model that share machines without GPUs.

    Raises `UsageError` if nothing was decoded.
    """
    first = pilots[0][0]
    metrics = [row for _, run in pilots for row in run.metrics]
    if not any(run.seconds for _, run in pilots):
        dead = sum(row["num_dead_letters"] for row in metrics)
        raise UsageError(
            f"all {dead} rows of the pilot are dead letters, nothing can be priced: {source}/run/dead_letter says why"
        )
    categories = sorted({name for rows in first.draw.strata_rows for name in rows})
    found = _combined([(len(pilot.draw.rows), estimate(each)) for pilot, each in _measurements(pilots, categories)])
    sampled: Counter[str] = Counter()
    for pilot, _ in pilots:
        sampled.update(row.category for row in pilot.draw.rows if row.batch in pilot.draw.measured_batches)
    # Rare categories that were not drawn have prefixes, too.
    unseen = len(categories) / max(1, len(sampled))
    engine = pilots[0][1].engine
    measured_seconds = sum(sum(run.seconds.values()) for _, run in pilots)
    return Forecast(
        basis="pilot",
        source=source,
        created_at=_now(),
        model=str(engine["model_id"]),
        device=_device(engine),
        rows=first.rows + sum(first.dead.values()),
        dead_rows=sum(first.dead.values()),
        sampled=sum(sampled.values()),
        num_batches=sum(len(pilot.draw.measured_batches) for pilot, _ in pilots),
        seed=first.identity["seed"],
        text_bytes=first.text_bytes / first.rows,
        sampled_text_bytes=_sampled_text_bytes(pilots),
        work_hours=found.total.scaled(1 / 3600),
        prefix_hours=_prefix_seconds(metrics) * unseen / 3600,
        load_seconds=_load_seconds(metrics),
        utilisation=UTILISATION if utilisation is None else utilisation,
        utilisation_source="assumed" if utilisation is None else "set",
        engines=config.actors.max,
        price=planned_price(config, metrics, num_others),
        categories=_categories(first.draw.strata_rows, categories, sampled, found, set(first.draw.pooled)),
        # By a product's share of the seconds, not of the sample, which has more of the long texts than the catalog.
        tokens=_tokens(metrics, found.total.estimate / first.rows / max(1e-9, measured_seconds)),
        bytes_effect=_bytes_effect(pilots),
        model_size=engine.get("model_size"),
        assumed=[*_assumed_of_pilots(config, pilots, len(categories)), *_assumed_utilisation(utilisation)],
    )


def _assumed_utilisation(utilisation: float | None) -> list[str]:
    return [] if utilisation is not None else [f"after loading, an engine computes for {UTILISATION:.0%} of its time"]


def _assumed_of_pilots(
    config: JobConfig, pilots: Sequence[tuple[Pilot, MeasuredRun]], num_categories: int
) -> Iterator[str]:
    draw = pilots[0][0].draw
    in_flight = round(len(draw.rows) / draw.num_batches * batches_in_flight(draw, config))
    limits = pilots[0][1].engine.get("limits") or {}
    in_engine, full = min(in_flight, len(draw.rows)), limits.get("max_prompts_per_cohort", 0)
    if in_engine < full:
        yield f"at most {in_engine} products were in the engine at a time: with {full} and more, each may cost less"
    if num_categories > config.engine.max_cached_prefixes:
        yield (
            f"prefixes are computed once an engine, although it keeps {config.engine.max_cached_prefixes} of "
            f"{num_categories} (engine.max_cached_prefixes)"
        )


def catalog_total(pilots: Sequence[tuple[Pilot, Mapping[int, float]]]) -> Interval:
    """Estimate the catalog's total of an amount measured in each pilot, given as row number -> amount."""
    categories = sorted({name for rows in pilots[0][0].draw.strata_rows for name in rows})
    measured = [(pilot, MeasuredRun(amounts, [], {})) for pilot, amounts in pilots]
    return _combined(
        [(len(pilot.draw.rows), estimate(each)) for pilot, each in _measurements(measured, categories)]
    ).total


def _measurements(
    pilots: Sequence[tuple[Pilot, MeasuredRun]], categories: Sequence[str]
) -> Iterator[tuple[Pilot, Measurements]]:
    """Yield each pilot with its measurements.

    If a second pilot drew nothing of a stratum, the first had drawn all of it, so its means are used.
    """
    strata_rows = pilots[0][0].draw.strata_rows
    rows = np.array([[float(stratum.get(name, 0)) for stratum in strata_rows] for name in categories])
    first_means = np.zeros(len(strata_rows))
    for pilot, run in pilots:
        draw = pilot.draw
        n, y = np.zeros((len(strata_rows), draw.num_batches)), np.zeros((len(strata_rows), draw.num_batches))
        for number, row in enumerate(draw.rows):
            n[row.stratum, row.batch] += 1
            y[row.stratum, row.batch] += run.seconds.get(number, 0.0)
        measured = draw.measured_batches
        n, y = n[:, measured.start : measured.stop], y[:, measured.start : measured.stop]
        empty = n.sum(axis=1) == 0
        n[empty], y[empty] = 1.0, first_means[empty, None]
        first_means = y.sum(axis=1) / n.sum(axis=1)
        yield pilot, Measurements(n, y, rows)


def _combined(found: Sequence[tuple[int, CostEstimate]]) -> CostEstimate:
    """Combine independent estimates, weighted by the numbers of drawn rows.

    The weights must not depend on the measurements. Pooled pilots would under-count strata in which the first one
    happened to measure little, because a second one draws few rows there.
    """
    total = sum(size for size, _ in found)
    shares = [size / total for size, _ in found]

    def mix(intervals: Sequence[Interval]) -> Interval:
        value = sum(share * each.estimate for share, each in zip(shares, intervals, strict=True))
        halves = (share * (each.high - each.estimate) for share, each in zip(shares, intervals, strict=True))
        half = sum(each**2 for each in halves) ** 0.5
        return Interval(value, max(0.0, value - half), value + half)

    estimates = [each for _, each in found]
    by_category = [mix(each) for each in zip(*(each.by_category for each in estimates), strict=True)]
    return CostEstimate(mix([each.total for each in estimates]), by_category)


def _categories(
    strata_rows: Sequence[Mapping[str, int]],
    names: Sequence[str],
    sampled: Mapping[str, int],
    found: CostEstimate,
    pooled: set[str],
) -> list[CategoryForecast]:
    rows = {name: sum(stratum.get(name, 0) for stratum in strata_rows) for name in names}
    return [
        CategoryForecast(name, rows[name], sampled.get(name, 0), hours.scaled(1 / 3600), name in pooled)
        for name, hours in zip(names, found.by_category, strict=True)
    ]


def forecast_from_earlier(
    config: JobConfig,
    earlier: EarlierCosts,
    rows: Mapping[str, int],
    text_bytes: float,
    num_dead: int,
    source: str,
    utilisation: float | None,
    num_others: int = 0,
    *,
    is_same_schemas: bool,
    is_dealt_alike: bool,
) -> Forecast:
    """Forecast from the costs of an earlier run's products by category. Unknown categories cost the overall mean.

    Args:
        rows: category -> rows of the catalog.
        text_bytes: mean text bytes of a row.
        num_dead: rows that cannot be extracted.
        num_others: engines of another model that share machines without GPUs.
        is_same_schemas: whether the run asked for the same attributes.
        is_dealt_alike: whether both are clustered by category, or neither is.
    """
    known = sorted(name for name in earlier.counts if earlier.counts[name].sum() > 0)
    counts = np.stack([*(earlier.counts[name] for name in known), sum(earlier.counts.values())])
    seconds = np.stack([*(earlier.seconds[name] for name in known), sum(earlier.seconds.values())])
    names = sorted(rows)
    matrix = np.zeros((len(names), len(known) + 1))
    for number, name in enumerate(names):
        matrix[number, known.index(name) if name in earlier.counts else -1] = rows[name]
    found = estimate(Measurements(counts, seconds, matrix))
    metrics, sampled = earlier.metrics, {name: int(each.sum()) for name, each in earlier.counts.items()}
    tokens = _tokens(metrics, 1 / max(1.0, float(counts[-1].sum())))
    busy, load, billed = (sum(row[name] or 0.0 for row in metrics) for name in _TIMES)
    measured = busy / (billed - load) if billed > load else UTILISATION
    new = sum(count for name, count in rows.items() if name not in sampled)
    return Forecast(
        basis="earlier run",
        source=source,
        created_at=_now(),
        model=str(earlier.engine["model_id"]),
        device=_device(earlier.engine),
        rows=sum(rows.values()) + num_dead,
        dead_rows=num_dead,
        sampled=int(counts[-1].sum()),
        num_batches=counts.shape[1],
        seed=None,
        text_bytes=text_bytes,
        sampled_text_bytes=None,
        work_hours=found.total.scaled(1 / 3600),
        prefix_hours=_prefix_seconds(metrics) / 3600,
        load_seconds=_load_seconds(metrics),
        utilisation=min(1.0, measured) if utilisation is None else utilisation,
        utilisation_source="measured" if utilisation is None else "set",
        engines=config.actors.max,
        price=planned_price(config, metrics, num_others),
        categories=[
            CategoryForecast(name, rows[name], sampled.get(name, 0), hours.scaled(1 / 3600), name not in sampled)
            for name, hours in zip(names, found.by_category, strict=True)
        ],
        tokens=tokens,
        # Texts of other lengths were not compared: their tokens are taken to cost as much as others.
        bytes_effect=tokens["document"] / max(1e-9, sum(tokens.values())),
        model_size=earlier.engine.get("model_size"),
        assumed=[
            f"texts are as long as those of run {earlier.run_id}",
            *([f"{new:,} rows of categories that it did not have cost what its average row did"] if new else []),
            *(["shards hold as many categories as there (shards.cluster_by_category)"] if not is_dealt_alike else []),
            *(["their schemas are like those of that run, which were others"] if not is_same_schemas else []),
        ],
    )


_TIMES = ("busy_seconds", "load_seconds", "billed_seconds")


def on_other_machine(
    forecast: Forecast, config: JobConfig, engine: Mapping[str, Any], gpu: Gpu, efficiency: float
) -> Forecast:
    """Convert the forecast to the same work on a GPU that was not measured."""
    taken = forecast.rows - forecast.dead_rows
    work = work_per_row(config, engine, forecast.tokens)
    seconds, in_fp8 = assumed_seconds(work, gpu, efficiency) * taken, share_in_fp8(work, gpu)
    measured = forecast.work_hours.estimate * 3600
    factor = seconds / measured if measured else 0.0
    return dataclasses.replace(
        forecast,
        device=gpu.name,
        measured_on=forecast.device,
        work_hours=forecast.work_hours.scaled(factor),
        prefix_hours=forecast.prefix_hours * factor,
        categories=[dataclasses.replace(each, hours=each.hours.scaled(factor)) for each in forecast.categories],
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


def _bytes_effect(pilots: Sequence[tuple[Pilot, MeasuredRun]]) -> float:
    """Return the share by which the cost grows if every text grows by 100%: the slope within categories, from 0 to 1.

    Every product is weighted by the rows of its stratum, so that the slope is the catalog's and not the sample's.
    """
    first = pilots[0][0].draw
    drawn = Counter(row.stratum for pilot, _ in pilots for row in pilot.draw.rows)
    weights = {index: sum(first.strata_rows[index].values()) / count for index, count in drawn.items()}
    by_category: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for pilot, run in pilots:
        for number, row in enumerate(pilot.draw.rows):
            found = (weights[row.stratum], float(row.text_bytes), run.seconds.get(number, 0.0))
            by_category[row.category].append(found)
    xy = xx = total_x = total_y = 0.0
    for triples in by_category.values():
        w, x, y = np.array(triples).T
        dx, dy = x - np.average(x, weights=w), y - np.average(y, weights=w)
        xy, xx = xy + float((w * dx * dy).sum()), xx + float((w * dx * dx).sum())
        total_x, total_y = total_x + float((w * x).sum()), total_y + float((w * y).sum())
    return min(1.0, max(0.0, xy / xx * total_x / total_y)) if xx and total_y else 0.0


def _sampled_text_bytes(pilots: Sequence[tuple[Pilot, MeasuredRun]]) -> float:
    """Estimate the mean text bytes of a row from the sample."""
    sums: dict[int, list[int]] = defaultdict(list)
    for pilot, _ in pilots:
        for row in pilot.draw.rows:
            if row.batch in pilot.draw.measured_batches:
                sums[row.stratum].append(row.text_bytes)
    first = pilots[0][0]
    rows = [sum(stratum.values()) for stratum in first.draw.strata_rows]
    return sum(rows[index] * float(np.mean(sizes)) for index, sizes in sums.items()) / sum(rows)


def _tokens(metrics: Sequence[Mapping[str, Any]], factor: float) -> dict[str, float]:
    """Return the tokens forwarded for a product, by kind: the sums over shards times `factor`."""
    return {kind: sum(row.get(f"{kind}_tokens") or 0 for row in metrics) * factor for kind in TOKEN_KINDS}


def _prefix_seconds(metrics: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean seconds that an engine spends on prefixes."""
    engines = len({row["actor_id"] for row in metrics if row["prefix_seconds"]})
    return sum(row["prefix_seconds"] or 0.0 for row in metrics) / max(1, engines)


def _load_seconds(metrics: Sequence[Mapping[str, Any]]) -> float:
    loads = [row["load_seconds"] for row in metrics if row["load_seconds"] > 0]
    return sum(loads) / len(loads) if loads else 0.0


def _device(engine: Mapping[str, Any]) -> str:
    return str(engine.get("device_name") or engine.get("device"))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


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
        asked: counts of what a cascade's larger model was asked (cascading/both_answers.py); empty without a cascade.
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
