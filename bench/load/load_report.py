"""What the load test prints; each report is given back as plain data, too."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.load import job_overhead
from bench.load.csv_planning import PlanningCost
from bench.load.measured_run import LoadedRun
from bench.load.stages_alone import STAGES, StageCosts


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="left" if not column else "right")
    return table


def _print(*what: Any) -> None:
    # Without a terminal, tables are not squeezed to 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 120)
    for each in what:
        console.print(each, highlight=False)


def report_stages(costs: StageCosts) -> dict[str, Any]:
    """Prints what the stages cost without Ray, and gives it as plain data."""
    table = _table(f"{costs.num_products:,} products, without Ray", "", "CPU ms/product", "message bytes/product")
    for name in STAGES:
        size = costs.message_bytes[name] / max(1, costs.num_products)
        table.add_row(name, f"{costs.milliseconds_per_product[name]:.3f}", f"{size:,.0f}")
    total = sum(costs.milliseconds_per_product.values())
    table.add_row("all", f"{total:.3f}", "")
    _print(table)
    return dataclasses.asdict(costs) | {"cpu_milliseconds_per_product": costs.milliseconds_per_product | {"all": total}}


def report_run(run: LoadedRun) -> dict[str, Any]:
    """Prints what a run on Ray took, and gives it as plain data."""
    products = int(run.totals["products"])
    table = _table(f"{run.totals['rows']:,} rows on Ray", "", "")
    for name, text in (
        ("products/s, loaded engine to last commit", f"{run.products_per_second:,.0f}"),
        ("start to loaded engine", f"{run.startup_seconds:.1f} s"),
        *([("of it, clustering by category", f"{run.clustering_seconds:.1f} s")] if run.clustering_seconds else []),
        ("loaded engine to first commit", f"{run.first_commit_seconds:.1f} s"),
        ("loaded engine to last commit", f"{run.work_seconds:.1f} s"),
        ("of it, the last 5% of the rows", f"{run.tail_seconds:.1f} s"),
        ("last commit to the command's end", f"{run.end_seconds:.1f} s"),
        ("shards", f"{run.totals['shards']:,}"),
        ("rows in", f"{run.totals['rows']:,}"),
        ("products + dead letters out", f"{run.row_counts['products']:,} + {run.row_counts['dead_letter']:,}"),
        ("attribute rows", f"{run.row_counts['attributes']:,}"),
        ("read, written", f"{run.bytes_read / 1e6:,.1f} MB, {sum(run.bytes_written.values()) / 1e6:,.1f} MB"),
    ):
        table.add_row(name, text)
    processes = _table("processes", "", "number", "CPU s", "CPU ms/product", "peak MB, largest", "peak MB, together")
    for kind, usage in run.usage.items():
        processes.add_row(
            kind,
            str(usage.num_processes),
            f"{usage.cpu_seconds:.1f}",
            f"{1000 * usage.cpu_seconds / max(1, products):.3f}",
            f"{usage.peak_bytes / 1e6:,.0f}",
            f"{usage.peak_bytes_together / 1e6:,.0f}",
        )
    _print(table, processes)
    return dataclasses.asdict(run) | {"products_per_second": run.products_per_second, "is_complete": run.is_complete}


def report_gain(plain: LoadedRun, dealt: LoadedRun) -> dict[str, Any]:
    """Prints what clustering saved of the engine's work, and gives it as plain data."""
    table = _table("clustering by category", "", "prefix tokens computed", "engine, busy s", "products/s while busy")
    speeds = []
    for name, run in (("as it is", plain), ("clustered", dealt)):
        metrics = run.totals["metrics"]
        speeds.append(run.totals["products"] / metrics["busy_seconds"])
        tokens, busy = metrics["prefix_tokens_computed"], metrics["busy_seconds"]
        table.add_row(name, f"{tokens:,.0f}", f"{busy:.1f}", f"{speeds[-1]:,.2f}")
    gain = speeds[1] / speeds[0]
    _print(table, f"Clustered, the engine does {gain:.2f} times as many products a second.")
    return {"gain": gain}


def report_csv(plain: LoadedRun, from_csv: LoadedRun, num_bytes: int) -> dict[str, Any]:
    """Prints what it costs that a catalog is one CSV file, and gives it as plain data."""
    rows, seconds = int(from_csv.totals["rows"]), max(0.1, from_csv.startup_seconds - plain.startup_seconds)
    driver = [run.usage["driver"].peak_bytes / 1e6 for run in (plain, from_csv)]
    _print(
        f"As one CSV file of {num_bytes / 1e6:,.0f} MB: {seconds:.1f} s more before the engine is loaded "
        f"({rows / seconds:,.0f} rows/s), then {from_csv.products_per_second / plain.products_per_second:.2f} times as "
        f"many products/s; the driver's memory at most {driver[1]:,.0f} MB, {driver[0]:,.0f} MB with Parquet."
    )
    return {"csv_bytes": num_bytes, "seconds_before": seconds, "driver_peak_megabytes": driver}


def report_planning(cost: PlanningCost) -> dict[str, Any]:
    """Prints what it took to plan over one CSV file, and gives it as plain data."""
    _print(
        f"One CSV file of {cost.num_bytes / 1e6:,.0f} MB and {cost.num_rows:,} rows is planned in {cost.seconds:.1f} s "
        f"({cost.num_rows / cost.seconds:,.0f} rows/s), the next time in {cost.again_seconds:.1f} s; memory at most "
        f"{cost.peak_bytes / 1e6:,.0f} MB, {cost.bytes_before / 1e6:,.0f} MB before."
    )
    return dataclasses.asdict(cost)


def report_comparison(found: job_overhead.JobComparison) -> dict[str, Any]:
    """Prints how much of the bare engine's speed a job keeps, and gives it as plain data."""
    bare, job = found.core, found.job
    title = f"{bare.num_records:,} products, {job.totals['shards']} shards, {bare.num_threads} threads"
    table = _table(title, "", "s", "products/s", "CPU s")
    cpu = sum(usage.cpu_seconds for usage in job.usage.values())
    for name, seconds, cpu_seconds in (
        ("one extract, tokenization included", bare.seconds, bare.cpu_seconds),
        ("the job, first admission to last commit", found.job_seconds, None),
        ("the job from start to end", job.startup_seconds + job.work_seconds + job.end_seconds, cpu),
    ):
        text = "" if cpu_seconds is None else f"{cpu_seconds:.1f}"
        table.add_row(name, f"{seconds:.1f}", f"{bare.num_records / seconds:.2f}", text)
    _print(table, f"The job has {found.ratio:.1%} of the bare engine's speed.")
    return dataclasses.asdict(found) | {"ratio": found.ratio}
