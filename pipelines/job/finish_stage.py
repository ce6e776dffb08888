"""Stages 3 and 4, on CPUs: make the four tables of a shard of its answers, and commit them."""

from __future__ import annotations

import datetime
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hpd_core import CategorySchema, ErrorCode, RecordResult
from hpd_core.text.values import join_items
from pipelines.catalog.cells import described
from pipelines.console.progress import about
from pipelines.job.context import DeadRow, DecodedShard, JobContext, PreparedRecord, SecondLook
from pipelines.job.preflight import count_unknown
from pipelines.job.prepare_stage import copied_rows, document_ids_of, document_tokenizer, read_originals
from pipelines.job.table_rows import answer_rows, find_places, metrics_rows, sums_of_known
from pipelines.normalising.normalise import normalisers
from pipelines.quality.both_answers import Standing, count_asked, doubtful, larger_model, replaced_answer, standing
from pipelines.quality.calibration_file import CalibratedModel, DecodedBy
from pipelines.quality.run_confidence import run_confidence
from pipelines.store.tables import EncodedTable, encode

if TYPE_CHECKING:
    from hpd_core import DocumentTokenizer

logger = logging.getLogger(__name__)

Row = dict[str, Any]


class Finished(NamedTuple):
    """Tables of a shard as stored, by name, and its facts for the manifest."""

    attempt_id: str
    tables: Mapping[str, EncodedTable]
    facts: Mapping[str, Any]


class _Written(NamedTuple):
    """Rows of a product. `answers` are its rows of the attribute table, by attribute, without the cells that are
    `common` to all of them, unless an earlier run or a larger model answered."""

    record: PreparedRecord
    standing: Standing | None
    common: Row
    answers: Mapping[str, Sequence[Row]]
    product: Row


def finish_shard(decoded: DecodedShard, job: JobContext) -> Finished:
    """Return the shard's tables, and its facts. Rows are in the catalog's order.

    Raises `RunError` if there are dead rows and their file cannot be read.
    """
    started = datetime.datetime.now(datetime.UTC)
    written, dead = _write(decoded, job)
    products = [each.product for each in written]
    dead_letters = _dead_letter_rows(dead, decoded, job)

    num_rows = decoded.prepared.shard.num_rows
    if len(products) + len(dead_letters) != num_rows:
        raise RuntimeError(
            f"shard {decoded.prepared.shard.id}: {num_rows} rows in, {len(products)} products and "
            f"{len(dead_letters)} dead letters out"
        )
    counts = {
        "rows": num_rows,
        "products": len(products),
        "dead_letters": len(dead_letters),
        "statuses": Counter(rows[0]["status"] for each in written for rows in each.answers.values()),
        "reasons": Counter(row.code for row in dead),
        "unknown_categories": count_unknown(row.category for row in dead if row.code == ErrorCode.NO_SCHEMA),
        "decisions": _count_decisions(written),
        "carried": _count_carried(written),
        **_count_second_look(written, decoded),
    }
    tables = {
        "attributes": encode("attributes", _attribute_rows(written)),
        "products": encode("products", products),
        "dead_letter": encode("dead_letter", dead_letters),
    }
    num_bytes = sum(len(table.data) for table in tables.values())
    metrics = metrics_rows(decoded, job, counts, started, num_bytes)
    tables["metrics"] = encode("metrics", metrics)
    facts = {
        "run_id": job.run_id,
        "counts": counts,
        "metrics": sums_of_known(metrics),
        "engine": dict(decoded.engine),
        **_facts_of_second(decoded, metrics[1:]),
        "finished_at": metrics[0]["finished_at"].isoformat(timespec="milliseconds"),
    }
    return Finished(decoded.attempt_id, tables, facts)


def _facts_of_second(decoded: DecodedShard, metrics: Sequence[Row]) -> dict[str, Any]:
    if decoded.second is None or decoded.second.answers is None:
        return {}
    return {"cascade": {"engine": dict(decoded.second.answers.engine), "metrics": sums_of_known(metrics)}}


def _write(decoded: DecodedShard, job: JobContext) -> tuple[list[_Written], list[DeadRow]]:
    """Return the products with their rows, and the dead rows; both in the catalog's order."""
    answered, dead = _split(decoded)
    engines, written = _engines(decoded), []
    for record, stands in answered:
        try:
            common, answers = _provenance(record, decoded.engine, job), _answers(record, stands, decoded, engines, job)
            written.append(_Written(record, stands, common, answers, common | _product_cells(stands, answers, job)))
        except MemoryError:
            raise
        except Exception as error:
            # No such record is known. It must not keep the others from being written.
            logger.exception("answers could not be written")
            dead.append(_dead(record, ErrorCode.ENGINE, f"its answers cannot be written: {described(error)}"))
    return written, sorted(dead, key=lambda row: (row.file, row.row))


def _split(decoded: DecodedShard) -> tuple[list[tuple[PreparedRecord, Standing | None]], list[DeadRow]]:
    """Return products with their standing answers, and dead rows. A product with None has all answers from an earlier
    run."""
    dead = list(decoded.prepared.dead)
    answered: list[tuple[PreparedRecord, Standing | None]] = [(each, None) for each in decoded.prepared.answered]
    look = decoded.second
    for index, (record, result) in enumerate(zip(decoded.prepared.records, decoded.results, strict=True)):
        if result is None:
            dead.append(_dead(record, "decode_failed", decoded.failures[index]))
            continue
        stands = Standing(result)
        if look is not None and look.answers is not None:
            stands = standing(result, look.answers.results[index], look.asked[index])
        if stands.result.error is None:
            answered.append((record, stands))
        else:
            dead.append(_dead(record, str(result.error_code or "engine"), result.error or ""))
    answered.sort(key=lambda pair: (pair[0].file, pair[0].row))
    return answered, dead


def _dead(record: PreparedRecord, code: str, message: str) -> DeadRow:
    return DeadRow(record.file, record.row, record.record.id, record.record.category, "decode", code, message)


def _place(record: PreparedRecord, job: JobContext) -> Row:
    return {
        "run_id": job.run_id,
        "source_file": job.files[record.file].name,
        "source_row": record.row,
        "product_id": record.record.id,
        "category": record.record.category,
    }


def commit_shard(shard: int, finished: Finished | None, job: JobContext) -> tuple[dict[str, Any], bool]:
    """Return the manifest of the committed shard, and whether this attempt has written it. `finished`: None if another
    one was committed before."""
    if finished is None or job.ledger.is_committed(shard):
        return job.ledger.manifest(shard), False
    manifest, is_ours = job.ledger.commit(shard, *finished)
    extra = about(shard, attempt=finished.attempt_id, products=finished.facts["counts"]["products"])
    logger.info("committed" if is_ours else "another attempt was committed first", extra=extra)
    return manifest, is_ours


def _provenance(record: PreparedRecord, engine: Mapping[str, Any], job: JobContext) -> Row:
    return _place(record, job) | {
        "model_id": engine["model_id"],
        "model_revision": engine["model_revision"],
        "adapter_revision": engine["adapter_revision"],
        "schema_hash": job.schemas[record.record.category].hash,
        "prompt_hash": engine["prompt_hash"],
        "layout": engine["layout"],
        "input_hash": record.input_hash,
    }


def _count_carried(written: Sequence[_Written]) -> dict[str, int]:
    return {
        "products": sum(each.standing is None and bool(each.record.carried) for each in written),
        "products_in_part": sum(each.standing is not None and bool(each.record.carried) for each in written),
        "values": sum(len(each.record.carried) for each in written),
        "reviewed": sum(rows[0].get("source") == "review" for each in written for rows in each.answers.values()),
    }


def _count_decisions(written: Sequence[_Written]) -> dict[str, int]:
    decisions = (rows[0].get("decision") for each in written for rows in each.answers.values())
    return Counter(decision for decision in decisions if decision is not None)


def _count_second_look(written: Sequence[_Written], decoded: DecodedShard) -> dict[str, dict[str, int]]:
    if decoded.second is None:
        return {}
    return {"cascade": count_asked([each.standing for each in written if each.standing is not None])}


def _answers(
    record: PreparedRecord, stands: Standing | None, decoded: DecodedShard, engines: DecodedBy, job: JobContext
) -> dict[str, list[Row]]:
    """Return rows of the attribute table by attribute, in the schema's order; each attribute has at least one."""
    schema = job.schemas[record.record.category]
    values = {} if stands is None else stands.result.values
    evidence = {} if stands is None else find_places(record.record, schema, stands.result, job.config.input.html)
    normalising = normalisers(schema)
    found = {
        name: list(answer_rows(name, values[name], evidence.get(name, ()), normalising[name]))
        if name in values
        else copied_rows(name, record.copied[name], str(job.config.input.copied[name]), normalising[name])
        if name in record.copied
        else [_carried_row(row, record, job) for row in record.carried[name]]
        for name in (attribute.name for attribute in schema.attributes)
    }
    if stands is not None and stands.replaced:
        _say_who_answered(found, record, stands, decoded, job)
    _fill_confidence(found, schema, stands, engines, job)
    return found | {name: [_carried_row(row, record, job) for row in rows] for name, rows in record.over.items()}


def _fill_confidence(
    rows: Mapping[str, Sequence[Row]],
    schema: CategorySchema,
    stands: Standing | None,
    engines: DecodedBy,
    job: JobContext,
) -> None:
    """Fill the confidence and the decision into the rows."""
    known = run_confidence(job.output)
    for attribute in schema.attributes:
        answer = rows[attribute.name]
        if answer[0].get("source") == "column":
            continue
        if stands is not None and attribute.name in stands.result.values:
            model = engines.engines[-1 if attribute.name in stands.replaced else 0]
        else:
            model = engines.of(answer[0])
        known.fill(answer, schema.category, attribute, model)


def _engines(decoded: DecodedShard) -> DecodedBy:
    """Return the engines that decoded the shard; the larger model's last."""
    second = decoded.second.answers if decoded.second is not None else None
    return DecodedBy([CalibratedModel.of(each.engine) for each in (decoded, second) if each is not None])


def _say_who_answered(
    rows: Mapping[str, Sequence[Row]], record: PreparedRecord, stands: Standing, decoded: DecodedShard, job: JobContext
) -> None:
    """Write the larger model's provenance, and the replaced answer, into the rows of its answers."""
    second = decoded.second
    assert second is not None
    assert second.answers is not None
    provenance = _provenance(record, second.answers.engine, job)
    for name, old in stands.replaced.items():
        for row in rows[name]:
            row |= provenance
        rows[name][0]["replaced"] = [replaced_answer(old, decoded.engine, stands.asked[name])]


def _carried_row(row: Mapping[str, Any], record: PreparedRecord, job: JobContext) -> Row:
    """Return an earlier run's row as this run's. Cells that describe the origin of the value stay as they were."""
    return {**row, **_place(record, job), "carried_from": row.get("carried_from") or row["run_id"]}


def _attribute_rows(written: Sequence[_Written]) -> Iterator[Row]:
    return (each.common | row for each in written for items in each.answers.values() for row in items)


def _product_cells(stands: Standing | None, answers: Mapping[str, Sequence[Row]], job: JobContext) -> Row:
    """Return the cells of the product's row that its attribute rows do not have."""
    statuses = [rows[0]["status"] for rows in answers.values()]
    return {
        "values": [(name, _text(rows)) for name, rows in answers.items()],
        **{f"num_{status}": statuses.count(status) for status in ("value", "absent", "truncated", "invalid")},
        "engine_seconds": None if stands is None else stands.result.engine_seconds,
        "cascade_seconds": None if stands is None else stands.seconds,
        "carried_from": job.carry_over.run_id if stands is None and job.carry_over is not None else None,
    }


def _text(rows: Sequence[Row]) -> str | None:
    return join_items([row["value_raw"] for row in rows]) if rows[0]["status"] == "value" else None


def _dead_letter_rows(dead: list[DeadRow], decoded: DecodedShard, job: JobContext) -> list[Row]:
    originals = _originals(dead, decoded, job)
    return [
        {
            "run_id": job.run_id,
            "source_file": job.files[row.file].name,
            "source_row": row.row,
            "product_id": row.product_id,
            "category": row.category,
            "stage": row.stage,
            "error_code": row.code,
            "error": row.message,
            "row_json": originals.get((row.file, row.row)),
            "attempts": decoded.num_attempts,
        }
        for row in dead
    ]


def _originals(dead: list[DeadRow], decoded: DecodedShard, job: JobContext) -> dict[tuple[int, int], str]:
    """Return the dead rows as JSON. They are few, so they are read again here instead of carried through the stages.

    Raises `RunError` if their file cannot be read now: committed without their text, they could never be repaired.
    """
    missing = defaultdict(list)
    for row in dead:
        missing[row.file].append(row)
    found: dict[tuple[int, int], str] = {}
    for piece in decoded.prepared.shard.pieces:
        rows = read_originals(piece, missing[piece.file], job)
        found |= {(piece.file, number): text for number, text in rows.items()}
    return found


Asked = Mapping[str, float | None]
# Errors that no other model can avoid either.
_HOPELESS = (ErrorCode.NO_SCHEMA, ErrorCode.NOT_TEXT)


def look_again(decoded: DecodedShard, job: JobContext) -> DecodedShard:
    """Add to the shard what is asked again of its records. Nothing is asked of records that the first engine gave up
    on: they may be dangerous to another."""
    larger = larger_model(job.config)
    # Loaded once in each worker; that is no work on the shard that came first.
    tokenizer = document_tokenizer(larger.model, larger.engine)
    started = time.perf_counter()
    records = decoded.prepared.records
    asked = [_asked(record, result, decoded, job) for record, result in zip(records, decoded.results, strict=True)]
    decoded.second = SecondLook(asked, _encoded(records, asked, tokenizer), time.perf_counter() - started)
    logger.info("doubted", extra=about(decoded.prepared.shard.id, answers=sum(map(len, asked))))
    return decoded


def _asked(record: PreparedRecord, result: RecordResult | None, decoded: DecodedShard, job: JobContext) -> Asked:
    cascade = job.config.cascade
    assert cascade is not None
    if result is None:
        return {}
    if result.error is not None:
        # The first model has no room for it, as a rule; another may have.
        hopeless = result.error_code in _HOPELESS
        return {} if hopeless else dict.fromkeys(record.wanted(job.schemas[record.record.category]))
    return doubtful(result, _confidences(record, result, decoded, job), cascade.below)


def _confidences(
    record: PreparedRecord, result: RecordResult, decoded: DecodedShard, job: JobContext
) -> dict[str, float | None]:
    """Return the confidence of each answer by attribute; empty without a calibration."""
    known = run_confidence(job.output)
    if not known.calibrations:
        return {}
    model, schema = CalibratedModel.of(decoded.engine), job.schemas[record.record.category]
    places, normalising = find_places(record.record, schema, result, job.config.input.html), normalisers(schema)
    found = {}
    for attribute in schema.attributes:
        if (value := result.values.get(attribute.name)) is not None:
            own = places.get(attribute.name, ())
            rows = list(answer_rows(attribute.name, value, own, normalising[attribute.name]))
            found[attribute.name], _ = known.judge(rows, schema.category, attribute, model)
    return found


def _encoded(
    records: Sequence[PreparedRecord], asked: Sequence[Asked], tokenizer: DocumentTokenizer
) -> list[Sequence[int] | None]:
    """Return token ids of the documents that are asked about; None for others, and for any that cannot be tokenized:
    it keeps its present answers."""
    found = iter(document_ids_of([each.record for each, names in zip(records, asked, strict=True) if names], tokenizer))
    ids_of_each = (next(found) if names else None for names in asked)
    return [None if isinstance(ids, Exception) else ids for ids in ids_of_each]
