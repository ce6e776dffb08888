"""Decoding speed of the layouts and their rivals, in one run, on the same records with the same answer lengths.

    python pipelines/benchmark.py --config configs/demo.yaml --gold sample/gold.jsonl

Every contender writes answers of exactly the gold answers' lengths, whatever the model would say by itself, so that
only speed differs. Prompts are built beforehand for all of them. Prints a table, and one JSON object as last line.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from hpd_core import CategorySchema, EngineConfig, HPDError, Record, models
from hpd_core.decoder import Decoder
from hpd_core.extractor import versions
from hpd_core.prepare import PreparedPrompt, PromptBuilder
from hpd_core.prompt import render_answer_line
from hpd_core.tokenization import SegmentTokenizer
from pipelines.config import JobConfig
from pipelines.config_file import load_config
from pipelines.errors import UsageError
from pipelines.gold import GoldProduct, read_gold
from pipelines.records import read_records
from pipelines.rivals import ForcedRecord, run_generate, run_naive_hpd
from pipelines.schemas import load_schemas


class Workload:
    """A job's records, with the token length of every answer."""

    def __init__(self, tokenizer: Any, job: JobConfig, gold_path: str, limit: int | None) -> None:
        self.tokenizer = tokenizer
        self.schemas = load_schemas(job.schemas)
        gold = read_gold(gold_path)
        by_row = {product.row: product for product in gold if product.product_id is None}
        by_id = {product.product_id: product for product in gold if product.product_id is not None}
        self.records: list[Record] = []
        self.lengths: list[list[int]] = []
        segments = SegmentTokenizer(tokenizer)
        for row, record in read_records(job.input, self.schemas):
            if not isinstance(record, Record):
                continue
            product = by_id.get(record.id) or by_row.get(row)
            if product is not None and (limit is None or len(self.records) < limit):
                lines = _answer_lines(product, self.schemas[record.category])
                self.records.append(record)
                self.lengths.append([len(ids) for ids in segments.encode_text(lines)])
        if not self.records:
            raise UsageError(f"no record of the job has an answer in {gold_path}")

    def prompts(self, model_config: Any, config: EngineConfig) -> list[PreparedPrompt]:
        """All prompts of one layout, each value's length fixed."""
        builder = PromptBuilder(self.tokenizer, config, models.max_positions(model_config))
        prepared, refusals = builder.build(self.records, self.schemas)
        if refusals:
            raise UsageError(f"record {min(refusals)} cannot be taken: {refusals[min(refusals)].message}")
        for item in prepared:
            lengths = np.array([self.lengths[slot.record][slot.attribute] for slot in item.slots])
            item.prompt.layout = dataclasses.replace(item.prompt.layout, max_new_tokens=lengths)
        return prepared

    def forced(self, model_config: Any) -> list[ForcedRecord]:
        """The same records for the rivals."""
        prepared = self.prompts(model_config, EngineConfig())
        return [ForcedRecord(item.prompt.layout, item.prompt.layout.max_new_tokens.tolist()) for item in prepared]


def _answer_lines(product: GoldProduct, schema: CategorySchema) -> list[str]:
    """What a model that knows the answers would write; an attribute without a label is null."""
    lines = []
    for attribute in schema.attributes:
        value = product.values.get(attribute.name)
        items = [forms[0] for forms in value.items] if value and not value.is_absent else None
        lines.append(render_answer_line(attribute, items))
    return lines


def run_engine(model: Any, workload: Workload, config: EngineConfig) -> float:
    """Seconds to decode the workload; a fresh decoder, so that every prefix is computed in it."""
    shape = models.cache_shape(model)
    decoder = Decoder(model, np.zeros(model.get_output_embeddings().weight.shape[0], dtype=bool), config, shape)
    prepared = workload.prompts(model.config, config)
    started = time.perf_counter()
    decoder.add([item.prompt for item in prepared])
    while decoder.has_work:
        decoder.step()
    return time.perf_counter() - started


def timed(run: Callable[[], None]) -> float:
    """Seconds that `run` takes."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def contenders(model: Any, workload: Workload, config: EngineConfig, batch_size: int) -> dict[str, Callable[[], float]]:
    """Name -> a run that returns its seconds."""
    forced = workload.forced(model.config)

    def engine(**settings: Any) -> Callable[[], float]:
        return lambda: run_engine(model, workload, config.model_copy(update=settings))

    def rival(function: Callable[..., None]) -> Callable[[], float]:
        def run() -> float:
            with models.own_attention(model):
                return timed(lambda: function(model, forced, batch_size))

        return run

    return {
        "transformers generate": rival(run_generate),
        "naive padded HPD": rival(run_naive_hpd),
        "stacked J=1": engine(layout="stacked", stack_size=1),
        "stacked J=6": engine(layout="stacked", stack_size=6),
        "tree": engine(layout="tree"),
    }


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="job config: input, schemas, model, dtype")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as in extract.py")
    parser.add_argument("--gold", required=True, help="gold file: the answers' lengths")
    parser.add_argument("--limit", type=int, help="only the first N records")
    parser.add_argument("--batch-size", type=int, default=32, help="of the rivals")
    parser.add_argument("--repeats", type=int, default=3, help="rounds; the median counts")
    options = parser.parse_args()
    console = Console(stderr=True)
    try:
        job = load_config(JobConfig, options.config, options.set)
        tokenizer = models.load_tokenizer(job.model, job.engine)
        workload = Workload(tokenizer, job, options.gold, options.limit)
        model = models.load_model(job.model, job.engine)
        models.attach(model)
        runs = contenders(model, workload, job.engine, options.batch_size)
    except (HPDError, UsageError) as error:
        console.print(f"[red]error:[/red] {error}")
        return 2
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    # Rounds over all contenders, so that a slow moment of the machine does not fall on one of them.
    for round_number in range(options.repeats):
        for name, run in runs.items():
            console.print(f"round {round_number + 1}/{options.repeats}: {name}")
            seconds[name].append(run())
    report(job.model, model, len(workload.records), options.batch_size, seconds)
    return 0


def report(name: str, model: Any, num_records: int, batch_size: int, seconds: dict[str, list[float]]) -> None:
    """The table, then the JSON line."""
    rates = {name: num_records / statistics.median(values) for name, values in seconds.items()}
    slowest = rates["transformers generate"]
    table = Table(title=f"{num_records} products, {name}, {models.device_name(model.device)}, {model.dtype}")
    for column in ("", "products/s", "spread", "x generate", "x naive"):
        table.add_column(column, justify="left" if not column else "right")
    for contender, rate in rates.items():
        spread = (max(seconds[contender]) - min(seconds[contender])) / statistics.median(seconds[contender])
        ratios = (f"{rate / slowest:.2f}", f"{rate / rates['naive padded HPD']:.2f}")
        table.add_row(contender, f"{rate:.2f}", f"{spread:.0%}", *ratios)
    Console().print(table)
    facts = {
        "model": name,
        "dtype": str(model.dtype),
        "device": models.device_name(model.device),
        "threads": torch.get_num_threads(),
        "records": num_records,
        "batch_size_of_rivals": batch_size,
        "seconds": seconds,
        "products_per_second": rates,
        "versions": versions(),
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    sys.exit(main())
