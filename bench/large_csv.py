"""One CSV file of many gigabytes through the commands that a user would start: seconds, and memory at its highest.

    python bench/large_csv.py --folder /tmp/large --gigabytes 10 --step write
    python bench/large_csv.py --folder /tmp/large --step init
    python bench/large_csv.py --folder /tmp/large --step check
    python bench/large_csv.py --folder /tmp/large --step run --limit 100000

Each step goes on from the one before. `write` makes up a catalog with texts of about 1,300 bytes; with `--packed`, as
gzip. `init` is `hpd init`, which reads the file for the first time; `check` is a dry run of a job, which finds its rows
kept; `run` is a job without a model over its first rows. The cache of kept rows lies in the folder, too: remove it
afterwards. One JSON object is the last line of each step. Exit codes: 0; 1 a command failed.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import pyarrow as pa
import pyarrow.compute as pc
import typer
import yaml
from pyarrow import csv

from bench.load.made_up_catalog import COLUMNS, category_names, make_rows, schema_document
from bench.load.measured_run import run_measured
from bench.load.processes import watch
from pipelines.errors import RunError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_ROOT = Path(__file__).resolve().parents[1]
_BLOCK_ROWS = 20_000
_MORE_TEXTS = 5


class Step(StrEnum):
    """What is done, in this order."""

    WRITE = "write"
    INIT = "init"
    CHECK = "check"
    RUN = "run"


@app.command()
def main(
    folder: Annotated[Path, typer.Option(help="Of the catalog, the kept rows and the run.")],
    step: Annotated[Step, typer.Option(help="What to do.")],
    gigabytes: Annotated[float, typer.Option(min=0.001, help="Of the CSV file, before it is packed.")] = 10.0,
    packed: Annotated[bool, typer.Option("--packed", help="The file is gzip.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Rows of the run.")] = 100_000,
) -> None:
    """Measure one step."""
    folder = folder.absolute()
    table = folder / ("catalog.csv.gz" if packed else "catalog.csv")
    os.environ["HPD_CACHE"] = str(folder / "cache")
    try:
        facts = _step(step, folder, table, gigabytes, limit)
    except RunError as error:
        typer.echo(f"Stopped: {error}", err=True)
        raise typer.Exit(1) from None
    print(json.dumps({"step": step, "file": table.name, "bytes": table.stat().st_size, **facts}))


def _step(step: Step, folder: Path, table: Path, gigabytes: float, limit: int) -> Mapping[str, Any]:
    if step is Step.WRITE:
        return _write(table, int(gigabytes * 1e9))
    if step is Step.INIT:
        return _watched("init", str(table), "--output", str(folder / f"init-{time.time_ns()}"))
    document = _document(folder, table)
    if step is Step.CHECK:
        config = folder / "check.yaml"
        config.write_text(yaml.safe_dump(document), encoding="utf-8")
        return _watched("extract", "--config", str(config), "--dry-run")
    measured = run_measured(document, folder, ["--limit", str(limit)])
    return {
        "rows": measured.totals["rows"],
        "seconds_until_loaded": measured.startup_seconds,
        "seconds_to_first_commit": measured.startup_seconds + measured.first_commit_seconds,
        "products_per_second": measured.products_per_second,
        "peak_megabytes": {kind: usage.peak_bytes / 1e6 for kind, usage in measured.usage.items()},
    }


def _write(table: Path, num_bytes: int) -> Mapping[str, Any]:
    """The catalog, block by block, until it is as large as it should be."""
    table.parent.mkdir(parents=True, exist_ok=True)
    schemas = schema_document(category_names())
    (table.parent / "schemas.yaml").write_text(yaml.safe_dump(schemas, sort_keys=False), encoding="utf-8")
    started, written, num_rows = time.perf_counter(), 0, 0
    scratch = table.with_suffix(".part")
    opened = partial(gzip.open, compresslevel=1) if table.suffix == ".gz" else open
    with opened(scratch, "wb") as target:
        for rows, block in _blocks():
            target.write(block)
            written, num_rows = written + len(block), num_rows + rows
            if written >= num_bytes:
                break
    scratch.rename(table)
    return {"rows": num_rows, "bytes_of_text": written, "seconds": time.perf_counter() - started}


def _blocks() -> Iterator[tuple[int, bytes]]:
    """Rows and their CSV, without end; the first block has the header."""
    start = 0
    while True:
        rows = make_rows(start, start + _BLOCK_ROWS)
        texts = rows["description"].combine_chunks()
        # The descriptions of other products behind each one's own, so that no two are alike.
        others = [pa.concat_arrays([texts[shift:], texts[:shift]]) for shift in range(1, _MORE_TEXTS)]
        long = pc.binary_join_element_wise(texts, *others, "\n")
        rows = rows.set_column(rows.schema.get_field_index("description"), "description", long)
        sink = pa.BufferOutputStream()
        csv.write_csv(rows, sink, csv.WriteOptions(include_header=start == 0))
        yield rows.num_rows, sink.getvalue().to_pybytes()
        start += _BLOCK_ROWS


def _document(folder: Path, table: Path) -> dict[str, Any]:
    return {
        "model": "smollm2",
        "decoding": "made-up",
        "input": {"path": str(table), "id": "id", "fields": list(COLUMNS)},
        "schemas": str(folder / "schemas.yaml"),
        "output": str(folder / f"run-{time.time_ns()}"),
    }


def _watched(*arguments: str) -> Mapping[str, Any]:
    """One command: its seconds and its memory. Raises `RunError` if it fails."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "pipelines.cli", *arguments]
    with subprocess.Popen(command, cwd=_ROOT, stdout=sys.stderr) as process, watch(process.pid) as watched:
        code = process.wait()
    if code:
        raise RunError(f"hpd {arguments[0]} ended with exit code {code}")
    peak = {kind: usage.peak_bytes / 1e6 for kind, usage in watched.usage().items() if usage.num_processes}
    return {"seconds": time.perf_counter() - started, "peak_megabytes": peak}


if __name__ == "__main__":
    app()
