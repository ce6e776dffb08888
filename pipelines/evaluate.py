"""Scores a run against gold values. (compare.py compares two runs.)

    python pipelines/evaluate.py out/demo --gold sample/gold.jsonl
    python pipelines/evaluate.py out/tree --gold oa-mine.test.jsonl --by-attribute --json

Reads a finished run's `products`, `attributes` and `dead_letter` tables; run and gold file may be local paths
or any fsspec URI. What is counted, and how, is in quality/scoring.py and docs/quality.md. Exit code: 0 evaluated,
2 usage (no such file, a folder that is no run, gold that does not belong to the run).
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
from rich.console import Console

from pipelines.errors import UsageError
from pipelines.quality.evaluation import evaluate_run
from pipelines.quality.score_tables import print_brief, print_evaluation
from pipelines.quality.scoring import Comparison

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def evaluate(
    run: Annotated[str, typer.Argument(help="Output folder of a run, local or any fsspec URI.")],
    gold: Annotated[str, typer.Option(help="Gold file: ours or ExtractGPT's JSON Lines.")],
    comparison: Annotated[
        Comparison, typer.Option(help="'folded' adds scores that ignore case and white space.")
    ] = Comparison.EXACT,
    by_attribute: Annotated[bool, typer.Option("--by-attribute", help="Print every attribute.")] = False,
    brief: Annotated[bool, typer.Option("--brief", help="Print three lines, no tables.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Score a run against gold values."""
    try:
        evaluation = evaluate_run(run, gold, comparison=comparison)
    except (UsageError, OSError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from error
    # Product text is data: brackets in it are no markup. Without a terminal, tables are not squeezed to 80.
    console = Console(markup=False, highlight=False, emoji=False, width=None if sys.stdout.isatty() else 140)
    if brief:
        print_brief(console, evaluation)
    else:
        print_evaluation(console, evaluation, by_attribute)
    if as_json:
        typer.echo(json.dumps(evaluation.summary(), ensure_ascii=False))


if __name__ == "__main__":
    app()
