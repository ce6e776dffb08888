"""What the benchmark prints: a table for people, one JSON line for machines."""

from __future__ import annotations

import json
import statistics
import sys
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from hpd_core import models
from hpd_core.extractor import versions
from pipelines.benchmarking.contenders import CEILING, FLOOR, GENERATE, NAIVE, TREE, Run


def report_shares(seconds: dict[str, float]) -> None:
    """The table, then the JSON line."""
    total = sum(seconds.values())
    table = Table(title="where the time goes")
    for column in ("", "seconds", "share"):
        table.add_column(column, justify="left" if not column else "right")
    for part, value in sorted(seconds.items(), key=lambda item: -item[1]):
        table.add_row(part, f"{value:.2f}", f"{value / total:.0%}")
    table.add_row("all", f"{total:.2f}", "")
    Console().print(table)
    print(json.dumps({"seconds": seconds}))


def report(
    name: str,
    model: Any,
    num_records: int,
    batch_size: int,
    dense_shape: tuple[int, int],
    results: dict[str, list[Run]],
    other_facts: dict[str, Any],
) -> None:
    """The table, then the JSON line."""
    seconds = {name: [run.seconds for run in runs] for name, runs in results.items()}
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    rates = {name: num_records / value for name, value in medians.items()}
    tree = results[TREE][0].work
    assert tree is not None
    efficiencies: dict[str, dict[str, float]] = {CEILING: {}, FLOOR: {}}
    table = Table(title=f"{num_records} products, {name}, {models.device_name(model.device)}, {model.dtype}")
    compared = {f"x {word}": name for word, name in (("generate", GENERATE), ("naive", NAIVE)) if name in rates}
    for column in ("", "products/s", "spread", *compared, "tokens", "steps", *efficiencies):
        table.add_column(column, justify="left" if not column else "right")
    for contender, rate in rates.items():
        first = results[contender][0]
        spread = (max(seconds[contender]) - min(seconds[contender])) / medians[contender]
        cells = [f"{rate:.2f}", f"{spread:.0%}"]
        cells += [f"{rate / rates[rival]:.2f}" for rival in compared.values()]
        if first.work is not None:
            cells += [f"{first.work.num_tokens:,}", f"{first.num_steps:,}"]
            for yardstick, found in efficiencies.items():
                # The yardsticks ran tree's tokens.
                needed = medians[yardstick] * first.work.num_tokens / tree.num_tokens
                found[contender] = needed / medians[contender]
                cells.append(f"{found[contender]:.0%}")
        table.add_row(contender, *cells)
    # Without a terminal, the table is not squeezed to 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    console.print(
        f"{CEILING}, {FLOOR}: {tree.num_tokens:,} tokens, {tree.num_logits:,} of them with logits, as 'tree' needs. "
        f"The last two columns are their time, token for token, in percent of the row's. Dense batches of "
        f"{dense_shape[0]} x {dense_shape[1]} tokens."
    )
    notes = {name: runs[0].note for name, runs in results.items() if runs[0].note is not None}
    for contender, note in notes.items():
        console.print(f"{contender}: {note}.", highlight=False)
    facts = {
        "model": name,
        "dtype": str(model.dtype),
        "device": models.device_name(model.device),
        "threads": torch.get_num_threads(),
        "records": num_records,
        "batch_size_of_rivals": batch_size,
        "dense_shape": dense_shape,
        "seconds": seconds,
        "products_per_second": rates,
        "tokens": {name: runs[0].work.num_tokens for name, runs in results.items() if runs[0].work is not None},
        "steps": {name: runs[0].num_steps for name, runs in results.items() if runs[0].num_steps is not None},
        "efficiency": efficiencies,
        "notes": notes,
        "versions": versions(),
        **other_facts,
    }
    print(json.dumps(facts))
