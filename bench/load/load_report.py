"""What the load test prints; each report is given back as plain data, too."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.load import job_overhead
from bench.load.measured_run import LoadedRun


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


def report_run(run: LoadedRun) -> dict[str, Any]:
    """Prints what a run on Ray took, and gives it as plain data."""
    products = int(run.totals["products"])
    table = _table(f"{run.totals['rows']:,} rows on Ray", "", "")
    for name, text in (
        ("products/s, loaded engine to last commit", f"{run.products_per_second:,.0f}"),
        ("start to loaded engine", f"{run.startup_seconds:.1f} s"),
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
