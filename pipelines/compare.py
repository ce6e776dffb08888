"""Compares two runs: settings, rows, answers, quality, cost and speed.

    python pipelines/compare.py runs/monday runs/tuesday
    python pipelines/compare.py runs/stacked runs/tree --gold sample/gold.jsonl --out runs/stacked-tree --json

Reads their output folders alone; they may still be going, and may be local paths or any fsspec URI. What is counted,
and how, is in docs/quality.md. Exit code: 0 compared, 2 usage (no run there, nothing in common, what cannot be read).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer

from pipelines.comparing.comparison import MAX_EXAMPLES, SEED, compare_runs
from pipelines.comparing.pages import write_pages
from pipelines.comparing.phrases import print_comparison
from pipelines.console.terminal import data_console
from pipelines.errors import UsageError
from pipelines.reporting import formats

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

EXIT_USAGE = 2


@app.command()
def compare(
    run_a: Annotated[str, typer.Argument(help="output folder of a run: a local path or any fsspec URI")],
    run_b: Annotated[str, typer.Argument(help="output folder of the run to compare with it")],
    gold: Annotated[str | None, typer.Option(help="gold file: which of the two is right")] = None,
    out: Annotated[str | None, typer.Option(help="folder for compare.html, compare.json and compare.md")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="end with one line of JSON")] = False,
    limit: Annotated[int, typer.Option(min=0, help="answers that differ to show in full")] = MAX_EXAMPLES,
    seed: Annotated[int, typer.Option(help="of the draw of these answers")] = SEED,
) -> None:
    """Print what changed from run A to run B."""
    try:
        comparison = compare_runs(run_a, run_b, gold=gold, max_examples=limit, seed=seed)
        written = write_pages(comparison, out) if out is not None else []
    except (UsageError, OSError) as error:
        typer.echo(f"Error: {formats.plain(str(error))}", err=True)
        raise typer.Exit(EXIT_USAGE) from error
    console = data_console()
    print_comparison(console, comparison)
    for place in written:
        console.print(f"  {place}", soft_wrap=True)
    if as_json:
        typer.echo(json.dumps(comparison.to_dict(), ensure_ascii=False))


if __name__ == "__main__":
    app()
