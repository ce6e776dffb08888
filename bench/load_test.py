"""What the job can carry beside the engine: a made-up catalog of any size through the real command.

    python bench/load_test.py --rows 100000
    python bench/load_test.py --rows 100000 --stages 20 --profile profile.txt
    python bench/load_test.py --rows 3000 --categories 1000 --stages 0 --clustered --set decoding=hpd
    python bench/load_test.py --rows 2000000 --stages 0 --csv
    python bench/load_test.py --compare configs/demo.yaml

Without a model: answers are made up (`decoding: made-up`), everything else is real: Ray Data, reading, tokenization,
parsing, evidence, all tables, commits. With `--clustered`, what clustering by category gains. With `--csv`, what it
costs that the catalog is one CSV file. With `--compare`, a job of yours with its real model: how much of the bare
engine's speed it keeps. Prints tables, and
one JSON object as last line. Exit codes: 0; 1 the job failed, or rows are not accounted for; 2 wrong usage.
"""

from __future__ import annotations

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

from bench.load import job_overhead
from bench.load.csv_planning import plan_csv
from bench.load.load_report import (
    report_comparison,
    report_csv,
    report_gain,
    report_planning,
    report_run,
    report_stages,
)
from bench.load.made_up_catalog import COLUMNS, category_names, write_catalog, write_csv
from bench.load.measured_run import run_measured
from bench.load.stages_alone import run_stages
from hpd_core.extractor import versions
from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from pipelines.errors import RunError, UsageError
from pipelines.job.preflight import plan_job

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
    with_csv: Annotated[
        bool,
        typer.Option(
            "--csv", help="That run over the same catalog as one CSV file, too; with --no-run, its plan alone."
        ),
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
            if clustered and not (run and any(each.startswith("decoding=") for each in changes or [])):
                raise UsageError("--clustered measures a run with a real engine: add --set decoding=hpd, drop --no-run")
            place = _place(folder, stack)
            if compare is not None:
                facts = {"cpus": os.cpu_count(), "versions": versions()}
                config = load_config(JobConfig, compare, [*(changes or []), f"output={json.dumps(str(place / 'run'))}"])
                print(json.dumps(facts | report_comparison(job_overhead.compare(config, place))))
                return
            console.print(f"writing {rows:,} products")
            catalog = write_catalog(place, rows, seed, categories)
            facts["catalog_bytes"] = sum(path.stat().st_size for path in catalog.iterdir())
            document = place / "template.yaml"
            document.write_text(json.dumps(_document(place, catalog, model)), encoding="utf-8")
            if stages:
                console.print("stages without Ray")
                costs = run_stages(plan_job(_config(document, changes, place / "alone")), stages, profile)
                facts["stages"] = report_stages(costs)
            table = write_csv(catalog, place / "catalog.csv") if with_csv else catalog
            from_csv = [*(changes or []), f"input.path={json.dumps(str(table))}"]
            if with_csv and not run:
                console.print("planning over one CSV file")
                cost = plan_csv(_config(document, from_csv, place / "csv"), table.stat().st_size)
                facts["csv"] = report_planning(cost)
            if run:
                console.print("the job on Ray")
                config = _config(document, changes, place / "run")
                measured = run_measured(config.model_dump(mode="json", exclude_none=True), place)
                facts["run"] = report_run(measured)
                if with_csv:
                    console.print("the job on Ray, from one CSV file")
                    config = _config(document, from_csv, place / "csv")
                    read = run_measured(config.model_dump(mode="json", exclude_none=True), place)
                    facts["csv"] = report_run(read) | report_csv(measured, read, table.stat().st_size)
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
    if run and not all(facts[name]["is_complete"] for name in ("run", "csv", "clustered") if name in facts):
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


if __name__ == "__main__":
    app()
