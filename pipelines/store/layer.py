"""A run's answers with people's corrections over them, for any part of the attribute table.

If corrections were written into the table (`hpd review RUN --write`), the replaced rows are kept in
`reviews/replaced/`. So undoing a verdict later restores the model's answer. Both apply only to the text they belong to.
Kept rows and acceptances also apply only to the same model answer.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hpd_core import CategorySchema
from hpd_core.text.values import join_items
from pipelines.normalising.measured_text import NORMALISED_COLUMNS
from pipelines.normalising.normalise import Normaliser, normalisers
from pipelines.store.columns import REPLACED
from pipelines.store.corrections import REVIEWS_FOLDER, Correction, read_verdicts, settle
from pipelines.store.folders import Folder, map_requests
from pipelines.store.tables import ATTRIBUTES, encode_table, part_name, read_columns
from pipelines.store.texts_in_run import LeftOutReviews, TextsInRun, divided
from pipelines.store.verdicts import AnswerKey, ReviewVerdict, with_unit

REPLACED_FOLDER = f"{REVIEWS_FOLDER}/replaced"
"""Folder of `part-<shard>.parquet`: rows of the attribute table before corrections were written into it."""

Row = Mapping[str, Any]
_KEY = AnswerKey._fields
_OF_THE_RUN = ("run_id", "model_id")  # what people say is written beside them
_OF_A_MODEL = (*_OF_THE_RUN, "status", "value_raw", "logprob_mean")  # nothing else that is done to a run changes them


@dataclass(frozen=True)
class Layer:
    """Corrections, and the table's rows before earlier corrections were written into it.

    Attributes:
        corrections: corrections by answer.
        kept: replaced rows of the attribute table, by answer.
        schemas: schemas that normalise the run's values.
        verdicts: source of the corrections, oldest first; `left_out`: verdicts that apply to no answer of this run.
        texts: texts of all their rows.
    """

    corrections: Mapping[AnswerKey, Correction]
    kept: Mapping[AnswerKey, Sequence[Row]]
    schemas: Mapping[str, CategorySchema]
    verdicts: Sequence[ReviewVerdict]
    left_out: Sequence[LeftOutReviews]
    texts: TextsInRun

    @classmethod
    def open(cls, run: Folder, schemas: Mapping[str, CategorySchema] | None) -> Self:
        """Read a run's layer. Raises `UsageError` for a damaged log, `RunError` or `OSError` if it is unreadable."""
        said, names = read_verdicts(run), run.list(REPLACED_FOLDER)
        parts = map_requests(lambda name: read_kept(run, f"{REPLACED_FOLDER}/{name}"), names)
        kept = {key: rows for part in parts for key, rows in part.items()}
        places = {(key.source_file, key.source_row) for key in (*kept, *(each.key for each in said))}
        texts = TextsInRun.read(run, places, schemas)
        accepted = {each.key for each in said if each.verdict == "accept"}
        stored = _stored(run, accepted | kept.keys(), texts)
        kept = {key: rows for key, rows in kept.items() if _is_of(rows, stored.get(key), texts)}
        verdicts, left_out = divided(said, texts, stored | kept)
        return cls(settle(verdicts), kept, schemas or {}, verdicts, left_out, texts)

    def apply(self, table: pa.Table) -> pa.Table:
        """Apply people's answers to a part of the attribute table.

        Args:
            table: any columns, including `source_file`, `source_row`, `attribute` and `category`. An answer's rows are
                contiguous.
        """
        pieces, end = [], 0
        for key, place in self.places(table).items():
            rows = self.answer(key, table[place].to_pylist())
            pieces += [table[end : place.start], pa.Table.from_pylist(list(rows), schema=table.schema)]
            end = place.stop
        return pa.concat_tables([*pieces, table[end:]]).combine_chunks() if pieces else table

    def model_rows(self, key: AnswerKey, rows: Sequence[Row]) -> Sequence[Row]:
        """Return an answer's rows before any correction was written; with the columns of `rows`."""
        kept = self.kept.get(key)
        return rows if kept is None else [{name: row.get(name) for name in rows[0]} for row in kept]

    def answer(self, key: AnswerKey, rows: Sequence[Row]) -> Sequence[Row]:
        """Return an answer's rows with people's corrections."""
        before, correction = self.model_rows(key, rows), self.corrections.get(key)
        if correction is None:
            return before
        schema = self.schemas.get(rows[0]["category"])
        normaliser = normalisers(schema).get(key.attribute) if schema is not None else None
        return corrected_rows(before, correction, normaliser)

    def places(self, table: pa.Table) -> dict[AnswerKey, slice]:
        """Return the row ranges of a part's answers that are corrected now, or were when their rows were replaced."""
        keys = self.corrections.keys() | self.kept.keys()
        numbers = pa.array(sorted({key.source_row for key in keys}), pa.int64())
        near = pc.indices_nonzero(pc.is_in(table["source_row"], numbers))
        found: dict[AnswerKey, slice] = {}
        for place, *key in zip(near.to_pylist(), *(table[name].take(near).to_pylist() for name in _KEY), strict=True):
            if (name := AnswerKey(*key)) in keys:
                found[name] = slice(found[name].start if name in found else place, place + 1)
        return found


def by_answer(rows: Sequence[Row]) -> dict[AnswerKey, list[Row]]:
    """Group rows of the attribute table by answer."""
    found: dict[AnswerKey, list[Row]] = defaultdict(list)
    for row in rows:
        found[AnswerKey(*(row[name] for name in _KEY))].append(row)
    return found


def read_kept(run: Folder, name: str) -> dict[AnswerKey, list[Row]]:
    """Read the kept rows of a part of `reviews/replaced`; empty if there is no such part."""
    found = _kept_table(run, name)
    return by_answer(found.to_pylist()) if found is not None else {}


def renew_kept(run: Folder, shard: int, renewed: Callable[[pa.Table], pa.Table | None]) -> None:
    """Apply a change of a shard's attribute table to its kept rows too, because they may return to the table.

    Args:
        renewed: returns the table in its new form; None if it already has it.
    """
    name = kept_name(shard)
    before = _kept_table(run, name)
    after = renewed(before) if before is not None else None
    if after is not None:
        run.write(name, encode_table(after).data)


def kept_name(shard: int) -> str:
    """Return the path of a shard's part of `reviews/replaced`."""
    return f"{REPLACED_FOLDER}/{part_name(shard)}"


def _stored(run: Folder, keys: Collection[AnswerKey], texts: TextsInRun) -> dict[AnswerKey, Sequence[Row]]:
    """Read the rows of these answers from the attribute table; only the parts that hold them."""
    by_part: dict[str, set[AnswerKey]] = defaultdict(set)
    for key in keys:
        if (part := texts.parts.get(key[:2])) is not None:
            by_part[part].add(key)
    columns = [*_KEY, *_OF_A_MODEL, "source"]

    def read(name: str) -> dict[AnswerKey, list[Row]]:
        here = by_part[name]
        numbers = pa.array(sorted({key.source_row for key in here}), pa.int64())
        part = read_columns(run, "attributes", name, columns)
        answers = by_answer(part.filter(pc.is_in(part["source_row"], numbers)).to_pylist())
        return {key: rows for key, rows in answers.items() if key in here}

    return {key: rows for part in map_requests(read, sorted(by_part)) for key, rows in part.items()}


def _is_of(kept: Sequence[Row], stored: Sequence[Row] | None, texts: TextsInRun) -> bool:
    """Return whether kept rows belong to the run's current text and answer.

    If the stored answer is a person's, only its run and model are compared; else also the model's answer.
    """
    first = kept[0]
    if not texts.has(AnswerKey(*(first[name] for name in _KEY)), first["input_hash"]):
        return False
    if stored is None:
        return True
    by_person = stored[0].get("source") == "review"
    columns = _OF_THE_RUN if by_person else _OF_A_MODEL
    found, wanted = ([[row.get(name) for name in columns] for row in rows] for rows in (kept, stored))
    return found[:1] == wanted[:1] if by_person else found == wanted


def _kept_table(run: Folder, name: str) -> pa.Table | None:
    try:
        return pq.read_table(io.BytesIO(run.read(name)), schema=ATTRIBUTES)
    except FileNotFoundError:
        return None


# What is only true of what a model wrote.
_OF_THE_MODEL = ("logprob_mean", "logprob_min", "choice", "probability", "margin", "confidence")


def corrected_rows(rows: Sequence[Row], correction: Correction, normaliser: Normaliser | None) -> list[dict[str, Any]]:
    """Return the rows of an answer as a person left it.

    An accepted answer keeps the model's values. A person's value has no tokens (`num_tokens` is 0) and no
    probabilities; a model's name on it is the replaced model's.

    Args:
        rows: rows of the answer, for all of its items; with any columns.
        normaliser: the attribute's; None if no schema has it, so that a person's value gets no normalised form.
    """
    columns = rows[0].keys()
    reviewed = {"source": "review", "decision": "accept", "confidence": None, "replaced": None}
    if correction.is_accepted:
        found = [{**row, **reviewed} for row in rows]
    else:
        found = [{**rows[0], **reviewed, **cells} for cells in _written(correction, normaliser)]
    found[0]["replaced"] = [*(rows[0].get("replaced") or ()), replaced_answer(rows)]
    return [{name: row.get(name) for name in columns} for row in found]


def replaced_answer(rows: Sequence[Row]) -> dict[str, Any]:
    """Return an answer as stored in the column `replaced`."""
    first = rows[0]
    texts = [str(row["value_raw"]) for row in rows if row.get("value_raw") is not None]
    kept = {name: first.get(name) for name in (field.name for field in REPLACED)}
    return kept | {"source": first.get("source") or "model", "value": join_items(texts) if texts else None}


def is_written(source: str | None, num_tokens: int | None) -> bool:
    """Return whether a person wrote the value of a row, so that it has no model tokens."""
    return source == "review" and not num_tokens


def _written(correction: Correction, normaliser: Normaliser | None) -> list[dict[str, Any]]:
    nothing = {
        **dict.fromkeys((*_OF_THE_MODEL, *NORMALISED_COLUMNS, "value_raw", "evidence")),
        "status": correction.verdict.answer.status,
        "value_index": 0,
        "num_tokens": 0,
        "num_dropped": 0,
    }
    if not correction.items:
        return [nothing]
    places: Sequence[Sequence[Row]] = correction.verdict.evidence or [[]] * len(correction.items)
    return [
        {**nothing, "value_index": index, "value_raw": item, "evidence": [dict(place) for place in places[index]]}
        | (normaliser.columns(item, None) if normaliser is not None else {})
        for index, item in enumerate(with_unit(item, correction.verdict.unit) for item in correction.items)
    ]
