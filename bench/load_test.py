"""Load test, what the job can carry beside the engine: a made-up catalog of any size through the real command.

    python bench/load_test.py --rows 100000
    python bench/load_test.py --compare configs/demo.yaml

Without a model: answers are made up (`decoding: made-up`), everything else is real: Ray Data, reading, tokenization,
parsing, evidence, all tables, commits. With `--compare`, a job of yours with its real model: how much of the bare
engine's speed it keeps. Prints tables, and one JSON object as last line. Exit codes: 0; 1 the job failed, or rows are
not accounted for; 2 wrong usage.
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
from bench.load.made_up_catalog import COLUMNS, write_catalog
from bench.load.measured_run import report_run, run_measured
from hpd_core.extractor import versions
from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from pipelines.errors import RunError, UsageError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def main(
    rows: Annotated[int, typer.Option(min=1, help="Products in the catalog.")] = 100_000,
    categories: Annotated[int, typer.Option(min=1, max=1000, help="Of its products.")] = 12,
    model: Annotated[str, typer.Option(help="Whose tokenizer is used.")] = "smollm2",
    changes: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As in extract.py.")] = None,
    seed: Annotated[int, typer.Option(help="Of the catalog.")] = 0,
    folder: Annotated[
        Path | None, typer.Option(help="A new folder for catalog and runs, kept; by default a temporary one.")
    ] = None,
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
                print(json.dumps(facts | job_overhead.report_comparison(job_overhead.compare(config, place))))
                return
            console.print(f"writing {rows:,} products")
            catalog = write_catalog(place, rows, seed, categories)
            facts["catalog_bytes"] = sum(path.stat().st_size for path in catalog.iterdir())
            document = place / "template.yaml"
            document.write_text(json.dumps(_document(place, catalog, model)), encoding="utf-8")
            console.print("the job on Ray")
            config = load_config(JobConfig, str(document), changes or [])
            facts["run"] = report_run(run_measured(config.model_dump(mode="json", exclude_none=True), place))
        except UsageError as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(2) from None
        except (RunError, OSError) as error:
            typer.echo(f"Stopped: {error}", err=True)
            raise typer.Exit(1) from None
    print(json.dumps(facts))
    if not facts["run"]["is_complete"]:
        raise typer.Exit(1)


def _stop(number: int, _: object) -> None:
    """End on SIGTERM as on any error, so that the job and the temporary folder end with it."""
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


if __name__ == "__main__":
    app()
