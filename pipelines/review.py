"""Has people look at a run's answers: a page on this machine, least certain and most worth first.

    hpd review runs/demo
    hpd review runs/demo --sample 50
    hpd review runs/demo --write --gold reviewed.jsonl

What they say is kept in the run's folder `reviews` and layered over the run: exports, the next run (`base`), gold and
training read it (docs/trust.md). The page needs no network; who has its address may review. Exit code: 0 done,
1 stopped (the same command continues), 2 usage (no such run, a port that is taken).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated

import typer
from rich.console import Console

from hpd_core import CategorySchema
from pipelines.console.exit_codes import EXIT_CLEAN, open_socket, run_command
from pipelines.errors import UsageError
from pipelines.job.run import Run
from pipelines.reviewing.desk import DeskOptions, ReviewDesk
from pipelines.reviewing.gold_file import write_gold
from pipelines.reviewing.reviewed_run import write_reviews
from pipelines.store.texts_in_run import left_out_note

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def main(
    run: Annotated[str, typer.Argument(help="output folder of the run: a local path or any fsspec URI")],
    host: Annotated[str, typer.Option(help="address to serve at; other machines reach 0.0.0.0")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port to serve at; 0: a free one")] = 8710,
    overlap: Annotated[
        float, typer.Option(min=0, max=1, help="share of the answers that two reviewers are asked for, for agreement")
    ] = 0.0,
    sample: Annotated[
        int | None, typer.Option(min=1, help="all answers of so many products, drawn at random: for a fair gold set")
    ] = None,
    seed: Annotated[int, typer.Option(help="of the draw")] = 0,
    gold: Annotated[
        str | None,
        typer.Option(help="write what was found right as a gold file, and end; --sample: of that draw alone"),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="write the corrections into the run's tables, for all who read its files")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="of --gold and --write: end with one line of JSON")] = False,
) -> None:
    """Serves the page until Ctrl-C, or does what else is asked for."""

    def work() -> int:
        if not write and gold is None:
            _serve(run, host, port, DeskOptions(overlap, sample, seed))
        if write:
            _print(write_reviews(run, Console(markup=False, highlight=False, emoji=False)).to_dict(), as_json)
        if gold is not None:
            _print(write_gold(*_opened(run), gold, sample, seed).to_dict(), as_json)
        return EXIT_CLEAN

    run_command(work)


def _serve(run: str, host: str, port: int, options: DeskOptions) -> None:
    try:
        from pipelines.reviewing.server import serve
    except ImportError as error:
        raise UsageError(f"{error.name} is not installed: pip install fastapi uvicorn") from error
    with open_socket(host, port, listens=True) as sock:
        desk = ReviewDesk(*_opened(run), options)
        for note in left_out_note(desk.left_out, run):
            typer.echo(f"Note: {note}", err=True)
        try:
            serve(desk, sock, lambda address: typer.echo(f"Review at {address}\nCtrl-C ends it; nothing is lost."))
        finally:
            desk.close()


def _opened(run: str) -> tuple[Run, Mapping[str, CategorySchema]]:
    opened = Run.open(run)
    if opened.schemas is None:
        raise UsageError(f"{run} does not say what it asked for (it has no _schemas.json); run it again")
    return opened, opened.schemas


def _print(counts: Mapping[str, int], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(dict(counts)))
    else:
        typer.echo(
            ", ".join(f"{number:,} {name.removeprefix('num_').replace('_', ' ')}" for name, number in counts.items())
        )
