"""Learns from labelled products how probable it is that a run's answers are right, and decides which may be taken.

    hpd calibrate runs/shop --gold gold.jsonl --out shop.json
    hpd calibrate runs/shop --gold gold.jsonl --out shop.json --precision 0.95 --apply

Without `--out` it writes calibration.json beside the run's adapter, where jobs find it, if none is there. `--apply`
fills `confidence` and `decision` of the finished run without a model; it may be killed and started again.
docs/confidence.md says what is promised. Exit code: 0 done, 1 stopped (the same command
continues), 2 usage (no finished run, too few labels, a calibration of another model).
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
from pipelines.errors import UsageError
from pipelines.reviewing.layer import Layer
from pipelines.reviewing.texts_in_run import left_out_note
from pipelines.rewriting.learned_calibration import apply_calibration, learn_from_runs, print_decided, print_learned
from pipelines.store.folders import Folder
from pipelines.store.no_run import read_schemas

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def main(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="output folders of finished runs of one model")],
    gold: Annotated[
        list[str] | None, typer.Option(help="gold file; of several runs one for each, in the same order")
    ] = None,
    reviews: Annotated[bool, typer.Option("--reviews", help="learn from what people said of the runs, too")] = False,
    larger: Annotated[
        bool, typer.Option("--larger", help="of a run with a cascade: calibrate its larger model's answers")
    ] = False,
    out: Annotated[
        str | None, typer.Option(help="file to write; by default calibration.json beside the run's adapter")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="write over a calibration that is there")] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="fill confidence and decision of the run; alone, by --calibration")
    ] = False,
    calibration: Annotated[
        str | None, typer.Option(help="with --apply alone: the file; by default that beside the run's adapter")
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="the share of accepted values that has to be right, such as 0.95"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be written, write nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="end with one line of JSON")] = False,
) -> None:
    """Does it, prints what was learned and decided, and exits."""

    def work() -> int:
        console = Console(markup=False, highlight=False, emoji=False)
        learns = bool(gold) or reviews
        _check(runs, gold or [], learns, apply, calibration, precision)
        _check_used(learns, out, force)
        found = {}
        uri = calibration
        if reviews:
            for note in (note for run in runs for note in _left_out(run)):
                console.print(f"Note: {note}", soft_wrap=True)
        if learns:
            learned = learn_from_runs(runs, gold or [], reviews=reviews, larger=larger, out=out)
            print_learned(console, learned, precision)
            if not dry_run:
                learned = learned.write(force=force)
            found["learned"] = learned.to_dict(precision)
            uri = learned.place
            console.print(f"{'would be written' if dry_run else 'written'}: {uri}")
        if apply:
            used = learned.calibration if learns else None
            decided = apply_calibration(runs[0], uri, used, precision, console, larger=larger, is_trial=dry_run)
            print_decided(console, decided, dry_run)
            found["applied"] = decided.to_dict()
        if as_json:
            typer.echo(json.dumps(found))
        return EXIT_CLEAN

    run_command(work)


def _left_out(run: str) -> list[str]:
    """Return a note on people's verdicts that are not labels of the run's answers."""
    folder = Folder(run)
    return left_out_note(Layer.open(folder, read_schemas(folder)).left_out, run)


def _check(
    runs: list[str], gold: list[str], learns: bool, apply: bool, calibration: str | None, precision: float | None
) -> None:
    if not learns and not apply:
        raise UsageError("name what to learn from (--gold FILE, --reviews), or --apply to use what was learned")
    if gold and len(gold) != len(runs):
        raise UsageError(f"{len(runs)} runs and {len(gold)} gold files: name one --gold for each run, in its order")
    if apply and len(runs) > 1:
        raise UsageError("--apply is for one run; name it alone, with --calibration for what was learned from several")
    if calibration is not None and learns:
        raise UsageError("--calibration is for --apply alone; where what is learned goes, --out says")
    if precision is not None and not 0 < precision < 1:
        raise UsageError(f"--precision {precision:g}: a number between 0 and 1 is needed, such as 0.95")


def _check_used(learns: bool, out: str | None, force: bool) -> None:
    """Raise `UsageError` for an option that would have no effect."""
    if not learns and (out is not None or force):
        raise UsageError(
            "--out and --force are for what is learned (--gold FILE, --reviews); to use a file: --calibration"
        )


if __name__ == "__main__":
    app()
