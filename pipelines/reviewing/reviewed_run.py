"""Pass over a finished run that writes people's corrections into its tables, for all who read its files themselves.

    1  reviews/replaced/part-<shard>   the rows that are about to be replaced, beside those of earlier passes
    2  attributes, then products       replaced as wholes (store/ledger.py)
    3  manifest.json                   summary of what was written

If a pass is killed at any point, repeating it gives the same result: a part is always made from the model's rows and
the present corrections. If a verdict was withdrawn since, the model's answer is restored.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from rich.console import Console

from hpd_core.text.values import join_items
from pipelines.console.terminal import printable
from pipelines.job.run_plan import find_finished
from pipelines.store.folders import Folder
from pipelines.store.layer import Layer, by_answer, kept_name, read_kept
from pipelines.store.lease import RunLease
from pipelines.store.ledger import Ledger, replace_part, settle_replacement
from pipelines.store.no_run import read_schemas
from pipelines.store.tables import PRODUCTS, completed, encode_table, read_part, to_table
from pipelines.store.verdicts import AnswerKey

_LEASE_SECONDS = 60.0
_LISTED = 20  # lines about what is left out
_COUNTED = ("value", "absent", "truncated", "invalid")

Row = Mapping[str, Any]


@dataclasses.dataclass(slots=True)
class ReviewedRun:
    """Counts of a pass over a run.

    Attributes:
        accepted, corrected, absent: number of answers by their last verdict.
        disputed: number of those on which reviewers disagree.
        taken_back: number of answers that are the model's again.
        left_out: number of verdicts that are not written: on other texts or answers, or on rows that the run lacks.
        num_parts, num_rewritten: number of the run's shards, and of those with a rewritten table.
    """

    accepted: int = 0
    corrected: int = 0
    absent: int = 0
    disputed: int = 0
    taken_back: int = 0
    left_out: int = 0
    num_parts: int = 0
    num_rewritten: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return dataclasses.asdict(self)


def write_reviews(uri: str, console: Console) -> ReviewedRun:
    """Write the corrections of the finished run at `uri` into its tables, and print what is left out.

    Raises `UsageError` if there is no finished run or a log is damaged, `RunError` or `OSError` if a retry may continue
    it.
    """
    folder, _, manifest = find_finished(uri)
    ledger, layer = Ledger(folder, ""), Layer.open(folder, read_schemas(folder))
    found = _counts(layer)
    with RunLease(folder, _LEASE_SECONDS).hold(console) as lease:
        for shard in sorted(ledger.committed()):
            lease.check()
            found.num_parts += 1
            for table in ("attributes", "products"):
                settle_replacement(ledger, shard, table)
            found.num_rewritten += _write_shard(ledger, shard, layer)
        summary = {**found.to_dict(), "written_at": _now()}
        if _said(manifest.get("reviews")) != _said(summary):
            ledger.finish({**manifest, "reviews": summary})
    for each in layer.left_out[:_LISTED]:
        console.print(f"left out: {printable(each.describe())}")
    if len(layer.left_out) > _LISTED:
        console.print(f"left out: {len(layer.left_out) - _LISTED:,} more")
    return found


def _write_shard(ledger: Ledger, shard: int, layer: Layer) -> bool:
    """Write the corrections into a shard's parts; return whether one was rewritten."""
    folder, tables = ledger.folder, ledger.manifest(shard)["tables"]
    stored = {name: read_part(folder, tables[name]["public"]) for name in ("attributes", "products")}
    attributes, products = (completed(name, part) for name, part in stored.items())
    kept = _keep(folder, shard, attributes, layer)
    after = {"attributes": attributes, "products": products}
    if kept:
        after["attributes"] = dataclasses.replace(layer, kept=kept).apply(attributes)
        answers = by_answer(after["attributes"].to_pylist())
        after["products"] = _products(products, answers, {key[:2] for key in kept})
    # Also parts that only lack present columns: readers of all parts together need the same ones in each.
    other = [name for name, part in stored.items() if not after[name].equals(part)]
    for name in other:
        replace_part(ledger, shard, name, encode_table(after[name]))
    return bool(other)


def _keep(folder: Folder, shard: int, table: pa.Table, layer: Layer) -> Mapping[AnswerKey, Sequence[Row]]:
    """Store and return the model's rows of all answers in the shard that were or will be replaced."""
    name = kept_name(shard)
    kept: dict[AnswerKey, Sequence[Row]] = {
        key: rows for key, rows in read_kept(folder, name).items() if key in layer.kept
    }
    new = {key: table[place].to_pylist() for key, place in layer.places(table).items() if key not in kept}
    if new:
        kept |= new
        rows = [row for rows in kept.values() for row in rows]
        folder.write(name, encode_table(to_table("attributes", rows)).data)
    return kept


def _products(table: pa.Table, answers: Mapping[AnswerKey, Sequence[Row]], places: set[tuple[str, int]]) -> pa.Table:
    """Return the products, with the values and counts of reviewed ones taken from their answers."""
    by_place: dict[tuple[str, int], dict[str, Sequence[Row]]] = {place: {} for place in places}
    for key, rows in answers.items():
        if key[:2] in by_place:
            by_place[key[:2]][key.attribute] = rows
    rows = table.to_pylist()
    for row in rows:
        if found := by_place.get((row["source_file"], row["source_row"])):
            statuses = Counter(items[0]["status"] for items in found.values())
            row["values"] = [(name, _text(items)) for name, items in found.items()]
            row |= {f"num_{status}": statuses[status] for status in _COUNTED}
    return pa.Table.from_pylist(rows, schema=PRODUCTS)


def _text(rows: Sequence[Row]) -> str | None:
    return join_items([row["value_raw"] for row in rows]) if rows[0]["status"] == "value" else None


def _counts(layer: Layer) -> ReviewedRun:
    verdicts = Counter(correction.verdict.verdict for correction in layer.corrections.values())
    return ReviewedRun(
        accepted=verdicts["accept"],
        corrected=verdicts["correct"],
        absent=verdicts["absent"],
        disputed=sum(correction.is_disputed for correction in layer.corrections.values()),
        taken_back=len(layer.kept.keys() - layer.corrections.keys()),
        left_out=len(layer.left_out),
    )


def _said(summary: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the parts of a summary that do not depend on a single pass."""
    return {key: value for key, value in (summary or {}).items() if key not in ("written_at", "num_rewritten")}


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
