"""Lists labels to look at again: those that runs contradict with one voice.

    python pipelines/recheck.py runs/seed-0 runs/seed-1 --gold labels.train.jsonl
    python pipelines/recheck.py runs/seed-0 runs/seed-1 runs/seed-2 --gold labels.train.jsonl --out labels.kept.jsonl

The runs are of a job over the labelled products, by models that differ (in seed, layout or size), best such as were
trained on these labels; docs/labels.md has how. With --out the gold file is written again without these labels; what
they were stands in their lines under "doubtful". It is for training: a test that a model may correct tells nothing of
it. Exit code: 0 compared, 1 not written (disk, rights), 2 usage (no run there, gold that does not belong to it, another
file in the place of --out).
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

from pipelines.console.exit_codes import EXIT_CLEAN, run_command
from pipelines.console.terminal import data_console, printable
from pipelines.errors import UsageError
from pipelines.quality.doubtful_labels import recheck_labels
from pipelines.quality.doubtful_tables import print_rechecked
from pipelines.quality.gold import read_lines
from pipelines.quality.gold_without import without_doubtful
from pipelines.store.folders import file_at

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def recheck(
    runs: Annotated[list[str], typer.Argument(help="output folders of runs, local or any fsspec URI")],
    gold: Annotated[str, typer.Option(help="the gold file with the labels")],
    out: Annotated[str | None, typer.Option(help="where the gold file is written without them")] = None,
    limit: Annotated[int, typer.Option(min=0, help="labels to show, the surest first")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="end with the counts, as one line of JSON")] = False,
) -> None:
    """Prints the labels and exits with the code."""

    def work() -> int:
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

    run_command(work)


def _write(place: str, data: bytes) -> None:
    """Write the file. Raises `UsageError` if it exists with other content, because a gold file may hold work."""
    folder, name = file_at(place, "--out")
    try:
        is_other = not folder.create(name, data) and folder.read(name) != data
    except (IsADirectoryError, NotADirectoryError, FileExistsError, FileNotFoundError) as error:
        raise UsageError(f"--out {place}: no file can be written there: {error.strerror or error}") from error
    if is_other:
        raise UsageError(f"--out {place} is there and holds other lines; name another file, or move it away")


if __name__ == "__main__":
    app()
