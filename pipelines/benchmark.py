"""Decoding speed of the layouts and their rivals, in one run, on the same records with the same answer lengths.

    python pipelines/benchmark.py --config configs/demo.yaml --gold sample/gold.jsonl

Every contender writes answers of exactly the gold answers' lengths, whatever the model would say by itself, so that
only speed differs. Prompts are built beforehand for all of them. Beside them run the yardsticks of yardsticks.py: how
fast the bare model and its matrix products are on as many tokens as `tree` forwards. Prints a table, and one JSON
object as last line.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

from hpd_core import CategorySchema, EngineConfig, HPDError, Record, models
from hpd_core.decoder import Decoder, StepReport
from hpd_core.extractor import versions
from hpd_core.prepare import PreparedPrompt, PromptBuilder
from hpd_core.prompt import render_answer_line
from hpd_core.tokenization import SegmentTokenizer
from pipelines.config import JobConfig
from pipelines.config_file import load_config
from pipelines.errors import UsageError
from pipelines.gold import GoldProduct, read_gold
from pipelines.profiling import profile
from pipelines.records import read_records
from pipelines.rivals import ForcedRecord, VllmProcess, run_generate, run_naive_hpd
from pipelines.schemas import load_schemas
from pipelines.yardsticks import Floor, Work, best_shape, run_dense, seconds_of

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

CEILING, FLOOR = "ceiling", "floor"


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


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """One run of one contender: its seconds, and what it forwarded if that is counted."""

    seconds: float
    work: Work | None = None
    num_steps: int | None = None


def run_engine(model: Any, workload: Workload, config: EngineConfig) -> Run:
    """Decodes the workload by a fresh decoder, so that every prefix is computed in it."""
    shape = models.cache_shape(model)
    decoder = Decoder(model, np.zeros(model.get_output_embeddings().weight.shape[0], dtype=bool), config, shape)
    prepared = workload.prompts(model.config, config)
    started = time.perf_counter()
    reports: list[StepReport] = []
    decoder.add([item.prompt for item in prepared])
    while decoder.has_work:
        reports.append(decoder.step())
    seconds = time.perf_counter() - started
    num_tokens = sum(count for report in reports for cohort in report.cohorts for _, count in cohort)
    num_logits = sum(len(tokens) for item in prepared for tokens in item.prompt.tokens)
    return Run(seconds, Work(num_tokens, num_logits), len(reports))


def timed(run: Callable[[], Any]) -> Run:
    """`run`, with its time."""
    return Run(seconds_of(run))


Contenders = dict[str, Callable[[], Run]]


def contenders(model: Any, workload: Workload, config: EngineConfig, batch_size: int) -> Contenders:
    """Name -> a run."""
    forced = workload.forced(model.config)

    def engine(**settings: Any) -> Callable[[], Run]:
        return lambda: run_engine(model, workload, config.model_copy(update=settings))

    def rival(function: Callable[..., None]) -> Callable[[], Run]:
        def run() -> Run:
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


def vllm_contenders(vllm: VllmProcess) -> Contenders:
    """Name -> a run of vLLM, already started."""
    return {
        "vLLM AR": lambda: Run(vllm.run(VllmProcess.AUTOREGRESSIVE)),
        "vLLM fan-out": lambda: Run(vllm.run(VllmProcess.FAN_OUT)),
    }


def yardsticks(model: Any, work: Work, shape: tuple[int, int]) -> Contenders:
    """Name -> a run of as much work."""

    def ceiling() -> Run:
        with models.own_attention(model):
            return timed(lambda: run_dense(model, work, shape))

    floor = Floor(model)
    return {CEILING: ceiling, FLOOR: lambda: timed(lambda: floor.run(work))}


@app.command()
def main(
    config: Annotated[str, typer.Option(help="Job config: input, schemas, model, dtype.")],
    gold: Annotated[str, typer.Option(help="Gold file: the answers' lengths.")],
    changes: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As in extract.py.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N records.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Of the rivals.")] = 32,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = 3,
    vllm: Annotated[
        str | None, typer.Option(metavar="PYTHON", help="Also vLLM, of this interpreter's environment (make rivals).")
    ] = None,
    vllm_block_size: Annotated[int, typer.Option(min=1, help="Tokens of a block of vLLM's KV cache.")] = 32,
    shares: Annotated[bool, typer.Option("--profile", help="Only where the time of the layout goes, by part.")] = False,
) -> None:
    """Measure decoding speed: the layouts, their rivals, and what the machine could do."""
    console = Console(stderr=True)
    with ExitStack() as stack:
        try:
            job = load_config(JobConfig, config, changes or [])
            tokenizer = models.load_tokenizer(job.model, job.engine)
            workload = Workload(tokenizer, job, gold, limit)
            model = models.load_model(job.model, job.engine)
            models.attach(model)
            if shares:
                run_engine(model, workload, job.engine)
                report_shares(profile(model, lambda: run_engine(model, workload, job.engine)))
                return
            runs = contenders(model, workload, job.engine, batch_size)
            facts: dict[str, Any] = {}
            if vllm is not None:
                console.print("starting vLLM, which compiles first")
                process = _start_vllm(vllm, job, model, workload, vllm_block_size)
                stack.callback(process.close)
                facts["vllm"] = process.facts | {"block_size": vllm_block_size}
                runs = vllm_contenders(process) | runs
            console.print("looking for the best dense batch")
            work = run_engine(model, workload, job.engine.model_copy(update={"layout": "tree"})).work
            assert work is not None
            with models.own_attention(model):
                shape = best_shape(model, work)
            runs |= yardsticks(model, work, shape)
            results: dict[str, list[Run]] = {name: [] for name in runs}
            # Rounds over all contenders, so that a slow moment of the machine does not fall on one of them.
            for round_number in range(repeats):
                for name, run in runs.items():
                    console.print(f"round {round_number + 1}/{repeats}: {name}")
                    results[name].append(run())
        except (HPDError, UsageError) as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(2) from None
    report(job.model, model, len(workload.records), batch_size, shape, results, facts)


def _start_vllm(python: str, job: JobConfig, model: Any, workload: Workload, block_size: int) -> VllmProcess:
    dtype = str(model.dtype).removeprefix("torch.")
    return VllmProcess(python, models.resolve_source(job.model), dtype, workload.forced(model.config), block_size)


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
    tree = results["tree"][0].work
    assert tree is not None
    efficiencies: dict[str, dict[str, float]] = {CEILING: {}, FLOOR: {}}
    table = Table(title=f"{num_records} products, {name}, {models.device_name(model.device)}, {model.dtype}")
    for column in ("", "products/s", "spread", "x generate", "x naive", "tokens", "steps", *efficiencies):
        table.add_column(column, justify="left" if not column else "right")
    for contender, rate in rates.items():
        first = results[contender][0]
        spread = (max(seconds[contender]) - min(seconds[contender])) / medians[contender]
        cells = [f"{rate:.2f}", f"{spread:.0%}"]
        cells += [f"{rate / rates[rival]:.2f}" for rival in ("transformers generate", "naive padded HPD")]
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
        "versions": versions(),
        **other_facts,
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    app()
