"""Looks into a catalog and writes a configuration and schemas for it, to read, correct and run.

    hpd init products.parquet
    hpd init s3://bucket/catalog/ --output mine

Writes catalog.yaml and schemas.yaml, every guess with its reason; never over a file that is there. Exit codes: 0
written, also where nothing could be guessed; 1 not written (disk, rights); 2 no such file, not readable, files in their
place.
"""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.config.catalog_input import InputFormat
from pipelines.console.exit_codes import EXIT_CLEAN, run_command

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def init(
    catalog: Annotated[
        str,
        typer.Argument(
            help="Parquet, JSONL, CSV, a feed or a workbook: a file, a folder, a glob; local or any fsspec URI"
        ),
    ],
    output: Annotated[str, typer.Option(help="folder for catalog.yaml and schemas.yaml")] = ".",
    file_format: Annotated[InputFormat, typer.Option("--format", help="'auto': by each file's content")] = "auto",
    encoding: Annotated[str | None, typer.Option(help="of CSV that is not UTF-8, e.g. cp1252")] = None,
    sheet: Annotated[str | None, typer.Option(help="of a workbook, by name")] = None,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="read s3:// without credentials (public buckets)")
    ] = False,
) -> None:
    """Writes the two files and exits with the code."""

    def work() -> int:
        # Imported here: `--help` and wrong options answer at once.
        from pipelines.console.terminal import data_console
        from pipelines.profiling.catalog_file import start_job
        from pipelines.profiling.catalog_look import source_of
        from pipelines.store.folders import Folder

        start_job(data_console(), source_of(catalog, file_format, anonymous, encoding, sheet), Folder(output))
        return EXIT_CLEAN

    run_command(work)
