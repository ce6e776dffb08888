"""Decoding speed of the layouts and their rivals, in one run, on the same records with the same answer lengths.

    python bench/benchmark.py --config configs/demo.yaml --gold sample/gold.jsonl
    python bench/benchmark.py --config configs/demo.yaml --workload listings
    python bench/benchmark.py --config configs/demo.yaml --workload single

The records are the job's, with a gold file, or made up (workloads/made_up.py). Every contender writes answers as long
as the gold answers, whatever the model would say by itself, so that only speed differs. Prompts are built beforehand.
Beside them run the yardsticks of speed/ceilings.py: how fast the bare model and its matrix products are on as many
tokens as `tree` forwards. Prints a table, what a reader must know of single rows, and one JSON object as last line.

The rivals that take one product at a time run on request (`--only NAME`, `--all`). So does vLLM with a JSON schema,
whose answers end by themselves, since a schema and a forced length exclude each other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
from rich.console import Console

from bench.rivals.generate import load_draft_model
from bench.rivals.vllm_process import Requests, VllmProcess
from bench.speed.contenders import (
    VLLM_AR,
    VLLM_FAN_OUT,
    check_names,
    chosen,
    contenders,
    vllm_contenders,
    vllm_requests,
)
from bench.speed.rounds import ask_alone, askers, compare, vllm_askers, vllm_requests_alone
from bench.speed.tables import report, report_latencies
from bench.workloads.made_up import SINGLE, make_workload
from bench.workloads.workload import Workload
from hpd_core import HPDError
from hpd_core.models import loading, steering
from hpd_core.models.loading import Weights
from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from pipelines.errors import UsageError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def main(
    config: Annotated[str, typer.Option(help="Job config: model and engine, with --gold also input and schemas.")],
    gold: Annotated[str | None, typer.Option(help="Gold file: the answers' lengths.")] = None,
    made_up: Annotated[
        str | None, typer.Option("--workload", metavar="NAME", help="Made-up records instead of a gold file's.")
    ] = None,
    changes: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As in extract.py.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N records.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Of the rivals.")] = 32,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this contender, beside 'tree'; can be repeated.")
    ] = None,
    everybody: Annotated[
        bool, typer.Option("--all", help="Also those that take one product at a time, and other slow ones.")
    ] = False,
    draft_model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Also generate with this smaller model of the family to draft.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = 3,
    vllm: Annotated[
        str | None, typer.Option(metavar="PYTHON", help="Also vLLM, of this interpreter's environment (make rivals).")
    ] = None,
    vllm_block_size: Annotated[int, typer.Option(min=1, help="Tokens of a block of vLLM's KV cache.")] = 32,
) -> None:
    """Measure decoding speed: the layouts, their rivals, and what the machine could do."""
    console = Console(stderr=True)
    with _usage_errors(), ExitStack() as stack:
        if (gold is None) == (made_up is None):
            raise UsageError("exactly one of --gold FILE and --workload NAME is needed")
        if made_up == SINGLE and (draft_model or everybody):
            raise UsageError("--workload single takes neither --draft-model nor --all")
        if only and everybody:
            raise UsageError("--only and --all exclude each other: leave one of them out")
        job = load_config(JobConfig, config, changes or [])
        if vllm is not None and job.engine.quantization is not None:
            raise UsageError("--vllm runs the weights as they are stored: set engine.quantization=null")
        tokenizer = loading.load_tokenizer(job.model, job.engine)
        if made_up is not None:
            workload = make_workload(made_up, tokenizer, job.engine.max_value_tokens, limit)
        else:
            assert gold is not None
            workload = Workload.of_gold(tokenizer, job, gold, limit)
        name = made_up or Path(str(gold)).name
        model = Weights.load(job.model, job.engine, None).model
        steering.attach(model)

        def start_vllm(requests: Mapping[str, Requests]) -> VllmProcess:
            console.print("starting vLLM, which compiles first")
            process = VllmProcess.of_model(str(vllm), job.model, model, requests, vllm_block_size)
            stack.callback(process.close)
            return process

        def facts_of_vllm(process: VllmProcess) -> dict[str, Any]:
            return {"vllm": process.facts | {"block_size": vllm_block_size}}

        if made_up == SINGLE:
            asks, facts = askers(model, workload, job.engine), {}
            if vllm is not None:
                check_names([VLLM_AR, VLLM_FAN_OUT, *asks], only)
                process = start_vllm(vllm_requests_alone(workload.forced(model.config, job.engine)))
                facts = facts_of_vllm(process)
                asks |= vllm_askers(process)
            asks = chosen(asks, only)
            rivals = (VLLM_AR, VLLM_FAN_OUT)
            waits, peaks = ask_alone(asks, rivals, len(workload.records), repeats, model.device, console.print)
            report_latencies(job.model, model, name, repeats, waits, peaks, facts)
        else:
            draft = load_draft_model(draft_model, job.model, tokenizer, job.engine) if draft_model else None
            entrants = contenders(model, workload, job.engine, batch_size, draft)
            outside, facts = {}, {}
            requests = {} if vllm is None else vllm_requests(model, workload, job.engine)
            check_names([*requests, *entrants], only)
            if vllm is not None:
                process = start_vllm(requests)
                facts = facts_of_vllm(process)
                outside = vllm_contenders(process, requests)
            runs = chosen(outside | entrants, only, everybody)
            found = compare(model, workload, job.engine, runs, repeats, outside.keys(), console.print)
            report(job.model, model, name, found, len(workload.records), batch_size, facts)


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Print what the user can mend as one line, and exit with code 2."""
    try:
        yield
    except (HPDError, UsageError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    app()
