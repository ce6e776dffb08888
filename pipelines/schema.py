"""Category schemas: take them from where they are, check them, compare them.

    hpd schema import taxonomy.json --category 'Luggage & Bags' --out schemas.yaml
    hpd schema import train.jsonl --out schemas.yaml
    hpd schema propose products.csv --out schemas.yaml
    hpd schema lint schemas.yaml
    hpd schema diff schemas.yaml edited.yaml

Exit code: 0, or 2 for a file that is missing, unreadable or no schema. Warnings and differences are no error.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.table import Table

from pipelines.config.catalog_input import InputFormat
from pipelines.config.importing.imported import Imported, choose, schema_text
from pipelines.config.importing.kinds import GOLD, ImportWishes, is_gold, kind_names, read_imported
from pipelines.config.lint import diff, lint
from pipelines.config.schema_file import TALLIED, describe_totals, load_schemas, parse_schemas, tally
from pipelines.config.yaml_files import parse_yaml
from pipelines.console.terminal import data_console
from pipelines.errors import RunError, UsageError
from pipelines.profiling.from_gold import imported_gold
from pipelines.quality.gold import read_gold
from pipelines.shops.known import SOURCES
from pipelines.store.folders import Folder, file_at

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Import, propose, check and compare category schemas.",
)


def _place_of(path: str, overwrite: bool) -> tuple[Folder, str]:
    """Return the folder and the name of the file to write. Raises `UsageError` if it is there and is to stay."""
    folder, name = file_at(path, "--out")
    if os.path.islink(path) or (os.path.exists(path) and not os.path.isfile(path)):
        raise UsageError(f"--out: {path} is a link, a folder or a device; name a file")
    if not overwrite and folder.exists(name):
        raise UsageError(f"{path} exists already; --force writes over it")
    return folder, name


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Print an error that the user can fix as one message and exit with 2."""
    try:
        yield
    except (UsageError, RunError, OSError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from error


@app.command("import")
def import_command(
    source: Annotated[
        list[str],
        typer.Argument(
            help="Files or folders: Shopify's or Google's product taxonomy, an export of Akeneo, JSON Schema; "
            " module:Class of a pydantic model; or gold files, normally the training one."
        ),
    ],
    out: Annotated[str, typer.Option(help="The schema file to write.")],
    kind: Annotated[
        str | None, typer.Option("--from", help=f"What it is: {kind_names(SOURCES)}; else its content tells.")
    ] = None,
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
    exclusive: Annotated[
        bool,
        typer.Option(
            "--exclusive",
            help="Of gold files: texts are copied from the product's, each from a place of its own, but where labels "
            "stand in each other.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
) -> None:
    """Make a schema file of one that another system has, or of labelled products."""
    with _usage_errors():
        is_of_gold = kind == GOLD or (kind is None and is_gold(source[0]))
        for option, is_given, is_for_gold in (
            ("--plain", plain, True),
            ("--exclusive", exclusive, True),
            ("--language", language is not None, False),
            ("--name", name is not None, False),
        ):
            if is_given and is_for_gold != is_of_gold:
                raise UsageError(f"{option} is {'' if is_for_gold else 'not '}for gold files: leave it out")
        if is_of_gold:
            products = [product for path in source for product in read_gold(path)]
            imported = imported_gold(products, plain=plain, exclusive=exclusive)
            if not imported.categories:
                raise UsageError(f"{', '.join(source)}: no product has a label")
        else:
            imported = read_imported(source, kind, ImportWishes(language, name), SOURCES)
        _write_imported(imported, out, category or [], force=force)


def _write_imported(imported: Imported, out: str, categories: list[str], *, force: bool) -> None:
    imported = choose(imported, categories).finished()
    text = schema_text(imported, out)
    # Before it is written: what cannot be read leaves no file, and an older one as it is.
    try:
        schemas = parse_schemas(parse_yaml(text, out), out)
    except UsageError as error:
        raise UsageError(f"{imported.source}: {out} was not written, for it would not be read: {error}") from error
    folder, name = _place_of(out, force)
    folder.write(name, text.encode())
    console = data_console(soft_wrap=True)
    for note in imported.notes:
        console.print(f"note: {note}", style="yellow")
    console.print(f"{out}: {describe_totals(schemas)}, from {imported.source}")
    typed = Counter(attribute.type for attribute in imported.attributes.values())
    console.print(f"types: {', '.join(f'{count:,} {each}' for each, count in typed.most_common())}")


@app.command("propose")
def propose_command(
    source: Annotated[
        str,
        typer.Argument(
            help="A catalog (Parquet, JSONL, CSV, a feed or a workbook: a file, a folder, a glob), or the "
            "YAML configuration of a job over one."
        ),
    ],
    out: Annotated[str, typer.Option(help="The schema file to write.")],
    category: Annotated[
        list[str] | None, typer.Option(help="Only this category. May be repeated; else the 50 with most products.")
    ] = None,
    file_format: Annotated[InputFormat, typer.Option("--format", help="'auto': by each file's content.")] = "auto",
    encoding: Annotated[str | None, typer.Option(help="Of CSV that is not UTF-8, e.g. cp1252.")] = None,
    sheet: Annotated[str | None, typer.Option(help="Of a workbook, by name.")] = None,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Read s3:// without credentials (public buckets).")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
) -> None:
    """Propose attributes for a catalog's categories, from a sample of its products."""
    with _usage_errors():
        # Imported here: the other commands need no catalog's readers.
        from pipelines.profiling.catalog_look import source_of
        from pipelines.profiling.product_sample import read_sample
        from pipelines.profiling.proposals import choose_categories, propose

        _place_of(out, force)  # before the catalog is read
        sample = read_sample(source_of(source, file_format, anonymous, encoding, sheet))
        products = choose_categories(sample, category or [])
        console = data_console(soft_wrap=True)
        for note in sample.notes:
            console.print(f"note: {note}", style="yellow")
        _write_imported(propose(products), out, [], force=force)


@app.command("lint")
def lint_command(
    file: Annotated[str, typer.Argument(help="Schema file.")],
) -> None:
    """Load a schema file strictly, print what is in it and warn of what is probably not meant."""
    with _usage_errors():
        schemas = load_schemas(file)
        console = data_console(soft_wrap=True)
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
        console = data_console(soft_wrap=True)
        for change in changes:
            console.print(str(change))
        console.print(f"{len(changes)} differences" if changes else "no difference")
