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
from hpd_core.text.near_names import NearNames, listed, quoted
from pipelines.config.schema_file import schemas_hash
from pipelines.errors import UsageError
from pipelines.job.run_plan import find_finished
from pipelines.normalising.measured_text import NORM_STATUSES, NORMALISED_COLUMNS
from pipelines.normalising.normalise import normalisers
from pipelines.store.layer import is_written, renew_kept
from pipelines.store.lease import RunLease
from pipelines.store.ledger import Ledger, replace_part, settle_replacement
from pipelines.store.no_run import SCHEMAS_NAME, read_schemas, store_normalised_schemas
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
        summary = {"schema_hash": schemas_hash(asked), "statuses": found.to_dict()["after"]}
        if manifest.get("normalised") != summary:
            ledger.finish({**manifest, "normalised": summary})
    return found


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


_MAX_NOTES = 10

Schemas = Mapping[str, CategorySchema]


def with_edited(before: Schemas, edited: Schemas) -> dict[str, CategorySchema]:
    """Return the run's schemas with edited attributes in place of its own; attributes the run lacks are left out."""
    found = {}
    for category, schema in before.items():
        new = edited.get(category, schema)
        attributes = {each.name: each for each in new.attributes}
        kept = tuple(attributes.get(each.name, each) for each in schema.attributes)
        found[category] = CategorySchema.model_validate({**dict(new), "attributes": kept})
    return found


def refuse_strange(before: Schemas, edited: Schemas, run: str, place: str) -> None:
    """Raise `UsageError` if the edited schemas have no attribute of the run's: none of its values could change.

    Args:
        run: name of the run.
        place: origin of the edited schemas.
    """
    common = [category for category in edited if category in before]
    if any(_names(edited[category]) & _names(before[category]) for category in common):
        return
    reason = f"nothing in {place} is of the run {run}, so nothing would change"
    if common:
        category = common[0]
        ours, theirs = listed(sorted(_names(edited[category]))), listed(sorted(_names(before[category])))
        shown = f"the attributes of {quoted(category)} are {ours} there, and {theirs} in the run"
    else:
        shown = f"its categories are {listed(sorted(edited))}, the run's {listed(sorted(before))}"
    near = next((note for note, is_near in _unknown(before, edited) if is_near), None)
    hint = f" ({near})" if near is not None else ""
    raise UsageError(f"{reason}: {shown}{hint}. Write the names as the run has them")


def unknown_notes(before: Schemas, edited: Schemas, place: str) -> list[str]:
    """Return a line for each of the first categories and attributes that the run does not have, misspelt ones first."""
    found = sorted(_unknown(before, edited), key=lambda each: not each[1])
    notes = [f"{place}: {note}" for note, _ in found[:_MAX_NOTES]]
    if len(found) > _MAX_NOTES:
        notes.append(f"and {len(found) - _MAX_NOTES:,} more names in {place} that the run does not have")
    return notes


def _unknown(before: Schemas, edited: Schemas) -> Iterator[tuple[str, bool]]:
    """Yield a note for each name that the run does not have, and whether the run has one like it.

    A name that the edited schemas have themselves is not suggested for another one of them.
    """
    categories = NearNames(each for each in before if each not in edited)
    for category, schema in edited.items():
        if category not in before:
            hint = categories.hint(category)
            yield _note(f"the run has no category {quoted(category)}", hint)
            continue
        names = _names(before[category])
        attributes = NearNames(names - _names(schema))
        for each in schema.attributes:
            if each.name not in names:
                hint = attributes.hint(each.name)
                yield _note(f"the run has no attribute {quoted(each.name)} in {quoted(category)}", hint)


def _note(said: str, hint: str) -> tuple[str, bool]:
    return (f"{said}; {hint}", True) if hint else (said, False)


def _names(schema: CategorySchema) -> set[str]:
    return {each.name for each in schema.attributes}
