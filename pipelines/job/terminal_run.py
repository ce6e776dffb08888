"""Extraction in a terminal: the run, a preview of a few products, and the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipelines.confidence.answer_features import answer_probability
from pipelines.console.terminal import SafeTable, print_notes, printable
from pipelines.job import summary
from pipelines.job.driver import run_job
from pipelines.job.preflight import PlannedJob
from pipelines.store.folders import Folder


def run_and_tell(job: PlannedJob, console: Console, *, show: int) -> tuple[int, dict[str, Any]]:
    """Run the job and print its outcome, with the attributes of `show` products. Returns (exit code, outcome as plain
    data)."""
    print_notes(console, [*job.warnings, *job.sample_warnings])
    outcome = run_job(job, console)
    code = summary.exit_code(outcome, job.config.max_dead_letter_share)
    if show and (table := preview_table(job.output, show)) is not None:
        console.print(table)
    summary.print_outcome(console, job, outcome)
    return code, summary.outcome_json(job, outcome, code)


_PARTS_READ = 8
_MAX_TEXT = 60


def preview_table(output: Folder, num_products: int) -> Table | None:
    """Return a table of the extracted attributes of `num_products` products, from as many categories as possible; None
    if there are no products."""
    products = _pick(_read(output, "products", ["source_file", "source_row", "category"]), num_products)
    if not products:
        return None
    chosen = {_identity(product): index for index, product in enumerate(products)}
    columns = ["source_file", "source_row", "product_id", "category", "attribute", "value_index"]
    columns += ["value_raw", "status", "num_tokens", "logprob_mean", "probability", "confidence", "evidence"]
    rows = _read(output, "attributes", columns)
    rows = [row for row in rows if _identity(row) in chosen]
    rows.sort(key=lambda row: chosen[_identity(row)])  # stable: attributes stay in the schema's order

    table = SafeTable(box=box.SIMPLE_HEAD, title="Extracted attributes", title_justify="left")
    table.add_column("product")
    table.add_column("attribute")
    table.add_column("value")
    table.add_column("found in")
    is_calibrated = any(row.get("confidence") is not None for row in rows)
    table.add_column("confidence" if is_calibrated else "probability", justify="right")
    before = None
    for row in rows:
        product = _identity(row)
        if before not in (None, product):
            table.add_section()
        label = Text(printable(f"{row['product_id']}\n{row['category']}")) if product != before else Text("")
        attribute = row["attribute"] if row["value_index"] == 0 else ""
        probability = row.get("confidence" if is_calibrated else "probability")
        if probability is None and not is_calibrated:  # an older run
            probability = answer_probability(row["num_tokens"], row["logprob_mean"])
        cells = (_value(row), _places(row), "" if probability is None else f"{probability:.2f}")
        table.add_row(label, Text(printable(attribute)), *cells)
        before = product
    return table


def _pick(products: Sequence[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    first_of_category = {product["category"]: product for product in reversed(products)}
    chosen = [product for product in products if first_of_category[product["category"]] is product][:count]
    others = [product for product in products if product not in chosen]
    return chosen + others[: count - len(chosen)]


def _read(output: Folder, table: str, columns: list[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name in output.list(table)[:_PARTS_READ]:
        with output.open(f"{table}/{name}") as file:
            parquet = pq.ParquetFile(file)
            there = parquet.schema_arrow.names
            rows += parquet.read(columns=[name for name in columns if name in there]).to_pylist()
    return rows


def _identity(row: dict[str, Any]) -> tuple[str, int]:
    return row["source_file"], row["source_row"]


def _value(row: dict[str, Any]) -> Text:
    if row["status"] == "absent":
        return Text("not stated", style="dim")
    text = printable(row["value_raw"] or "")
    short = text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
    return Text(short) if row["status"] == "value" else Text(f"{row['status']}: {short}", style="yellow")


def _places(row: dict[str, Any]) -> Text:
    """Return the names of the fields in which the value was found."""
    names = dict.fromkeys(place["field"] for place in row["evidence"] or ())
    return Text(printable(", ".join(names)))
