"""Has people look at a run's answers: a page on this machine, least certain and most worth first.

    python pipelines/review.py runs/demo
    python pipelines/review.py runs/demo --sample 50 --gold gold.jsonl

What they say is kept in the run's folder `reviews` and layered over the run: exports, the next run (`base`), gold and
training read it (docs/review.md). The page needs no network; who has its address may review. Exit code: 0 done,
1 stopped (the same command continues), 2 usage (no such run, a port that is taken).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer

from pipelines.console.exit_codes import EXIT_CLEAN, run_command
from pipelines.errors import UsageError

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
) -> None:
    """Serves the page until Ctrl-C."""

    def work() -> int:
        _serve(run, host, port, overlap, sample, seed)
        return EXIT_CLEAN

    run_command(work)


def _serve(run: str, host: str, port: int, overlap: float, sample: int | None, seed: int) -> None:
    try:
        from pipelines.review_desk.server import open_socket, serve
    except ImportError as error:
        raise UsageError(f"{error.name} is not installed: pip install 'hpd[review]'") from error
    from pipelines.reporting.run_folder import open_run
    from pipelines.review_desk.desk import Desk, DeskOptions
    from pipelines.store.asked_schemas import read_schemas

    opened = open_run(run)
    schemas = read_schemas(opened.folder)
    if schemas is None:
        raise UsageError(f"{run} does not say what it asked for (it has no _schemas.json); run it again")
    with open_socket(host, port) as sock:
        desk = Desk(opened, schemas, DeskOptions(overlap, sample, seed))
        try:
            serve(desk, sock, lambda address: typer.echo(f"Review at {address}\nCtrl-C ends it; nothing is lost."))
        finally:
            desk.close()


if __name__ == "__main__":
    app()
