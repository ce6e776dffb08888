"""Decoding speed of the layouts and their rivals, in one run, on the same records with the same answer lengths.

    python pipelines/benchmark.py --config configs/demo.yaml --gold sample/gold.jsonl

Every contender writes answers of exactly the gold answers' lengths, whatever the model would say by itself, so that
only speed differs. Prompts are built beforehand for all of them. Beside them run the yardsticks of
benchmarking/yardsticks.py: how fast the bare model and its matrix products are on as many tokens as `tree` forwards.
Prints a table, and one JSON object as last line.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
from rich.console import Console

from hpd_core import HPDError, models
from pipelines.benchmarking.contenders import Run, chosen, contenders, run_engine, vllm_contenders, yardsticks
from pipelines.benchmarking.profiling import profile
from pipelines.benchmarking.table import report, report_shares
from pipelines.benchmarking.vllm_process import VllmProcess
from pipelines.benchmarking.workload import Workload
from pipelines.benchmarking.yardsticks import best_shape
from pipelines.config import JobConfig
from pipelines.config_file import load_config
from pipelines.errors import UsageError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def main(
    config: Annotated[str, typer.Option(help="Job config: input, schemas, model, dtype.")],
    gold: Annotated[str, typer.Option(help="Gold file: the answers' lengths.")],
    changes: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As in extract.py.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N records.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Of the rivals.")] = 32,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this contender, beside 'tree'; can be repeated.")
    ] = None,
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
            workload = Workload.of_gold(tokenizer, job, gold, limit)
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
            runs = chosen(runs, only)
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


if __name__ == "__main__":
    app()
