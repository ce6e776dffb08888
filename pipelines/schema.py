"""Category schemas: take them from where they are, check them, compare them.

    python pipelines/schema.py import taxonomy.json --category 'Luggage & Bags' --out schemas.yaml
    python pipelines/schema.py import train.jsonl --out schemas.yaml
    python pipelines/schema.py lint schemas.yaml
    python pipelines/schema.py diff schemas.yaml edited.yaml

Exit code: 0, or 2 for a file that is missing, unreadable or no schema. Warnings and differences are no error.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
from rich.console import Console
from rich.table import Table

from pipelines.errors import UsageError
from pipelines.quality.gold import read_gold
from pipelines.schemas.attribute_counts import TALLIED, describe_totals, tally
from pipelines.schemas.diff import diff
from pipelines.schemas.from_gold import schemas_from_gold, typed_from_gold
from pipelines.schemas.importing.imported import Imported, choose
from pipelines.schemas.importing.kinds import Kind, Wishes, is_gold, read_imported
from pipelines.schemas.importing.schema_text import schema_text
from pipelines.schemas.lint import lint
from pipelines.schemas.schema_file import dump_schemas, load_schemas
from pipelines.store.folders import open_filesystem

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Import, check and compare category schemas.",
)


def _write_new(path: str, text: str, overwrite: bool) -> None:
    filesystem, inner = open_filesystem(path)
    try:
        if not overwrite and filesystem.exists(inner):
            raise UsageError(f"{path} exists already; --force writes over it")
        with filesystem.open(inner, "wb") as file:
            file.write(text.encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error}") from error


def _console() -> Console:
    # Names are data: brackets in them are no markup. Without a terminal, tables are not squeezed to 80.
    return Console(
        markup=False, highlight=False, emoji=False, width=None if sys.stdout.isatty() else 140, soft_wrap=True
    )


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Prints what the user can put right as one message and exits with 2."""
    try:
        yield
    except (UsageError, OSError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from error


@app.command("import")
def import_command(
    source: Annotated[
        list[str],
        typer.Argument(
            help="Files or folders: Shopify's or Google's product taxonomy, an export of Akeneo or Magento, JSON "
            "Schema; module:Class of a pydantic model; or gold files, normally the training one."
        ),
    ],
    out: Annotated[str, typer.Option(help="The schema file to write.")],
    kind: Annotated[Kind | None, typer.Option("--from", help="What it is; else its content tells.")] = None,
    category: Annotated[
        list[str] | None,
        typer.Option(help="Only this category and all below it: a name, a path 'A > B' or an id. May be repeated."),
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="Of Akeneo's labels, such as de_DE. Those in others become synonyms.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The category's, where the source has none.")] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Of gold files: texts alone, no types from the values.")
    ] = False,
    require_values: Annotated[
        bool, typer.Option("--require-values", help="Of gold files: leave out attributes that never have a value.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
) -> None:
    """Make a schema file of one that another system has, or of labelled products."""
    with _usage_errors():
        if kind is Kind.GOLD or (kind is None and is_gold(source[0])):
            _import_gold(source, out, category or [], plain=plain, require_values=require_values, force=force)
        else:
            imported = read_imported(source, kind, Wishes(language, name))
            _write_imported(imported, out, category or [], force=force)


def _import_gold(
    paths: list[str], out: str, categories: list[str], *, plain: bool, require_values: bool, force: bool
) -> None:
    products = [product for path in paths for product in read_gold(path)]
    schemas = schemas_from_gold(products, require_values=require_values)
    if not schemas:
        raise UsageError(f"{', '.join(paths)}: no product has a label")
    imported = typed_from_gold(products, require_values=require_values)
    if not plain:
        _write_imported(imported, out, categories, force=force, origin=f", from {len(products)} products")
        return
    kept = {category.name for category in choose(imported, categories).categories}
    _write_new(out, dump_schemas({each: schema for each, schema in schemas.items() if each in kept}), force)
    _console().print(f"{out}: {describe_totals(load_schemas(out))}, from {len(products)} products")


def _write_imported(imported: Imported, out: str, categories: list[str], *, force: bool, origin: str = "") -> None:
    imported = choose(imported, categories).finished()
    _write_new(out, schema_text(imported, out), force)
    schemas = load_schemas(out)
    console = _console()
    for note in imported.notes:
        console.print(f"note: {note}", style="yellow")
    console.print(f"{out}: {describe_totals(schemas)}{origin or f', from {imported.source}'}")
    typed = Counter(attribute.type for attribute in imported.attributes.values())
    console.print(f"types: {', '.join(f'{count:,} {each}' for each, count in typed.most_common())}")


@app.command("lint")
def lint_command(file: Annotated[str, typer.Argument(help="Schema file.")]) -> None:
    """Load a schema file strictly, print what is in it and warn of what is probably not meant."""
    with _usage_errors():
        schemas = load_schemas(file)
        console = _console()
        table = Table()
        table.add_column("category")
        for name in TALLIED:
            table.add_column(name, justify="right")
        for category, schema in schemas.items():
            table.add_row(category, *map(str, tally(schema)))
        console.print(table)
        remarks = list(lint(schemas))
        for remark in remarks:
            console.print(f"warning: {remark}", style="yellow")
        console.print(f"{file}: {describe_totals(schemas)}; {len(remarks)} warnings")


@app.command("diff")
def diff_command(
    old: Annotated[str, typer.Argument(help="Schema file.")],
    new: Annotated[str, typer.Argument(help="Schema file to compare with it.")],
) -> None:
    """Print every difference between two schema files."""
    with _usage_errors():
        changes = list(diff(load_schemas(old), load_schemas(new)))
        console = _console()
        for change in changes:
            console.print(str(change))
        console.print(f"{len(changes)} differences" if changes else "no difference")


if __name__ == "__main__":
    app()
