"""Keeps products of a gold file apart for the test that a fine-tuning is judged by.

    python pipelines/split.py labels/catalog.jsonl
    python pipelines/split.py labels/catalog.jsonl --share 0.05 --out labels

Writes, beside the gold file or into --out, its lines as they are into NAME.train.jsonl and NAME.test.jsonl, and the
products of the latter as a catalog, NAME.test-products.jsonl, for a job to run over. Which product is for the test
depends on categories and texts alone: variants of one product are on one side, and what was for the test stays so when
the gold file grows, unless its text changes or a sibling comes up. Exit code: 0 written (or there already), 1 not
written (disk, rights), 2 usage (no gold file, files with other lines in their place).
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
from pipelines.quality.gold_split import split_gold
from pipelines.store.folders import Folder

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def split(
    gold: Annotated[str, typer.Argument(help="a gold file with its products' texts: what hpd label writes")],
    share: Annotated[float, typer.Option(help="of the products that is for the test, between 0 and 1")] = 0.1,
    group: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="that variants of one product share; default: near-equal titles"),
    ] = None,
    out: Annotated[str | None, typer.Option(help="folder for the three files; default: the gold file's own")] = None,
) -> None:
    """Splits the file and exits with the code."""

    def work() -> int:
        folder = out or gold.removesuffix(gold.rsplit("/", 1)[-1]) or "."
        for line in split_gold(gold, share, Folder(folder), group):
            typer.echo(line)
        return EXIT_CLEAN

    run_command(work)


if __name__ == "__main__":
    app()
