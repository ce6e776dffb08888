"""Second look of a `cascade`, between its two models, on CPUs: select the answers to ask the larger model for again."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from hpd_core import ErrorCode, RecordResult
from pipelines.cascading.doubt import doubtful
from pipelines.cascading.larger_model import larger_model
from pipelines.confidence.calibration_file import CalibratedModel
from pipelines.confidence.run_confidence import run_confidence
from pipelines.console.json_logs import about
from pipelines.job.answer_rows import answer_rows, find_places
from pipelines.job.context import DecodedShard, JobContext, PreparedRecord, SecondLook
from pipelines.job.prepare_stage import document_tokenizer
from pipelines.normalising.normalise import normalisers

if TYPE_CHECKING:
    from hpd_core import DocumentTokenizer

logger = logging.getLogger(__name__)

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
    """Return token ids of the documents that are asked about; None for others, and for any that cannot be tokenized."""
    places = [index for index, each in enumerate(asked) if each]
    found: list[Sequence[int] | None] = [None] * len(records)
    try:
        for index, ids in zip(places, tokenizer.encode([records[index].record for index in places]), strict=True):
            found[index] = ids
    except MemoryError:
        raise
    except Exception:
        logger.exception("a text could not be tokenized for the larger model")
        for index in places:
            # It keeps its present answers.
            with suppress(Exception):
                found[index] = tokenizer.encode([records[index].record])[0]
    return found
