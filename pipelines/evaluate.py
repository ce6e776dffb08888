"""Scores a run against gold values, or has a model judge it. (compare.py compares two runs.)

    python pipelines/evaluate.py out/demo --gold sample/gold.jsonl
    python pipelines/evaluate.py out/tree --gold oa-mine.test.jsonl --by-attribute --json
    python pipelines/evaluate.py out/demo --judge http://localhost:8000/v1 --judge-set model=qwen --judge-limit 200
    python pipelines/evaluate.py runs/seed-0 runs/seed-1 --gold labels.train.jsonl --recheck --recheck-out kept.jsonl

With --recheck it lists the labels that all runs contradict with one voice; --recheck-out writes the gold file without
them (docs/labels.md), to train on: a test that a model may correct tells nothing of it.

Reads a finished run's `products`, `attributes` and `dead_letter` tables; run and gold file may be local paths
or any fsspec URI. What is counted, and how, is in quality/scoring.py and docs/quality.md; what a judge does, in
docs/judge.md. Exit code: 0 evaluated, 1 not written (disk, rights), 2 usage (no such file, a folder that is no run,
gold that does not belong to the run); of a judge: 1 stopped and 4 stopped at max_cost_usd (the same command continues),
3 some products got no answer.
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

from pipelines.console.exit_codes import EXIT_CLEAN, run_command
from pipelines.console.terminal import data_console, printable
from pipelines.errors import UsageError
from pipelines.quality.doubtful_labels import recheck_labels
from pipelines.quality.evaluation import evaluate_run
from pipelines.quality.gold import read_lines
from pipelines.quality.gold_split import without_doubtful
from pipelines.quality.score_tables import print_brief, print_evaluation, print_rechecked
from pipelines.quality.scoring import Comparison
from pipelines.store.folders import file_at

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def evaluate(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Output folder of a run, local or any fsspec URI.")
    ],
    gold: Annotated[str | None, typer.Option(help="Gold file: ours or ExtractGPT's JSON Lines.")] = None,
    comparison: Annotated[
        Comparison, typer.Option(help="'folded' adds scores that ignore case and white space.")
    ] = Comparison.EXACT,
    by_attribute: Annotated[bool, typer.Option("--by-attribute", help="Print every attribute.")] = False,
    brief: Annotated[bool, typer.Option("--brief", help="Print three lines, no tables.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
    recheck: Annotated[bool, typer.Option("--recheck", help="List the labels that all runs contradict alike.")] = False,
    recheck_limit: Annotated[int, typer.Option(min=0, help="Labels to list, the surest first.")] = 20,
    recheck_out: Annotated[str | None, typer.Option(help="File for the gold without these labels.")] = None,
    judge: Annotated[
        str | None, typer.Option(help="A model judges: its endpoint (http://.../v1), or a YAML file that says.")
    ] = None,
    judge_set: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A key of the judge, such as model; may be repeated.")
    ] = None,
    second_judge: Annotated[str | None, typer.Option(help="Another one, to see how far they agree.")] = None,
    second_judge_set: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A key of the second judge; may be repeated.")
    ] = None,
    judge_limit: Annotated[int | None, typer.Option(min=1, help="Judge this many products, drawn at random.")] = None,
    judge_seed: Annotated[int, typer.Option(help="Of that draw.")] = 0,
    judge_cache: Annotated[
        str | None, typer.Option(help="Local file of the judge's answers, if not in the run's folder.")
    ] = None,
    judge_out: Annotated[str | None, typer.Option(help="File of the verdicts, if not judge.json beside.")] = None,
) -> None:
    """Score a run against gold values, have a model judge it, or recheck the gold values."""
    try:
        if recheck:
            if by_attribute or brief or judge is not None:
                raise UsageError("--recheck is of labels; --by-attribute, --brief and --judge are of values")
            run_command(lambda: _recheck(runs, gold, recheck_limit, recheck_out, as_json))
        if recheck_out is not None:
            raise UsageError("--recheck-out belongs to --recheck")
        if len(runs) > 1:
            raise UsageError(f"{len(runs)} runs are for --recheck; name one, or compare two with hpd compare")
        (run,) = runs
        if gold is None and judge is None:
            raise UsageError("name --gold FILE, --judge ENDPOINT, or both")
        evaluation = evaluate_run(run, gold, comparison=comparison) if gold is not None else None
    except (UsageError, OSError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from error
    # Product text is data: brackets in it are no markup. Without a terminal, tables are not squeezed to 80.
    console = Console(markup=False, highlight=False, emoji=False, width=None if sys.stdout.isatty() else 140)
    if evaluation is not None:
        if brief:
            print_brief(console, evaluation)
        else:
            print_evaluation(console, evaluation, by_attribute)
    summary = evaluation.summary() if evaluation is not None else {}
    if judge is None:
        if as_json:
            typer.echo(json.dumps(summary, ensure_ascii=False))
        return
    # Imported here: who has no judge does without its client.
    from pipelines.judging.driver import JudgeWishes, judge_and_print

    wishes = JudgeWishes(
        judge, judge_set or (), second_judge, second_judge_set or (), judge_limit, judge_seed, judge_cache, judge_out
    )
    run_command(lambda: judge_and_print(console, run, wishes, gold, by_attribute, summary if as_json else None))


def _recheck(runs: list[str], gold: str | None, limit: int, out: str | None, as_json: bool) -> int:
    """Compare the labels with the runs, print what they contradict, and write the rest."""
    if gold is None:
        raise UsageError("--recheck needs --gold FILE, the labels")
    lines = read_lines(gold)
    found = recheck_labels(runs, gold, lines)
    if out is not None:
        _write(out, b"\n".join(without_doubtful(lines, found.doubtful, gold)))
    console = data_console()
    print_rechecked(console, found, len(runs), limit)
    if out is not None:
        console.print(f"Without them: {printable(out)}", soft_wrap=True)
    if as_json:
        typer.echo(json.dumps(found.summary(), ensure_ascii=False))
    return EXIT_CLEAN


def _write(place: str, data: bytes) -> None:
    """Write the file. Raises `UsageError` if it exists with other content, because a gold file may hold work."""
    folder, name = file_at(place, "--recheck-out")
    try:
        is_other = not folder.create(name, data) and folder.read(name) != data
    except (IsADirectoryError, NotADirectoryError, FileExistsError, FileNotFoundError) as error:
        raise UsageError(f"--recheck-out {place}: no file can be written there: {error.strerror or error}") from error
    if is_other:
        raise UsageError(f"--recheck-out {place} is there and holds other lines; name another file, or move it away")


if __name__ == "__main__":
    app()
