"""Runs as they lie in their folders, written by hand so that every number of a report can be checked by hand."""

from __future__ import annotations

import datetime
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hpd_core import Attribute, Record
from hpd_core.text.grounding import Grounder
from pipelines.catalog.sharding import RowRange, Shard
from pipelines.job.prepare_stage import input_hash
from pipelines.job.run_plan import Plan, PlannedFile
from pipelines.store.tables import to_table

START = datetime.datetime(2026, 11, 1, 12, tzinfo=datetime.UTC)
ENGINE = {"model_id": "tiny", "layout": "tree", "decoding": "hpd", "device": "cpu", "versions": {"torch": "2"}}
_STATUSES = ("value", "absent", "truncated", "invalid")


@dataclass
class Answer:
    """`text`: one value, several, or what the model wrote for another `status`. `columns`: further ones."""

    text: str | list[str] | None
    probability: float | None = 0.9
    status: str = "value"
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Product:
    """A row of the catalog and what became of it. `dead`: error code and message."""

    id: str | None
    fields: Mapping[str, str]
    answers: Mapping[str, Answer] = field(default_factory=dict)
    category: str = "Coffee"
    seconds: float | None = None
    carried_from: str | None = None
    dead: tuple[str, str] | None = None


def metrics(start: float, end: float, **changes: Any) -> dict[str, Any]:
    """A shard's metrics; `start` and `end` in seconds since START."""
    tokens = {
        "prefix_tokens_computed": 10,
        "prefix_tokens_reused": 20,
        "document_tokens": 60,
        "key_tokens": 20,
        "value_tokens": 20,
        "scored_tokens": 15,
    }
    seconds = {
        "prepare_seconds": 0.0,
        "busy_seconds": 0.0,
        "load_seconds": 0.0,
        "wall_seconds": 0.0,
        "finish_seconds": 0,
    }
    row = {
        "attempt_id": "a",
        "retries": 0,
        "num_values": 0,
        "estimated_tokens": 0,
        "num_steps": 5,
        "device": "cpu",
        "actor_id": "actor-1",
        **tokens,
        **seconds,
        "started_at": START + datetime.timedelta(seconds=start),
        "finished_at": START + datetime.timedelta(seconds=end),
        "billed_seconds": end - start,
    }
    return row | changes


def write_run(
    folder: Path,
    shards: Sequence[Sequence[Product]],
    shard_metrics: Sequence[Mapping[str, Any]] | None = None,
    *,
    file_format: str = "jsonl",
    engine: Mapping[str, Any] | None = None,
    booleans: Sequence[str] = (),
    planned_shards: int | None = None,
    source: str | None = None,
    run_id: str = "20261101-115900-0a1b",
    precision: float | None = None,
) -> Path:
    """A run in `folder`/run, of the catalog `folder`/catalog.<format>. With more `planned_shards` it has stopped.

    `source`: where the run found the catalog, if it will be elsewhere. `run_id`: as if made from the time. `precision`:
    that it was asked for.
    """
    run, catalog = folder / "run", folder / f"catalog.{file_format}"
    name = source or str(catalog)
    products = [product for shard in shards for product in shard]
    pieces = _write_catalog(catalog, products, shards, file_format)
    planned = planned_shards or len(shards)
    plan = Plan(
        run_id=run_id,
        created_at="2026-11-01T11:59:00+00:00",
        result_config={},
        config_hash="c0",
        schema_hash="5c",
        limit=None,
        files=[PlannedFile(name, file_format, catalog.stat().st_size, "f", len(products))],
        shards=[
            Shard(index, (pieces[index],), pieces[index].num_rows, 10)
            if index < len(shards)
            else Shard(index, (), 1, 10)
            for index in range(planned)
        ],
    )
    settings = {"path": [name], "format": "auto", "id": "id", "category": "category", "fields": {}, "anonymous": False}
    settings["fields"] = {column: column for column in _fields(products)}
    stored = plan.result_config | {"input": settings | {"fields": [[key, key] for key in settings["fields"]]}}
    run.mkdir(parents=True)
    data = json.loads(plan.to_json()) | {"result_config": stored}
    (run / "_plan.json").write_text(json.dumps(data))
    (run / "_engine.json").write_text(json.dumps(engine or ENGINE))
    schemas = {product.category: list(product.answers) for product in products if product.dead is None}
    (run / "_schemas.json").write_text(
        json.dumps(
            {
                category: [{"name": each, "type": "boolean" if each in booleans else "string"} for each in names]
                for category, names in schemas.items()
            }
        )
    )
    start = 0
    for index, shard in enumerate(shards):
        row = None if shard_metrics is None else shard_metrics[index]
        _write_shard(run, index, shard, name, start, row, list(settings["fields"]))
        start += len(shard)
    if planned == len(shards):
        manifest = {"engine": engine or ENGINE, "config": {"input": settings}, "totals": {}}
        manifest |= {} if precision is None else {"accept": {"precision": precision}}
        (run / "manifest.json").write_text(json.dumps(manifest))
    return run


def _fields(products: Sequence[Product]) -> list[str]:
    return list(dict.fromkeys(name for product in products for name in product.fields)) or ["title"]


def _write_catalog(
    path: Path, products: Sequence[Product], shards: Sequence[Sequence[Product]], file_format: str
) -> list[RowRange]:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = _fields(products)
    rows = [
        {"id": each.id, "category": each.category} | {column: each.fields.get(column) for column in columns}
        for each in products
    ]
    lines = [json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows]
    if file_format == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=3)
    else:
        path.write_bytes(b"".join(lines))
    pieces, row, offset = [], 0, 0
    for shard in shards:
        size = sum(map(len, lines[row : row + len(shard)]))
        pieces.append(RowRange(0, row, row + len(shard), len(shard), offset, offset + size))
        row, offset = row + len(shard), offset + size
    return pieces


def _write_shard(
    run: Path,
    index: int,
    shard: Sequence[Product],
    source: str,
    start: int,
    measured: Mapping[str, Any] | None,
    columns: Sequence[str],
) -> None:
    tables: dict[str, list[dict[str, Any]]] = {"attributes": [], "products": [], "dead_letter": [], "metrics": []}
    statuses: Counter[str] = Counter()
    for offset, product in enumerate(shard):
        place = {
            "run_id": "run-1",
            "source_file": source,
            "source_row": start + offset,
            "product_id": product.id,
            "category": product.category,
        }
        if product.dead is not None:
            code, message = product.dead
            row_json = json.dumps(dict(product.fields), ensure_ascii=False)
            dead = {"stage": "prepare", "error_code": code, "error": message, "row_json": row_json, "attempts": 1}
            tables["dead_letter"].append(place | dead)
            continue
        # A column that the row lacks is an empty text to the model.
        hashed = input_hash(Record("", product.category, {name: product.fields.get(name, "") for name in columns}))
        provenance = place | dict.fromkeys(["model_id", "schema_hash", "prompt_hash", "layout"], "x")
        provenance |= {"input_hash": hashed, "carried_from": product.carried_from}
        counts = Counter(answer.status for answer in product.answers.values())
        statuses.update(counts)
        tables["products"].append(
            provenance
            | {f"num_{status}": counts[status] for status in _STATUSES}
            | {"values": [], "engine_seconds": product.seconds}
        )
        grounder = Grounder(product.fields)
        for name, answer in product.answers.items():
            tables["attributes"] += _answer_rows(provenance, name, answer, grounder)
    if measured is not None:
        carried = sum(row["carried_from"] is not None for row in tables["products"])
        counts = {"num_rows": len(shard), "num_products": len(tables["products"]), "num_carried": carried}
        counts["num_dead_letters"] = len(tables["dead_letter"])
        tables["metrics"] = [{"run_id": "run-1", "shard": index} | counts | dict(measured)]
    for table, rows in tables.items():
        if table != "metrics" or rows:
            (run / table).mkdir(exist_ok=True)
            pq.write_table(to_table(table, rows), run / table / f"part-{index:06d}.parquet")
    reasons = Counter(row["error_code"] for row in tables["dead_letter"])
    manifest = {
        "shard": index,
        "tables": {},
        "counts": {
            "rows": len(shard),
            "products": len(tables["products"]),
            "dead_letters": len(tables["dead_letter"]),
            "statuses": statuses,
            "reasons": reasons,
            "carried": {"products": sum(row["carried_from"] is not None for row in tables["products"])},
        },
        "metrics": {},
        "finished_at": START.isoformat(),
    }
    (run / "_shards").mkdir(exist_ok=True)
    (run / "_shards" / f"{index:06d}.json").write_text(json.dumps(manifest))


def _answer_rows(provenance: Mapping[str, Any], name: str, answer: Answer, grounder: Grounder) -> list[dict[str, Any]]:
    texts = answer.text if isinstance(answer.text, list) else [answer.text]
    attribute, tokens = Attribute(name=name), 4
    logprob = None if answer.probability is None else math.log(answer.probability) / tokens
    return [
        dict(provenance)
        | {"attribute": name, "value_index": index, "value_raw": text, "status": answer.status}
        | {"num_tokens": tokens, "num_dropped": 0, "logprob_mean": logprob}
        | {
            "evidence": [asdict(place) for place in grounder.find(attribute, text)]
            if answer.status == "value" and text is not None
            else None
        }
        | dict(answer.columns)
        for index, text in enumerate(texts)
    ]


HOSTILE = [
    "<script>hacked('text')</script>",
    "</script></style></title><script>hacked('close')</script>",
    '"><img src=x onerror="hacked(\'attribute\')">',
    "' onmouseover='hacked(1)' x='",
    '<a href="javascript:hacked(2)">javascript:hacked(2)</a>',
    "<svg/onload=hacked(3)><iframe srcdoc='<script>parent.hacked(4)</script>'>",
    "{{ 7 * 7 }} {% include '/etc/passwd' %} ${hacked(5)} <!-- --> ]]> &lt;script&gt;",
    "\u202egnp.exe\u202c \u2066stray\u2069\u2069 \u0007bell \u0000nul \u009b31m \ufeff \u2028line",
    "<base href='https://evil.example/'><link rel=stylesheet href='https://evil.example/x.css'>",
    "<form action='https://evil.example/'><input name=q autofocus onfocus=hacked(6)>",
]
"""Texts as they come from a catalog that means harm."""


def hostile_products() -> list[Product]:
    """Products with a hostile text in every place that the catalog or the model fills."""
    products = [
        Product(
            id=f"{text} {index}",
            fields={"title": f"before {text} after", "description": text * 2},
            answers={
                "Brand": Answer(text, 0.2),
                "Origin": Answer(f"made up {text}", 0.1),
                "Form": Answer(None, 0.9, "absent"),
            },
            category=HOSTILE[0] if index % 2 else HOSTILE[2],
            seconds=1.0,
        )
        for index, text in enumerate(HOSTILE)
    ]
    dead = [Product(text, {"title": text}, category=text, dead=(f"code {text}", f"message {text}")) for text in HOSTILE]
    return [*products, *dead]
