"""Pass over a finished run that normalises values again, without a model, after new rules, synonyms or units.

Parts are replaced one by one, from the texts kept in the attribute table. Only the normalised columns change, and an
unchanged part is not written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from rich.console import Console

from hpd_core import CategorySchema
from hpd_core.types import content_hash
from pipelines.errors import UsageError
from pipelines.job.run_plan import find_finished
from pipelines.normalising.normalise import normalisers
from pipelines.normalising.normalised import NORM_STATUSES, NORMALISED_COLUMNS
from pipelines.reviewing.answer_rows import is_written
from pipelines.reviewing.layer import renew_kept
from pipelines.rewriting.edited_schemas import refuse_strange, unknown_notes, with_edited
from pipelines.store.asked_schemas import SCHEMAS_NAME, read_schemas, store_normalised_schemas
from pipelines.store.lease import RunLease
from pipelines.store.ledger import Ledger
from pipelines.store.replaced_parts import replace_part, settle_replacement
from pipelines.store.tables import ATTRIBUTES, completed, encode_table, read_part

_READ = ("category", "attribute", "status", "value_raw", "evidence", "source", "num_tokens")
_LEASE_SECONDS = 60.0

Row = tuple[Any, ...]


@dataclass(slots=True)
class NormalisedRun:
    """Counts of a pass over a run.

    Attributes:
        num_values: number of rows with a value.
        num_changed: number of those with a changed normalised column.
        num_unknown: number of those whose attribute no schema has; they stay as they were.
        num_parts, num_rewritten: number of parts of the attribute table, and of those that are rewritten.
        before, after: number of values by `norm_status`; the key is None if a run had none.
        notes: notes on names of the given schemas that the run does not have.
    """

    num_values: int = 0
    num_changed: int = 0
    num_unknown: int = 0
    num_parts: int = 0
    num_rewritten: int = 0
    before: Counter[str | None] = field(default_factory=Counter)
    after: Counter[str | None] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        names = (*NORM_STATUSES, None)
        return {
            "values": self.num_values,
            "changed": self.num_changed,
            "not_in_schemas": self.num_unknown,
            "parts": self.num_parts,
            "parts_rewritten": self.num_rewritten,
            "before": {name or "none": self.before[name] for name in names if self.before[name]},
            "after": {name or "none": self.after[name] for name in names if self.after[name]},
            "notes": self.notes,
        }


def normalise_run(
    uri: str,
    schemas: Mapping[str, CategorySchema] | None,
    console: Console,
    *,
    place: str = "the schemas",
    is_trial: bool = False,
) -> NormalisedRun:
    """Fill the normalised columns of the finished run at `uri`.

    Args:
        schemas: schemas whose attributes replace the run's; the run stores them for all who read its values. None for
            the run's own.
        place: name of the schemas in messages.
        is_trial: whether to count only, without writing.

    Raises `UsageError` if there is no finished run or the schemas have nothing of it, `RunError` or `OSError` if a
    retry may continue it.
    """
    folder, _, manifest = find_finished(uri)
    before = read_schemas(folder)
    asked = schemas if before is None else before
    if asked is None:
        raise UsageError(f"{folder.describe(SCHEMAS_NAME)} is missing: name the schemas with --schemas")
    ledger, found = Ledger(folder, ""), NormalisedRun()
    if schemas is not None and before is not None:
        refuse_strange(before, schemas, uri, place)
        asked, found.notes = with_edited(before, schemas), unknown_notes(before, schemas, place)
    if is_trial:
        for shard in sorted(ledger.committed()):
            _normalise_part(_stored(ledger, shard), asked, found)
        return found
    with RunLease(folder, _LEASE_SECONDS).hold(console) as lease:
        if asked != before:
            # First, so that a pass killed after it is continued by them, with or without --schemas.
            store_normalised_schemas(folder, asked)
        for shard in sorted(ledger.committed()):
            lease.check()
            settle_replacement(ledger, shard, "attributes")
            # Model answers that people's have replaced are not part of the run, and are not counted.
            renew_kept(folder, shard, lambda kept: _normalise_part(kept, asked, NormalisedRun()))
            table = _normalise_part(_stored(ledger, shard), asked, found)
            if table is not None:
                replace_part(ledger, shard, "attributes", encode_table(table))
        summary = {"schema_hash": _hash(asked), "statuses": found.to_dict()["after"]}
        if manifest.get("normalised") != summary:
            ledger.finish({**manifest, "normalised": summary})
    return found


def _hash(schemas: Mapping[str, CategorySchema]) -> str:
    return content_hash({name: schema.hash for name, schema in schemas.items()})


def _stored(ledger: Ledger, shard: int) -> pa.Table:
    return read_part(ledger.folder, ledger.manifest(shard)["tables"]["attributes"]["public"])


def _normalise_part(table: pa.Table, schemas: Mapping[str, CategorySchema], found: NormalisedRun) -> pa.Table | None:
    """Return rows of attributes with their normalised columns; None if they are unchanged. Counts in `found`."""
    before = list(_rows(table, NORMALISED_COLUMNS))
    after = [_normalised(values, old, schemas, found) for values, old in zip(_rows(table, _READ), before, strict=True)]
    found.num_parts += 1
    if before == after and table.schema.equals(ATTRIBUTES):
        return None
    found.num_rewritten += 1
    columns = dict(zip(NORMALISED_COLUMNS, zip(*after, strict=True), strict=True)) if after else {}
    whole = completed("attributes", table)
    arrays = [
        pa.array(columns[each.name], each.type) if each.name in columns else whole[each.name] for each in ATTRIBUTES
    ]
    return pa.table(arrays, schema=ATTRIBUTES)


def _rows(table: pa.Table, names: tuple[str, ...]) -> Iterator[Row]:
    """Return the rows of these columns; None for cells of a column that an older run does not have."""
    nothing = [None] * table.num_rows
    return zip(*(table[name].to_pylist() if name in table.column_names else nothing for name in names), strict=True)


def _normalised(values: Row, old: Row, schemas: Mapping[str, CategorySchema], found: NormalisedRun) -> Row:
    """Return the normalised columns of one row. Counts in `found`."""
    category, attribute, status, raw, evidence, source, num_tokens = values
    if status != "value" or raw is None:
        return (None,) * len(NORMALISED_COLUMNS)
    found.num_values += 1
    found.before[old[0]] += 1
    schema = schemas.get(category)
    normaliser = normalisers(schema).get(attribute) if schema is not None else None
    if is_written(source, num_tokens):
        evidence = None  # it has its unit itself
    new: Row = old if normaliser is None else tuple(normaliser.normalise(raw, evidence))
    found.num_unknown += normaliser is None
    found.num_changed += new != old
    found.after[new[0]] += 1
    return new
