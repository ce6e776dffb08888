"""Rows of a shard in the metrics table: the work of its engines, in tokens, seconds and dollars."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpd_core import CategorySchema, Evidence, Record, RecordResult, Value
from hpd_core.text.grounding import find_evidence
from hpd_core.text.number_atoms import VULGAR_FRACTIONS
from pipelines.catalog.html_text import original_places
from pipelines.config.catalog_input import HtmlMode
from pipelines.job.context import DecodedShard, JobContext, SecondLook
from pipelines.normalising.asked import CONTEXT
from pipelines.normalising.normalise import Normaliser

Row = dict[str, Any]

TOKEN_METRICS = (
    *("prefix_tokens_computed", "prefix_tokens_reused", "document_tokens", "document_tokens_shared", "key_tokens"),
    *("value_tokens", "scored_tokens"),
)
# Metrics that a run's manifest sums over its shards.
SUMMED_METRICS = (
    *(*TOKEN_METRICS, "num_steps", "busy_seconds", "prefix_seconds", "retry_seconds", "load_seconds"),
    *("billed_seconds", "retries", "bytes_read", "bytes_written", "cost_useful", "cost_billed"),
)


def metrics_rows(
    decoded: DecodedShard, job: JobContext, counts: Mapping[str, Any], started: datetime.datetime, bytes_written: int
) -> list[Row]:
    """Return a shard's rows of the metrics: one, and with a cascade another for its larger model.

    Args:
        counts: counts of the shard, as in its manifest.
        started: when `finish_shard` began to make tables of its answers.
        bytes_written: size of the other tables.
    """
    rows = [_first_row(decoded, job, counts, started, bytes_written)]
    look = decoded.second
    if look is not None and look.answers is not None:
        rows.append(_second_row(look, look.answers, job, started))
    return rows


def sums_of_known(rows: Sequence[Row]) -> dict[str, Any]:
    """Return sums over a shard's rows; a metric that is unknown in any row is left out."""
    return {
        name: sum(row[name] for row in rows) for name in SUMMED_METRICS if all(row[name] is not None for row in rows)
    }


def _first_row(
    decoded: DecodedShard, job: JobContext, counts: Mapping[str, Any], started: datetime.datetime, bytes_written: int
) -> Row:
    shard, seconds, now = decoded.prepared.shard, decoded.prepared.seconds, datetime.datetime.now(datetime.UTC)
    return _engine_cells(decoded, job, started, seconds) | {
        "num_rows": shard.num_rows,
        "num_products": counts["products"],
        "num_dead_letters": counts["dead_letters"],
        "num_carried": counts["carried"]["products"],
        "num_values": sum(counts["statuses"].values()),
        "estimated_tokens": shard.estimated_tokens,
        "finished_at": now,
        "finish_seconds": (now - started).total_seconds(),
        "bytes_read": decoded.prepared.bytes_read,
        "bytes_written": bytes_written,
    }


def _second_row(look: SecondLook, answers: DecodedShard, job: JobContext, started: datetime.datetime) -> Row:
    """Return the row of the larger model. Counts that the first model's row holds are 0 here."""
    counted = ("num_rows", "num_products", "num_dead_letters", "num_carried", "estimated_tokens", "finish_seconds")
    return _engine_cells(answers, job, started, look.seconds) | {
        **dict.fromkeys((*counted, "bytes_read", "bytes_written"), 0),
        "pass": 2,
        "num_values": sum(map(len, look.asked)),
        "finished_at": datetime.datetime.now(datetime.UTC),
    }


def _engine_cells(decoded: DecodedShard, job: JobContext, started: datetime.datetime, seconds: float) -> Row:
    """Return the cells of an engine and its work on a shard. `seconds`: duration of preparing the shard."""
    measured, engine = decoded.metrics, decoded.engine
    wall = float(measured.get("wall_seconds", 0.0))
    billed, price = float(measured.get("billed_seconds", 0.0)), engine.get("price_per_hour")
    return {
        "run_id": job.run_id,
        "shard": decoded.prepared.shard.id,
        "pass": 1,
        "attempt_id": decoded.attempt_id,
        "retries": max(0, decoded.num_attempts - 1),
        **{name: measured.get(name, 0) for name in (*TOKEN_METRICS, "num_steps")},
        "started_at": started - datetime.timedelta(seconds=seconds + wall),
        "prepare_seconds": seconds,
        "busy_seconds": measured.get("busy_seconds", 0.0),
        **{name: measured.get(name, 0.0) for name in ("prefix_seconds", "retry_seconds", "load_seconds")},
        "wall_seconds": wall,
        "idle_seconds": measured.get("idle_seconds"),
        "device": engine["device"],
        "gpu_type": engine.get("device_name") if engine["device"] != "cpu" else None,
        "node_id": engine.get("node_id"),
        "actor_id": engine.get("actor_id"),
        "billed_seconds": billed,
        **{name: engine.get(name) for name in ("instance_type", "market", "node_share")},
        **{name: engine.get(name) for name in ("price_per_hour", "price_source")},
        "cost_useful": None if price is None else measured.get("busy_seconds", 0.0) * price / 3600,
        "cost_billed": None if price is None else billed * price / 3600,
        "currency": None if price is None else "USD",
    }


_NUMERIC = re.compile(rf"[\d{VULGAR_FRACTIONS}]")


def find_places(
    record: Record, schema: CategorySchema, result: RecordResult, html: HtmlMode
) -> dict[str, list[list[Row]]]:
    """Return, by attribute, the `evidence` rows of each item: its places in the catalog, and the text around them."""
    shown = find_evidence(record, schema, result)
    originals = original_places(record, shown, html)
    return {
        name: [
            [evidence_row(*pair, record) for pair in zip(places, seen, strict=True)]
            for places, seen in zip(items, shown[name], strict=True)
        ]
        for name, items in originals.items()
    }


def evidence_row(place: Evidence, shown: Evidence, record: Record) -> Row:
    """Return a place as a row of the table. `shown` is the same place in the record's text."""
    row: Row = {"field": place.field, "start": place.start, "end": place.end, "text": place.text, "match": place.match}
    # Units stand at numbers. The text around other values is not needed.
    if _NUMERIC.search(place.text):
        text = record.fields[shown.field]
        row["before"] = text[max(0, shown.start - CONTEXT) : shown.start]
        row["after"] = text[shown.end : shown.end + CONTEXT]
    return row


def answer_rows(
    attribute: str, value: Value, evidence: Sequence[Sequence[Row]], normaliser: Normaliser
) -> Iterator[Row]:
    """Yield the rows of one answer, without the cells that all rows of the product share."""
    for index, text in enumerate(_raw_texts(value)):
        # Empty: the value stands nowhere in the text. Null: there is no value to look for.
        places = evidence[index] if value.status == "value" else None
        yield {
            "attribute": attribute,
            "value_index": index,
            "value_raw": text,
            "status": value.status,
            "evidence": places,
            "num_tokens": value.num_tokens,
            "num_dropped": value.num_dropped,
            "logprob_mean": value.logprob_mean,
            "logprob_min": value.logprob_min,
            "choice": value.choice,
            "probability": value.probability,
            "margin": value.margin,
            "source": "model",
            **(normaliser.columns(text, places) if places is not None and text is not None else {}),
        }


def _raw_texts(value: Value) -> tuple[str | None, ...]:
    if value.status == "value":
        return value.items
    # The model's text is kept even if it is not an answer; for "not stated" there is none.
    return (None,) if value.status == "absent" else (value.raw or None,)
