"""Tells how far a run is, from its output folder alone: no cluster is asked, the job need not be alive.

    hpd status s3://bucket/enriched/2026-11-21
    hpd status runs/demo --json

Exit code: 0 finished or under way, 1 stopped (no driver holds the run, and it is not finished), 2 no such run.
"""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from pipelines.console.exit_codes import EXIT_CLEAN, EXIT_STOPPED, run_command
from pipelines.job.run_status import print_status, read_status, status_json

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def main(
    run: Annotated[str, typer.Argument(help="output folder of the run: a local path or any fsspec URI")],
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object instead of text")] = False,
) -> None:
    """Prints the status and exits with its code."""

    def work() -> int:
        status = read_status(run)
        if as_json:
            print(json.dumps(status_json(status), ensure_ascii=False))
        else:
            print_status(Console(), status)
        return EXIT_STOPPED if status.state == "stopped" else EXIT_CLEAN

    run_command(work)
