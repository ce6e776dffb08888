"""Writes a run's answers as a file that somebody else's system takes: one row a product.

    hpd export runs/demo --to xlsx --out products.xlsx
    hpd export runs/shop --to shopify --out enriched

Only accepted answers are written: values with a normalised form and, in a run that has decided (docs/trust.md),
those that may be taken; of a run that has not, those with a probability of 0.8, as unchecked. What is left out is
counted by reason. Three kinds of files go the whole way in docs/shop-files.md. Exit code: 0 written, 2 usage (no such
run, a file that does not belong, what cannot be written).
"""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from pipelines.console.exit_codes import EXIT_USAGE
from pipelines.errors import UsageError
from pipelines.exporting.export_run import ExportWishes, export_run, print_exported
from pipelines.exporting.targets import ShopWishes, read_columns
from pipelines.exporting.writers import WIDE_KINDS, Style
from pipelines.reporting import formats
from pipelines.shops.known import SHOPS

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def main(
    run: Annotated[str, typer.Argument(help="output folder of the run: a local path or any fsspec URI")],
    to: Annotated[str, typer.Option("--to", help=f"kind of file: {', '.join([*WIDE_KINDS, *SHOPS])}")],
    out: Annotated[
        str | None, typer.Option(help="a file, if it ends like one, or a folder; by default 'export' in the run's")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="write over existing files")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="take values without a normalised form, too, as the model wrote them")
    ] = False,
    min_logprob: Annotated[
        float | None, typer.Option(max=0, help="leave out answers with a lower logprob_mean, such as -0.5")
    ] = None,
    min_confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help="leave out answers with a lower confidence, or none")
    ] = None,
    all_decisions: Annotated[
        bool,
        typer.Option("--all", help="take values that are for review (accept.precision) or unchecked, too"),
    ] = False,
    ids: Annotated[
        bool, typer.Option("--ids", help="in a wide table: ids of the vocabulary instead of labels, where it has them")
    ] = False,
    separator: Annotated[str, typer.Option(help="between several values in a cell of csv and xlsx")] = "; ",
    guard_formulas: Annotated[
        bool, typer.Option("--guard-formulas", help="put ' in front of texts that a spreadsheet takes for formulas")
    ] = False,
    original: Annotated[
        str | None, typer.Option(help="the file that the run read, if it is not where it was: it is filled in")
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option(help="attribute=column of the target; empty: leave it out; may be repeated")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace what stands in the original; by default empty cells are filled")
    ] = False,
    identifier: Annotated[str, typer.Option(help="akeneo: the column that says which product it is")] = "sku",
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object instead of text")] = False,
) -> None:
    """Writes the files and says what is in them."""
    try:
        wishes = ExportWishes(
            kind=to,
            out=out,
            takes_raw=raw,
            min_logprob=min_logprob,
            min_confidence=min_confidence,
            takes_review=all_decisions,
            takes_ids=ids,
            forces=force,
            style=Style(separator, guard_formulas),
            shop=ShopWishes(original, read_columns(columns or ()), overwrite, identifier),
        )
        exported = export_run(run, wishes, SHOPS)
    except (UsageError, OSError) as error:
        print(f"Error: {formats.plain(str(error))}", file=sys.stderr)
        raise typer.Exit(EXIT_USAGE) from None
    if as_json:
        print(json.dumps(exported.to_dict(), ensure_ascii=False))
    else:
        print_exported(exported)
