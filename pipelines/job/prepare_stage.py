"""Stage 1, on CPUs: read a shard, turn rows into records or dead letters, group by category, tokenize."""

from __future__ import annotations

import dataclasses
import functools
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

from hpd_core import CategorySchema, EngineConfig, Record, Value
from hpd_core.text.values import join_items
from hpd_core.types import content_hash
from pipelines.catalog.cells import CellError, described
from pipelines.catalog.html_text import MarkedUpRecord, shown_record
from pipelines.catalog.input_files import check_unchanged
from pipelines.catalog.readers import original_rows, read_piece
from pipelines.catalog.rows import RowRefusal, SourceRow, mapped_text, row_category, row_id
from pipelines.catalog.sharding import RowRange, Shard
from pipelines.config.catalog_input import InputConfig
from pipelines.console.progress import about
from pipelines.job.carryover import Carried, CarryOver
from pipelines.job.context import DeadRow, JobContext, PreparedRecord, PreparedShard
from pipelines.job.table_rows import answer_rows
from pipelines.normalising.normalise import Normaliser, normalisers
from pipelines.normalising.stated_numbers import stated_numbers
from pipelines.store.verdicts import ItemError, checked_items

if TYPE_CHECKING:
    from hpd_core import DocumentTokenizer

logger = logging.getLogger(__name__)


def prepare_shard(shard: Shard, job: JobContext) -> PreparedShard:
    """Read and check the shard. Each of its rows is in `records`, `answered` or `dead` of the result."""
    # Loaded once in each worker; that is no work on the shard that came first.
    tokenizer = document_tokenizer(job.config.model, job.config.engine)
    started = time.perf_counter()
    sizes: list[int] = []
    records, dead = _split(outcome for piece in shard.pieces for outcome in read_catalog(piece, job, sizes.append))
    if job.carry_over is not None:
        records = _carry_over(records, job.carry_over.get())
    is_open = [bool(each.wanted(job.schemas[each.record.category])) for each in records]
    answered = [each for each, has_more in zip(records, is_open, strict=True) if not has_more]
    records = list(compress(records, is_open))
    if job.config.chooses_numbers:  # only here: a nightly run carries most of its answers over
        numbered = (_outcome(each.file, each.row, functools.partial(_with_numbers, each, job)) for each in records)
        records, not_read = _split(numbered)
        dead += not_read
    # Stable, so rows of one category stay in the catalog's order: the engine shares their prefix.
    records.sort(key=lambda prepared: prepared.record.category)
    records, document_ids, not_tokenized = _tokenize(records, tokenizer)
    dead += not_tokenized
    seconds = time.perf_counter() - started
    logger.info("prepared", extra=about(shard.id, records=len(records), dead=len(dead), seconds=seconds))
    return PreparedShard(shard, records, document_ids, answered, dead, seconds, sum(sizes))


def _split(outcomes: Iterable[PreparedRecord | DeadRow]) -> tuple[list[PreparedRecord], list[DeadRow]]:
    records: list[PreparedRecord] = []
    dead: list[DeadRow] = []
    for outcome in outcomes:
        if isinstance(outcome, DeadRow):
            dead.append(outcome)
        else:
            records.append(outcome)
    return records, dead


def _tokenize(
    records: list[PreparedRecord], tokenizer: DocumentTokenizer
) -> tuple[list[PreparedRecord], list[Sequence[int]], list[DeadRow]]:
    """Return the records, their document ids, and dead rows for records that the tokenizer refuses."""
    kept, document_ids, dead = [], [], []
    found = document_ids_of([each.record for each in records], tokenizer)
    for prepared, ids in zip(records, found, strict=True):
        if isinstance(ids, Exception):
            record, refusal = prepared.record, RowRefusal("unreadable", f"it cannot be tokenized: {described(ids)}")
            dead.append(_refuse(prepared.file, prepared.row, refusal, record.id, record.category))
        else:
            kept.append(prepared)
            document_ids.append(ids)
    return kept, document_ids, dead


def document_ids_of(records: Sequence[Record], tokenizer: DocumentTokenizer) -> list[Sequence[int] | Exception]:
    """Return the token ids of each record's document, or why it cannot be tokenized."""
    try:
        return [*tokenizer.encode(records)]
    except MemoryError:
        raise
    except Exception as error:
        if len(records) == 1:
            logger.exception("a text could not be tokenized")
            return [error]
    return [ids for record in records for ids in document_ids_of([record], tokenizer)]


def read_catalog(
    piece: RowRange, job: JobContext, on_read: Callable[[int], None] = lambda num_bytes: None
) -> Iterator[PreparedRecord | DeadRow]:
    """Yield the rows of a piece of the catalog, checked. Raises as `read_piece`, or `RunError` if the
    file has changed since the run was planned."""
    source, config = job.files[piece.file], job.config.input
    rows = read_piece(source.uri, source.format, piece, config.columns, anonymous=config.anonymous, on_read=on_read)
    for row in rows:
        yield _outcome(piece.file, row.number, functools.partial(_take, row, piece.file, job))
    if source.fingerprint is not None:
        # After the rows, because the catalog may be exported again at any time.
        check_unchanged(source.uri, source.format, source.size, source.fingerprint, anonymous=config.anonymous)


def _outcome(file: int, number: int, read: Callable[[], PreparedRecord | DeadRow]) -> PreparedRecord | DeadRow:
    """Return what `read` makes of a row; a dead row if it fails."""
    try:
        return read()
    except MemoryError:
        raise  # of the process, not of the row
    except Exception as error:
        # Nobody knows of such a row. It is no reason for the others not to be read.
        logger.exception("a row could not be read")
        return _refuse(file, number, RowRefusal("unreadable", f"it cannot be read: {described(error)}"))


def read_originals(piece: RowRange, dead: Iterable[DeadRow], job: JobContext) -> dict[int, str]:
    """Return the refused rows that lie in the piece, whole, as JSON, by row number. Raises as `read_piece`."""
    wanted = {row.row for row in dead if piece.start <= row.row < piece.stop}
    if not wanted:
        return {}
    source = job.files[piece.file]
    return original_rows(source.uri, source.format, piece, wanted, anonymous=job.config.input.anonymous)


def _carry_over(records: Sequence[PreparedRecord], earlier: CarryOver) -> list[PreparedRecord]:
    found = earlier.find([each.input_hash for each in records], [each.record.category for each in records])
    return [_with_carried(each, here) if (here := found.get(each.input_hash)) else each for each in records]


def _with_carried(record: PreparedRecord, found: Carried) -> PreparedRecord:
    # A person's answer is worth more than the column, and the column more than a model's.
    of_people = {name for name, rows in found.answers.items() if rows[0].get("source") == "review"}
    copied = {name: items for name, items in record.copied.items() if name not in of_people}
    return dataclasses.replace(record, carried=found.answers, over=found.over, copied=copied)


def input_hash(record: Record) -> str:
    """Return a hash of what the model sees of a record: its category and its fields, in order.

    For HTML, the text in the catalog is hashed as well, because the places of an answer are places there.
    """
    read = [record.category, list(record.fields.items())]
    if isinstance(record, MarkedUpRecord):
        read.append(list(record.originals.items()))
    return content_hash(read)


def _take(row: SourceRow, file: int, job: JobContext) -> PreparedRecord | DeadRow:
    config = job.config.input
    record = row.record(job.files[file].name, config, job.schemas)
    if isinstance(record, RowRefusal):
        known = () if row.values is None else (row_id(row.values, config), row_category(row.values, config))
        return _refuse(file, row.number, record, *known)
    schema = job.schemas[record.category]
    copied = copied_items(row.values or {}, record, config, schema) if config.copied else {}
    return PreparedRecord(file, row.number, record, input_hash(record), copied=copied)


def _with_numbers(prepared: PreparedRecord, job: JobContext) -> PreparedRecord:
    record = prepared.record
    numbers = stated_numbers(record, job.schemas[record.category])
    return dataclasses.replace(prepared, record=dataclasses.replace(record, numbers=numbers))


def _refuse(
    file: int, number: int, refusal: RowRefusal, product_id: str | None = None, category: str | None = None
) -> DeadRow:
    return DeadRow(file, number, product_id, category, "prepare", refusal.code, refusal.message)


@functools.lru_cache(maxsize=2)
def _cached_tokenizer(model: str, engine: str) -> DocumentTokenizer:
    # Imports torch, which takes seconds: `finish` reads rows by this module, and needs no tokenizer.
    from hpd_core import DocumentTokenizer

    return DocumentTokenizer.from_pretrained(model, EngineConfig.model_validate_json(engine))


def document_tokenizer(model: str, engine: EngineConfig) -> DocumentTokenizer:
    """Return the tokenizer, which is loaded once in each worker."""
    # Configurations are compared by their text: a worker process keeps its tokenizer from shard to shard.
    return _cached_tokenizer(model, engine.model_dump_json())


_SEVERAL = re.compile(r"[,;|]")
"""Signs in one text that may stand between several values."""


def copied_items(
    row: Mapping[str, Any], record: Record, config: InputConfig, schema: CategorySchema
) -> dict[str, tuple[str, ...]]:
    """Return the items of the attributes that a column answers. Cells that are empty, cannot be read or hold no value
    of the attribute are left out, as are those that may hold several values in one text."""
    found = {}
    for attribute in schema.attributes:
        if attribute.name not in config.copied:
            continue
        try:
            cell = mapped_text(row, config.copied[attribute.name], config)
            shown = shown_record(Record(record.id, record.category, {attribute.name: cell}), config.html)
            text = shown.fields[attribute.name]
            cells = text.split(config.list_separator) if attribute.multiple else [text]
            if attribute.multiple and len(cells) == 1 and _SEVERAL.search(text):
                continue  # nothing says what parts them
            normaliser = normalisers(schema)[attribute.name]
            found[attribute.name] = checked_items(attribute, cells, record.fields, normaliser)
        except (CellError, ItemError):
            continue
    return found


def copied_rows(attribute: str, items: tuple[str, ...], column: str, normaliser: Normaliser) -> list[dict[str, Any]]:
    """Return rows of the attribute table for copied items. Their evidence is the column."""
    value = Value(join_items(items), items, "value")
    places = [[{"field": column, "start": 0, "end": len(item), "text": item, "match": "exact"}] for item in items]
    answered = answer_rows(attribute, value, places, normaliser)
    return [row | {"source": "column", "decision": "accept"} for row in answered]
