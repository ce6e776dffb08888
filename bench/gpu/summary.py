"""The table at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.gpu import plan

Row = Mapping[str, Any]


def latest(rows: Sequence[Row]) -> dict[str, Row]:
    """Return part (and what it calls one of its rows) -> the row found last, in the order of the first."""
    return {f"{row['part']}, {row['name']}" if "name" in row else row["part"]: row for row in rows}


def rates(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return for every part that has products a second: these, and how they compare.

    Rivals are those of the same model and workload, in bf16. The yardsticks have the row's quantization, too, and their
    time counts token for token.
    """
    found = [row for row in latest(rows).values() if "products_per_second" in row]
    table = []
    for row in found:
        compared: dict[str, Any] = {"part": row["part"], "products_per_second": row["products_per_second"]}
        compared |= {key: row[key] for key in ("seconds", "records", "tokens", "peak_bytes", "note") if key in row}
        rivals = [
            ("x vLLM", plan.VLLM, "vLLM AR"),
            ("x fan-out", plan.VLLM, "vLLM fan-out"),
            ("x generate", plan.GENERATE, None),
        ]
        for column, kind, name in rivals:
            rival = _same(found, row, kind, None, name)
            if rival is not None and row["kind"] != kind:
                compared[column] = row["products_per_second"] / rival["products_per_second"]
        for column, kind in (("of floor", plan.FLOOR), ("of ceiling", plan.CEILING)):
            yardstick = _same(found, row, kind, row["quantization"])
            if yardstick is not None and row["kind"] != kind and "tokens" in row:
                compared[column] = yardstick["seconds"] * row["tokens"] / yardstick["tokens"] / row["seconds"]
        if "name" in row:
            compared["part"] += f", {row['name']}"
        if "flop" in row:
            compared["tflops"] = row["flop"] / row["seconds"] / 1e12
        for kind in ("large", "small"):
            if f"{kind}_steps" in row:
                compared[f"{kind}_steps"] = row[f"{kind}_steps"]
        table.append(compared)
    return table


def _same(rows: Sequence[Row], row: Row, kind: str, quantization: str | None, name: str | None = None) -> Row | None:
    """Return the row to compare with."""
    same = [
        other
        for other in rows
        if other["kind"] == kind
        and (other["shape"], other["workload"]) == (row["shape"], row["workload"])
        and other["options"] == ([] if quantization is None else [quantization])
        and (name is None or other["asked"] == name)
    ]
    return same[-1] if same else None


def latencies(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return part -> what it measured -> median milliseconds: of a small step, of one product."""
    found: dict[str, dict[str, float]] = {}
    for row in latest(rows).values():
        ms = row.get("ms", row.get("median_ms"))
        if ms is not None:
            found.setdefault(row["part"], {})[row["name"]] = ms
    return found


_COLUMNS: Sequence[tuple[str, str, Callable[[Any], str]]] = (
    ("products/s", "products_per_second", lambda value: f"{value:.1f}"),
    ("s", "seconds", lambda value: f"{value:.2f}"),
    ("x vLLM", "x vLLM", lambda value: f"{value:.2f}"),
    ("x fan-out", "x fan-out", lambda value: f"{value:.2f}"),
    ("x generate", "x generate", lambda value: f"{value:.1f}"),
    ("of floor", "of floor", lambda value: f"{value:.0%}"),
    ("of ceiling", "of ceiling", lambda value: f"{value:.0%}"),
    ("TFLOP/s", "tflops", lambda value: f"{value:.0f}"),
    ("large steps", "large_steps", lambda value: f"{value['count']} x {value['tokens']:,}: {value['ms']:.1f} ms"),
    ("small steps", "small_steps", lambda value: f"{value['count']} x {value['tokens']:,}: {value['ms']:.1f} ms"),
    ("GB", "peak_bytes", lambda value: f"{value / 1e9:.1f}"),
)


def table(rows: Sequence[Row]) -> list[str]:
    """Return lines: one for each part, with the columns that any part has."""
    compared = rates(rows)
    columns = [column for column in _COLUMNS if any(column[1] in row for row in compared)]
    cells = [["", *(name for name, _, _ in columns)]]
    for row in compared:
        cells.append([row["part"], *(show(row[key]) if key in row else "" for _, key, show in columns)])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if not place else cell.rjust(width) for place, (cell, width) in enumerate(line)
        ).rstrip()
        for line in (list(zip(line, widths, strict=True)) for line in cells)
    ]


def report(rows: Sequence[Row], say: Callable[[str], object]) -> dict[str, Any]:
    """Says the tables; returns what the JSON line has."""
    compared = rates(rows)
    if compared:
        for line in table(rows):
            say(line)
        say("of floor, of ceiling: their time, token for token, in percent of the row's")
    waits = latencies(rows)
    for part, of_part in waits.items():
        say(f"{part}, ms: " + ", ".join(f"{name} {ms:.1f}" for name, ms in of_part.items()))
    return {"rates": compared, "latencies": waits}
