"""What a run has cost and how fast it was, so far, from its metrics table: a row a shard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.comparing.sides import Side
from pipelines.finish import TOKEN_METRICS
from pipelines.tables import METRICS

_COLUMNS = (
    *(
        "num_rows",
        "num_products",
        "num_dead_letters",
        "num_carried",
        "num_values",
        "retries",
        *TOKEN_METRICS,
        "num_steps",
    ),
    *("busy_seconds", "load_seconds", "billed_seconds", "started_at", "finished_at"),
    *("device", "gpu_type", "instance_type", "market", "price_per_hour", "cost_useful", "cost_billed", "currency"),
)


@dataclass(frozen=True, slots=True)
class Account:
    """Cost and speed of the committed shards. None: not known. A price of zero is a price.

    Attributes:
        decoded: products that the run decoded itself, at least in part; the others were taken over and cost nothing.
        tokens: by kind.
        wall_seconds: from the begin of the first shard to the end of the last, pauses between sessions included.
        busy_seconds: of all engines, computing. billed_seconds: of all engines, loading and waiting included.
        products_per_second: decoded products by wall seconds.
        products_per_busy_second: decoded products by busy seconds: the speed of one engine.
        hardware: GPU type (or "cpu"), instance type and market, as far as known.
        priced_shards: those whose price is known; the dollars are theirs alone.
        usd_per_1k: dollars billed per 1,000 products of the priced shards, those taken over included.
        usd_per_1k_decoded: per 1,000 decoded products.
    """

    shards: int
    rows: int
    products: int
    dead_letters: int
    decoded: int
    values: int
    retries: int
    tokens: Mapping[str, int]
    steps: int
    wall_seconds: float | None
    busy_seconds: float | None
    load_seconds: float | None
    billed_seconds: float | None
    products_per_second: float | None
    products_per_busy_second: float | None
    hardware: tuple[str, ...]
    price_per_hour: tuple[float, ...]
    priced_shards: int
    currency: str | None
    cost_useful: float | None
    cost_billed: float | None
    usd_per_1k: float | None
    usd_per_1k_decoded: float | None


def read_account(side: Side) -> Account:
    """Raises `UsageError` if the metrics cannot be read."""
    there = set(side.folder.list("metrics"))
    parts = [side.read("metrics", part, _COLUMNS) for part in side.parts if part in there]
    empty = pa.schema([METRICS.field(name) for name in _COLUMNS]).empty_table()
    table = pa.concat_tables([empty, *parts], promote_options="default")
    rows, products = (int(_sum(table, name) or 0) for name in ("num_rows", "num_products"))
    decoded = products - int(pc.sum(table["num_carried"], min_count=0).as_py())
    wall, busy = _wall_seconds(table), _sum(table, "busy_seconds")
    priced = table.filter(pc.is_valid(table["cost_billed"]))
    cost, useful = _sum(priced, "cost_billed"), _sum(priced, "cost_useful")
    priced_products = _sum(priced, "num_products") or 0
    priced_decoded = priced_products - pc.sum(priced["num_carried"], min_count=0).as_py()
    return Account(
        shards=table.num_rows,
        rows=rows,
        products=products,
        dead_letters=int(_sum(table, "num_dead_letters") or 0),
        decoded=decoded,
        values=int(_sum(table, "num_values") or 0),
        retries=int(_sum(table, "retries") or 0),
        tokens={name: int(_sum(table, name) or 0) for name in TOKEN_METRICS},
        steps=int(_sum(table, "num_steps") or 0),
        wall_seconds=wall,
        busy_seconds=busy,
        load_seconds=_sum(table, "load_seconds"),
        billed_seconds=_sum(table, "billed_seconds"),
        products_per_second=_ratio(decoded, wall),
        products_per_busy_second=_ratio(decoded, busy),
        hardware=_hardware(table),
        price_per_hour=tuple(sorted(set(pc.unique(priced["price_per_hour"]).drop_null().to_pylist()))),
        priced_shards=priced.num_rows,
        currency=next(iter(pc.unique(priced["currency"]).drop_null().to_pylist()), None),
        cost_useful=useful,
        cost_billed=cost,
        usd_per_1k=None if cost is None else _ratio(cost * 1000, priced_products),
        usd_per_1k_decoded=None if cost is None else _ratio(cost * 1000, priced_decoded),
    )


def _sum(table: pa.Table, column: str) -> Any:
    """None where a part of the sum is not known, or there is nothing to add up."""
    return None if table[column].null_count else pc.sum(table[column], min_count=1).as_py()


def _ratio(amount: float, by: float | None) -> float | None:
    return amount / by if by else None


def _wall_seconds(table: pa.Table) -> float | None:
    if not table.num_rows:
        return None
    return float((pc.max(table["finished_at"]).as_py() - pc.min(table["started_at"]).as_py()).total_seconds())


def _hardware(table: pa.Table) -> tuple[str, ...]:
    kinds = table.select(["gpu_type", "device", "instance_type", "market"]).to_pylist()
    names = (
        ", ".join(filter(None, (kind["gpu_type"] or kind["device"], kind["instance_type"], kind["market"])))
        for kind in kinds
    )
    return tuple(dict.fromkeys(names))
