"""Output folders of runs as extract.py leaves them, made by hand: what a run answers is known."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from hpd_core import Attribute, CategorySchema, Record
from pipelines.catalog.sharding import RowRange, Shard
from pipelines.job.prepare_stage import input_hash
from pipelines.job.run_plan import Plan, PlannedFile
from pipelines.store.folders import Folder
from pipelines.store.ledger import PLAN_NAME
from pipelines.store.no_run import store_schemas
from pipelines.store.tables import to_table

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
# A value, several of them, or a status other than "value".
Answer = str | list[str] | tuple[str]
ABSENT, TRUNCATED, INVALID = ("absent",), ("truncated",), ("invalid",)


@dataclass(frozen=True)
class Row:
    """A row of the catalog and what the run says of it; no answers: dead-lettered.

    `decided`: what was decided of an answer; `reviewed`: attributes whose answer is a person's.
    """

    id: str | None
    answers: Mapping[str, Answer] | None
    text: str = "Acme Kona, dark roast"
    category: str = "Coffee"
    row: int | None = None
    carried_from: Mapping[str, str] = field(default_factory=dict)
    decided: Mapping[str, str] = field(default_factory=dict)
    reviewed: Sequence[str] = ()


def write_run(
    folder: Path,
    rows: Sequence[Row],
    *,
    run_id: str | None = None,
    files: Mapping[str, str] | None = None,
    schemas: Mapping[str, Sequence[str | Attribute]] | None = None,
    config: Mapping[str, Any] | None = None,
    engine: Mapping[str, Any] | None = None,
    price: float | None = None,
    shard_rows: int = 3,
    unfinished_shards: int = 0,
) -> str:
    """Writes a run, shard by shard.

    Args:
        files: name and fingerprint of the input files; all rows are of the first.
        schemas: attributes by category; without it, those that are answered.
        unfinished_shards: how many of the last shards are planned and not committed.
    """
    run_id, files = run_id or folder.name, files or {"catalog.parquet": "f1"}
    output, cuts = Folder(str(folder)), range(0, len(rows), shard_rows)
    shards = [(index, start, min(start + shard_rows, len(rows))) for index, start in enumerate(cuts)]
    plan = Plan(
        run_id=run_id,
        created_at=START.isoformat(),
        result_config=dict(config or {"model": "m"}),
        config_hash="c",
        schema_hash="s",
        limit=None,
        files=[PlannedFile(name, "parquet", 1, fingerprint, len(rows)) for name, fingerprint in files.items()],
        shards=[
            Shard(index, (RowRange(0, start, stop, stop - start),), stop - start, 10) for index, start, stop in shards
        ],
    )
    output.write(PLAN_NAME, plan.to_json())
    described = {"model_id": "m", "model_revision": "r1", "layout": "tree", "prompt_hash": "p", "dtype": "float32"}
    output.write("_engine.json", json.dumps({**described, **(engine or {})}).encode())
    if schemas is None:
        asked: dict[str, dict[str, None]] = {}
        for row in rows:
            asked.setdefault(row.category, {}).update(dict.fromkeys(row.answers or ()))
        schemas = {category: list(names) for category, names in asked.items() if names}
    store_schemas(
        output,
        {
            category: CategorySchema(
                category=category,
                attributes=tuple(each if isinstance(each, Attribute) else Attribute(name=each) for each in attributes),
            )
            for category, attributes in schemas.items()
        },
    )
    for index, start, stop in shards[: len(shards) - unfinished_shards]:
        part = [(number, rows[number]) for number in range(start, stop)]
        _write_shard(folder, index, part, run_id, next(iter(files)), described | dict(engine or {}), price)
    if not unfinished_shards:
        output.write("manifest.json", json.dumps({"finished_at": START.isoformat()}).encode())
    return str(folder)


def _write_shard(
    folder: Path,
    index: int,
    rows: Sequence[tuple[int, Row]],
    run_id: str,
    file: str,
    engine: Mapping[str, Any],
    price: float | None,
) -> None:
    tables: dict[str, list[dict[str, Any]]] = {"attributes": [], "products": [], "dead_letter": [], "metrics": []}
    for number, row in rows:
        place = {
            "run_id": run_id,
            "source_file": file,
            "source_row": number if row.row is None else row.row,
            "product_id": row.id,
            "category": row.category,
        }
        if row.answers is None:
            failure = {"stage": "decode", "error_code": "too_long", "error": "too long", "attempts": 1}
            tables["dead_letter"].append(place | failure)
            continue
        provenance = place | {
            "model_id": engine["model_id"],
            "schema_hash": "s",
            "prompt_hash": engine["prompt_hash"],
            "layout": engine["layout"],
            "input_hash": input_hash(Record("", row.category, {"title": row.text})),
        }
        counts = {f"num_{status}": 0 for status in ("value", "absent", "truncated", "invalid")}
        carried = set(row.carried_from.values()) if set(row.carried_from) == set(row.answers) else set()
        tables["products"].append(provenance | counts | {"values": [], "carried_from": next(iter(carried), None)})
        for attribute, answer in row.answers.items():
            status = answer[0] if isinstance(answer, tuple) else "value"
            kept = None if status == "absent" else "what the model wrote"
            texts = [kept] if isinstance(answer, tuple) else [answer] if isinstance(answer, str) else answer
            for position, text in enumerate(texts):
                tables["attributes"].append(
                    provenance
                    | {"attribute": attribute, "value_index": position, "value_raw": text, "status": status}
                    | {"num_tokens": 2, "num_dropped": 0, "logprob_mean": -0.1}
                    | {"evidence": _evidence(text or "", row.text) if status == "value" else None}
                    | {"carried_from": row.carried_from.get(attribute)}
                    | {"decision": row.decided.get(attribute), "confidence": 0.9 if row.decided else None}
                    | {"source": "review" if attribute in row.reviewed else "model"}
                )
    products, dead = len(tables["products"]), len(tables["dead_letter"])
    tables["metrics"] = [shard_metrics(run_id, index, products, dead, len(tables["attributes"]), price)]
    for name, entries in tables.items():
        (folder / name).mkdir(exist_ok=True)
        pq.write_table(to_table(name, entries), folder / name / f"part-{index:06d}.parquet")
    first = [row for row in tables["attributes"] if row["value_index"] == 0]
    counts = {
        "rows": products + dead,
        "products": products,
        "dead_letters": dead,
        "statuses": Counter(row["status"] for row in first),
        "reasons": {"too_long": dead} if dead else {},
    }
    manifest = {"shard": index, "tables": {}, "counts": counts, "metrics": {}, "finished_at": START.isoformat()}
    Folder(str(folder)).write(f"_shards/{index:06d}.json", json.dumps(manifest).encode())


def _evidence(value: str, text: str) -> list[dict[str, Any]]:
    start = text.find(value)
    if start < 0:
        return []
    return [{"field": "title", "start": start, "end": start + len(value), "text": value, "match": "exact"}]


def shard_metrics(
    run_id: str, index: int, products: int, dead: int, values: int, price: float | None
) -> dict[str, Any]:
    """Every shard takes ten seconds, five of them computing; the next begins when it has ended."""
    tokens = ("prefix_tokens_computed", "prefix_tokens_reused", "document_tokens", "key_tokens", "value_tokens")
    start = START + datetime.timedelta(seconds=10 * index)
    return {
        "run_id": run_id,
        "shard": index,
        "attempt_id": "a",
        "retries": 0,
        "num_rows": products + dead,
        "num_products": products,
        "num_dead_letters": dead,
        "num_carried": 0,
        "num_values": values,
        "estimated_tokens": 1,
        **dict.fromkeys(tokens, 7),
        "num_steps": 3,
        "started_at": start,
        "finished_at": start + datetime.timedelta(seconds=10),
        "prepare_seconds": 0.1,
        "busy_seconds": 5.0,
        "load_seconds": 1.0 if index == 0 else 0.0,
        "wall_seconds": 9.0,
        "finish_seconds": 0.0,
        "device": "cpu",
        "billed_seconds": 10.0,
        "price_per_hour": price,
        "cost_useful": None if price is None else 5 * price / 3600,
        "cost_billed": None if price is None else 10 * price / 3600,
        "currency": None if price is None else "USD",
    }
