"""What the job can carry beside the engine: a made-up catalog of any size through the real command.

    python pipelines/load_test.py --rows 100000
    python pipelines/load_test.py --rows 100000 --stages 20 --profile profile.txt
    python pipelines/load_test.py --rows 3000 --categories 1000 --stages 0 --clustered --set decoding=hpd
    python pipelines/load_test.py --compare configs/demo.yaml

Without a model: answers are made up (`decoding: made-up`), everything else is real: Ray Data, reading, tokenization,
parsing, evidence, all tables, commits. With `--compare`, a job of yours with its real model: how much of the bare
engine's speed it keeps. Prints tables, and one JSON object as last line. Exit codes: 0; 1 the job
failed, or rows are not accounted for; 2 wrong usage.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
from rich.console import Console
from rich.table import Table

from hpd_core.extractor import versions
from pipelines.config import JobConfig
from pipelines.config_file import load_config
from pipelines.errors import RunError, UsageError
from pipelines.load import core
from pipelines.load.alone import STAGES, StageCosts, run_stages
from pipelines.load.catalog import COLUMNS, category_names, write_catalog
from pipelines.load.measured import MeasuredRun, run_measured

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def main(
    rows: Annotated[int, typer.Option(min=1, help="Products in the catalog.")] = 100_000,
    categories: Annotated[int, typer.Option(min=1, help="Of its products.")] = len(category_names()),
    stages: Annotated[int, typer.Option(min=0, help="Shards to take through the stages without Ray as well.")] = 5,
    run: Annotated[bool, typer.Option("--run/--no-run", help="The run on Ray.")] = True,
    clustered: Annotated[
        bool, typer.Option("--clustered", help="That run a second time, clustered by category: what it gains.")
    ] = False,
    model: Annotated[str, typer.Option(help="Whose tokenizer is used.")] = "smollm2",
    changes: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As in extract.py.")] = None,
    seed: Annotated[int, typer.Option(help="Of the catalog.")] = 0,
    folder: Annotated[
        Path | None, typer.Option(help="A new folder for catalog and runs, kept; by default a temporary one.")
    ] = None,
    profile: Annotated[Path | None, typer.Option(help="Where the time goes in the stages: cProfile's table.")] = None,
    compare: Annotated[
        str | None, typer.Option(metavar="CONFIG", help="Instead: this job, beside one `extract` of its whole catalog.")
    ] = None,
) -> None:
    """Measure what the job can carry beside the engine."""
    signal.signal(signal.SIGTERM, _stop)
    console = Console(stderr=True)
    facts: dict[str, Any] = {"rows": rows, "categories": categories, "cpus": os.cpu_count(), "versions": versions()}
    with ExitStack() as stack:
        try:
            place = _place(folder, stack)
            if compare is not None:
                facts = {"cpus": os.cpu_count(), "versions": versions()}
                config = load_config(JobConfig, compare, [*(changes or []), f"output={json.dumps(str(place / 'run'))}"])
                print(json.dumps(facts | report_comparison(core.compare(config, place))))
                return
            console.print(f"writing {rows:,} products")
            catalog = write_catalog(place, rows, seed, categories)
            facts["catalog_bytes"] = sum(path.stat().st_size for path in catalog.iterdir())
            document = place / "template.yaml"
            document.write_text(json.dumps(_document(place, catalog, model)), encoding="utf-8")
            if stages:
                console.print("stages without Ray")
                costs = run_stages(_config(document, changes, place / "alone"), stages, profile)
                facts["stages"] = report_stages(costs)
            if run:
                console.print("the job on Ray")
                config = _config(document, changes, place / "run")
                measured = run_measured(config.model_dump(mode="json", exclude_none=True), place)
                facts["run"] = report_run(measured)
                if clustered:
                    console.print("the job on Ray, clustered by category")
                    clustering = [*(changes or []), "shards.cluster_by_category=true"]
                    config = _config(document, clustering, place / "clustered")
                    dealt = run_measured(config.model_dump(mode="json", exclude_none=True), place)
                    facts["clustered"] = report_run(dealt) | report_gain(measured, dealt)
        except UsageError as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(2) from None
        except (RunError, OSError) as error:
            typer.echo(f"Stopped: {error}", err=True)
            raise typer.Exit(1) from None
    print(json.dumps(facts))
    if not all(facts[name]["is_complete"] for name in ("run", "clustered") if name in facts):
        raise typer.Exit(1)


def _stop(number: int, _: object) -> None:
    """Ends on SIGTERM as on any error, so that the job and the temporary folder end with it."""
    for child in multiprocessing.active_children():
        child.terminate()
    raise SystemExit(128 + number)


def _place(folder: Path | None, stack: ExitStack) -> Path:
    if folder is None:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hpd-load-")))
    if folder.exists():
        raise UsageError(f"{folder} is there already, a new folder is needed")
    folder.mkdir(parents=True)
    return folder.absolute()


def _document(place: Path, catalog: Path, model: str) -> dict[str, Any]:
    return {
        "model": model,
        "decoding": "made-up",
        "input": {"path": str(catalog), "id": "id", "fields": list(COLUMNS)},
        "schemas": str(place / "schemas.yaml"),
        "output": str(place / "run"),
    }


def _config(document: Path, changes: list[str] | None, output: Path) -> JobConfig:
    return load_config(JobConfig, str(document), [*(changes or []), f"output={json.dumps(str(output))}"])


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


def report_run(run: MeasuredRun) -> dict[str, Any]:
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


def report_gain(plain: MeasuredRun, dealt: MeasuredRun) -> dict[str, Any]:
    """Prints what clustering saved of the engine's work, and gives it as plain data."""
    table = _table("clustering by category", "", "prefix tokens computed", "engine, busy s", "products/s while busy")
    speeds = []
    for name, run in (("as it is", plain), ("clustered", dealt)):
        metrics = run.totals["metrics"]
        speeds.append(run.totals["products"] / metrics["busy_seconds"] if metrics["busy_seconds"] else 0.0)
        tokens, busy = metrics["prefix_tokens_computed"], metrics["busy_seconds"]
        table.add_row(name, f"{tokens:,.0f}", f"{busy:.1f}", f"{speeds[-1]:,.2f}")
    gain = speeds[1] / speeds[0] if speeds[0] else None
    _print(table)
    if gain is not None:
        _print(f"Clustered, the engine does {gain:.2f} times as many products a second.")
    return {"gain": gain}


def report_comparison(found: core.Comparison) -> dict[str, Any]:
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


if __name__ == "__main__":
    app()
