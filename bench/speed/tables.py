"""Output of the benchmark: a table for people, one JSON line for machines."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from bench.speed.contenders import CEILING, FLOOR, GENERATE, NAIVE, TREE, TimedRun
from bench.speed.rounds import RoundComparison
from hpd_core.extractor import versions
from hpd_core.models import description

_MEMORY_NOTE = "MB: memory at its highest, above what stands before a run, which is the loaded model"


def report(
    name: str,
    model: Any,
    workload: str,
    found: RoundComparison,
    num_records: int,
    batch_size: int,
    other_facts: Mapping[str, Any],
) -> None:
    """Print the table, then the JSON line. `batch_size`: of the rivals."""
    results = found.results
    seconds = {name: [run.seconds for run in runs] for name, runs in results.items()}
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    rates = {name: num_records / value for name, value in medians.items()}
    peaks = {name: peak for name, runs in results.items() if (peak := _peak(runs)) is not None}
    tree = results[TREE][0].work
    assert tree is not None
    efficiencies: dict[str, dict[str, float]] = {name: {} for name in (CEILING, FLOOR)}
    compared = {f"x {word}": name for word, name in (("generate", GENERATE), ("naive", NAIVE)) if name in rates}
    columns = ["products/s", "spread", *compared, "MB", "tokens", "steps", *efficiencies]
    table = _table(f"{num_records} products, {workload}, {name}, {_machine(model)}", columns)
    for contender, rate in rates.items():
        first = results[contender][0]
        cells = [f"{rate:.2f}", _spread(seconds[contender])]
        cells += [f"{rate / rates[rival]:.2f}" for rival in compared.values()]
        cells.append(_megabytes(peaks.get(contender)))
        cells += ["" if first.work is None else f"{first.work.num_tokens:,}"]
        cells += ["" if first.num_steps is None else f"{first.num_steps:,}"]
        if first.work is not None:
            for yardstick, shares in efficiencies.items():
                # The yardsticks ran tree's tokens.
                needed = medians[yardstick] * first.work.num_tokens / tree.num_tokens
                shares[contender] = needed / medians[contender]
                cells.append(f"{shares[contender]:.0%}")
        table.add_row(contender, *cells)
    notes = [
        f"{'; '.join(efficiencies)}: {tree.num_tokens:,} tokens, {tree.num_logits:,} of them with logits, as 'tree' "
        f"needs. The last {len(efficiencies)} columns are their time, token for token, in percent of the row's. Dense "
        f"batches of {found.dense_shape[0]} x {found.dense_shape[1]} tokens, {found.dense_attention} attention.",
        f"{_MEMORY_NOTE}. vLLM's: of its processes, above what they hold when it is ready. "
        "Not measured where there is no number.",
    ]
    said = {name: runs[0].note for name, runs in results.items() if runs[0].note is not None}
    notes += [f"{contender}: {note}." for contender, note in said.items()]
    notes += [
        f"{contender}: out of memory, with batches of {batch_size} (--batch-size)." for contender in found.out_of_memory
    ]
    _print(table, notes)
    facts = _facts(name, model, workload) | {
        "records": num_records,
        "batch_size_of_rivals": batch_size,
        "dense_shape": found.dense_shape,
        "dense_attention": found.dense_attention,
        "seconds": seconds,
        "products_per_second": rates,
        "peak_bytes": peaks,
        "tokens": {name: runs[0].work.num_tokens for name, runs in results.items() if runs[0].work is not None},
        "steps": {name: runs[0].num_steps for name, runs in results.items() if runs[0].num_steps is not None},
        "code": {name: runs[0].code for name, runs in results.items() if runs[0].code is not None},
        "efficiency": efficiencies,
        "notes": said,
        "out_of_memory": found.out_of_memory,
        **other_facts,
    }
    print(json.dumps(facts))


def report_latencies(
    name: str,
    model: Any,
    workload: str,
    repeats: int,
    waits: Mapping[str, list[TimedRun]],
    peaks: Mapping[str, int | None],
    other_facts: dict[str, Any],
) -> None:
    """Print the table, then the JSON line."""
    num_records = len(waits[TREE]) // repeats
    seconds = {contender: [run.seconds for run in runs] for contender, runs in waits.items()}
    found: dict[str, dict[str, Any]] = {
        contender: {
            "median_ms": 1000 * statistics.median(seconds[contender]),
            "p90_ms": 1000 * _percentile_90(seconds[contender]),
            "median_steps": statistics.median(run.num_steps or 0 for run in runs),
            "peak_bytes": peaks[contender],
        }
        for contender, runs in waits.items()
    }
    compared = [GENERATE] if GENERATE in found else []
    title = f"{num_records} products, each alone, {repeats} times; {workload}, {name}, {_machine(model)}"
    columns = ["median ms", "p90 ms", "steps", *(("generate / ms", "generate / steps") if compared else ()), "MB"]
    table = _table(title, columns)
    for contender, row in found.items():
        cells = [f"{row['median_ms']:,.0f}", f"{row['p90_ms']:,.0f}", f"{row['median_steps']:,.0f}"]
        for rival in compared:
            cells += [f"{found[rival][key] / row[key]:.2f}" for key in ("median_ms", "median_steps")]
        table.add_row(contender, *cells, _megabytes(peaks[contender]))
    _print(
        table,
        [
            "steps: forward passes one after the other, median. MB: memory at its highest for one product, above what "
            "stands before it: the loaded model and, for a layout, the copy of its weights that it has packed. vLLM "
            "does not tell its steps: they are at least so many. Its cache of prefixes is emptied before every product."
        ],
    )
    facts = _facts(name, model, workload) | {"records": num_records, "latency": found, "seconds": seconds} | other_facts
    print(json.dumps(facts))


def _facts(name: str, model: Any, workload: str) -> dict[str, Any]:
    return {
        "model": name,
        "workload": workload,
        "dtype": str(model.dtype),
        "device": description.device_name(model.device),
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }


def _machine(model: Any) -> str:
    return f"{description.device_name(model.device)}, {model.dtype}"


def _table(title: str, columns: Iterable[str]) -> Table:
    table = Table(title=title)
    for column in ("", *columns):
        table.add_column(column, justify="right" if column else "left")
    return table


def _print(table: Table, notes: Iterable[str]) -> None:
    # Without a terminal, the table is not squeezed to 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    for note in notes:
        console.print(note)


def _spread(values: list[float]) -> str:
    return f"{(max(values) - min(values)) / statistics.median(values):.0%}"


def _percentile_90(values: list[float]) -> float:
    return values[0] if len(values) == 1 else statistics.quantiles(values, n=10, method="inclusive")[-1]


def _peak(runs: list[TimedRun]) -> int | None:
    peaks = [run.peak_bytes for run in runs if run.peak_bytes is not None]
    return max(peaks) if peaks else None


def _megabytes(num_bytes: int | None) -> str:
    return "" if num_bytes is None else f"{num_bytes / 1e6:,.0f}"
