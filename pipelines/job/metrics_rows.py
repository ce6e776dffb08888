"""Rows of a shard in the metrics table: the work of its engines, in tokens, seconds and dollars."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.job.context import DecodedShard, JobContext, SecondLook

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
