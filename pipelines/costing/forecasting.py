"""Measurements to a forecast: the estimate, the fixed cost apart, and how the price moves with the texts."""

from __future__ import annotations

import dataclasses
import datetime
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.config import JobConfig
from pipelines.costing.earlier import EarlierCosts
from pipelines.costing.estimate import Estimate, Measurements, estimate
from pipelines.costing.forecast import CategoryForecast, Forecast
from pipelines.costing.machines import Gpu, assumed_seconds, planned_price, work_per_row
from pipelines.costing.pilot import MeasuredRun, Pilot
from pipelines.errors import UsageError

UTILISATION = 0.95
"""Share of an engine's time in which it computes, where no long run has measured it."""

_TOKEN_KINDS = ("document", "key", "value")


def forecast_from_pilots(
    config: JobConfig, pilots: Sequence[tuple[Pilot, MeasuredRun]], source: str, utilisation: float | None
) -> Forecast:
    """From one pilot, or a first and a second one over the same strata.

    Raises `UsageError` if nothing was decoded.
    """
    first = pilots[0][0]
    metrics = [row for _, run in pilots for row in run.metrics]
    products = sum(row["num_products"] for row in metrics)
    if products == 0:
        dead = sum(row["num_dead_letters"] for row in metrics)
        raise UsageError(
            f"all {dead} rows of the pilot are dead letters, nothing can be priced: {source}/run/dead_letter says why"
        )
    categories = sorted({name for rows in first.draw.strata_rows for name in rows})
    found = estimate(_measurements(pilots, categories))
    sampled: dict[str, int] = defaultdict(int)
    for pilot, _ in pilots:
        for row in pilot.draw.rows:
            sampled[row.category] += row.batch in pilot.draw.measured_batches
    engines = max(1, len({row["actor_id"] for row in metrics}))
    # Rare categories that were not drawn have prefixes, too.
    unseen = len(categories) / max(1, len(sampled))
    return Forecast(
        basis="pilot",
        source=source,
        created_at=_now(),
        model=str(pilots[0][1].engine["model_id"]),
        device=_device(pilots[0][1].engine),
        rows=first.rows + sum(first.dead.values()),
        dead_rows=sum(first.dead.values()),
        sampled=sum(sampled.values()),
        num_batches=sum(len(pilot.draw.measured_batches) for pilot, _ in pilots),
        seed=first.identity["seed"],
        text_bytes=first.text_bytes / first.rows,
        sampled_text_bytes=_sampled_text_bytes(pilots),
        work_hours=found.total.scaled(1 / 3600),
        prefix_hours=sum(row["prefix_seconds"] or 0.0 for row in metrics) / engines * unseen / 3600,
        load_seconds=_load_seconds(metrics),
        utilisation=UTILISATION if utilisation is None else utilisation,
        utilisation_source="assumed" if utilisation is None else "set",
        engines=config.actors.max,
        price=planned_price(config, metrics),
        categories=_categories(first.draw.strata_rows, categories, sampled, found, set(first.draw.pooled)),
        tokens=_tokens(metrics),
        bytes_effect=_bytes_effect(pilots),
    )


def _measurements(pilots: Sequence[tuple[Pilot, MeasuredRun]], categories: Sequence[str]) -> Measurements:
    strata_rows = pilots[0][0].draw.strata_rows
    counts, seconds = [], []
    for pilot, run in pilots:
        draw = pilot.draw
        n, y = np.zeros((len(strata_rows), draw.num_batches)), np.zeros((len(strata_rows), draw.num_batches))
        for number, row in enumerate(draw.rows):
            n[row.stratum, row.batch] += 1
            y[row.stratum, row.batch] += run.seconds.get(number, 0.0)
        measured = draw.measured_batches
        counts.append(n[:, measured.start : measured.stop])
        seconds.append(y[:, measured.start : measured.stop])
    rows = np.array([[float(stratum.get(name, 0)) for stratum in strata_rows] for name in categories])
    return Measurements(np.concatenate(counts, axis=1), np.concatenate(seconds, axis=1), rows)


def _categories(
    strata_rows: Sequence[Mapping[str, int]],
    names: Sequence[str],
    sampled: Mapping[str, int],
    found: Estimate,
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
) -> Forecast:
    """From what an earlier run's products cost, by category. Those that it did not have cost what all others do.

    Args:
        rows: of the catalog, by category.
        text_bytes: mean of a row's text.
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
    tokens = _tokens(metrics)
    busy, load, billed = (sum(row[name] or 0.0 for row in metrics) for name in _TIMES)
    measured = busy / (billed - load) if billed > load else UTILISATION
    engines = max(1, len({row["actor_id"] for row in metrics}))
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
        prefix_hours=sum(row["prefix_seconds"] or 0.0 for row in metrics) / engines / 3600,
        load_seconds=_load_seconds(metrics),
        utilisation=min(1.0, measured) if utilisation is None else utilisation,
        utilisation_source="measured" if utilisation is None else "set",
        engines=config.actors.max,
        price=planned_price(config, metrics),
        categories=[
            CategoryForecast(name, rows[name], sampled.get(name, 0), hours.scaled(1 / 3600), name not in sampled)
            for name, hours in zip(names, found.by_category, strict=True)
        ],
        tokens=tokens,
        # Texts of other lengths were not compared: their tokens are taken to cost as much as others.
        bytes_effect=tokens["document"] / max(1e-9, sum(tokens.values())),
    )


_TIMES = ("busy_seconds", "load_seconds", "billed_seconds")


def on_other_machine(
    forecast: Forecast, config: JobConfig, engine: Mapping[str, Any], gpu: Gpu, efficiency: float
) -> Forecast:
    """The same work on a GPU that was not measured."""
    taken = forecast.rows - forecast.dead_rows
    seconds = assumed_seconds(work_per_row(config, engine, forecast.tokens), gpu, efficiency) * taken
    measured = forecast.work_hours.estimate * 3600
    factor = seconds / measured
    return dataclasses.replace(
        forecast,
        device=gpu.name,
        work_hours=forecast.work_hours.scaled(factor),
        prefix_hours=forecast.prefix_hours * factor,
        categories=[dataclasses.replace(each, hours=each.hours.scaled(factor)) for each in forecast.categories],
        assumed=[
            *forecast.assumed,
            f"{gpu.name} was not measured: the pilot's operations at {efficiency:.0%} of its {gpu.flops / 1e12:,.0f} "
            f"TFLOP/s, at least its weights at {efficiency:.0%} of {gpu.bandwidth / 1e9:,.0f} GB/s in every step",
            f"loading takes as long as on {forecast.device}",
        ],
    )


def _bytes_effect(pilots: Sequence[tuple[Pilot, MeasuredRun]]) -> float:
    """By which share the cost grows if every text grows by 100%: the slope within categories, from 0 to 1."""
    by_category: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for pilot, run in pilots:
        for number, row in enumerate(pilot.draw.rows):
            by_category[row.category].append((row.text_bytes, run.seconds.get(number, 0.0)))
    xy = xx = total_x = total_y = 0.0
    for pairs in by_category.values():
        x, y = np.array(pairs, dtype=float).T
        xy += float(((x - x.mean()) * (y - y.mean())).sum())
        xx += float(((x - x.mean()) ** 2).sum())
        total_x, total_y = total_x + float(x.sum()), total_y + float(y.sum())
    return min(1.0, max(0.0, xy / xx * total_x / total_y)) if xx and total_y else 0.0


def _sampled_text_bytes(pilots: Sequence[tuple[Pilot, MeasuredRun]]) -> float:
    """Mean text bytes of a row, as the sample would estimate it."""
    sums: dict[int, list[int]] = defaultdict(list)
    for pilot, _ in pilots:
        for row in pilot.draw.rows:
            if row.batch in pilot.draw.measured_batches:
                sums[row.stratum].append(row.text_bytes)
    first = pilots[0][0]
    rows = [sum(stratum.values()) for stratum in first.draw.strata_rows]
    return sum(rows[index] * float(np.mean(sizes)) for index, sizes in sums.items()) / sum(rows)


def _tokens(metrics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Tokens forwarded for a product, by kind."""
    products = sum(row["num_products"] - (row["num_carried"] or 0) for row in metrics)
    return {kind: sum(row[f"{kind}_tokens"] for row in metrics) / max(1, products) for kind in _TOKEN_KINDS}


def _load_seconds(metrics: Sequence[Mapping[str, Any]]) -> float:
    loads = [row["load_seconds"] for row in metrics if row["load_seconds"] > 0]
    return sum(loads) / len(loads) if loads else 0.0


def _device(engine: Mapping[str, Any]) -> str:
    return str(engine.get("device_name") or engine.get("device"))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
