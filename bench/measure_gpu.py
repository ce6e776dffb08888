"""Measures the engine on one GPU, part by part: exactness, speed, rivals, ceilings, where the time goes.

    python bench/measure_gpu.py OUT --plan call1
    python bench/measure_gpu.py OUT --parts gemm,8b:tree,8b:tree+short-keys,8b:floor,8b:profile
    python bench/measure_gpu.py OUT --rehearse --parts gemm,8b:tree,8b:floor

Models of well-known shapes get random weights on the GPU itself; no disk and no network are needed. Every part runs in
a worker process under a time limit; where one fails, hangs or dies the others go on, and the exit code is 1. What it
finds is printed as it comes and added to OUT/results.jsonl. The table at the end has all that stands there: more parts
can be measured later, in the same folder. The last line is one JSON object.

A part is called [SHAPE:[WORKLOAD:]]KIND[+OPTION...][@ROUNDS]: 8b:titles:tree+short-keys@3. SHAPE is 8b, 1.7b or 0.6b
(Qwen3's), WORKLOAD listings (where none is named), titles or another one of the benchmark's. An OPTION is fp8,
short-keys, or a setting of the engine as in max_tokens_per_step=4096. KIND is one of

    gemm         what the card does at best: products, copies, launches
    exact        tests/gpu, several processes side by side
    tree         the engine, automatic settings and what the options change
    vllm         vLLM AR and fan-out on the same records (--vllm)
    generate     transformers' generate, batches of 128
    ceiling      the bare model in large dense batches, as many tokens
    floor        the matrix products alone, of as many rows as tree's large steps have
    profile      kernels by kind, in large and in small steps
    small-steps  milliseconds of a step that decodes 1, 16, 64, 256, 512 tokens
    single       one product alone
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer

from bench.gpu import plan, summary
from bench.gpu.plan import GpuSettings
from bench.gpu.supervisor import Done, Supervisor
from pipelines.errors import UsageError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_PACKAGES = ("torch", "triton", "transformers", "vllm")
_REHEARSED_RECORDS = 24
_FAILED = ("failed", "too long", "died")


@app.command()
def main(
    out: Annotated[
        Path, typer.Argument(help="Folder for results.jsonl, log.txt and traces; made where it is missing.")
    ],
    parts: Annotated[
        str | None, typer.Option(metavar="NAME,NAME,...", help="Only these, in this order, in place of a plan's.")
    ] = None,
    plan_name: Annotated[
        Literal["call1", "call2", "rest"],
        typer.Option("--plan", help="call1: the engine and its floors; call2: beside vLLM; rest: all others."),
    ] = "call1",
    budget: Annotated[
        float, typer.Option(min=1, help="Seconds for all; what no longer fits is left out.")
    ] = plan.PLANNED_SECONDS,
    vllm: Annotated[
        str | None, typer.Option(metavar="PYTHON", help="Also vLLM, of this interpreter's environment.")
    ] = None,
    tokenizer: Annotated[str, typer.Option(help="The model, or folder, whose tokenizer splits the texts.")] = "smollm2",
    records: Annotated[int, typer.Option(min=1, help="Of a workload.")] = 1024,
    rehearse: Annotated[bool, typer.Option("--rehearse", help="Tiny models on the CPU: does every part run?")] = False,
) -> None:
    """Measure the engine on one GPU, part by part."""
    try:
        asked = plan.parts(parts, plan_name, has_vllm=vllm is not None, rehearsal=rehearse)
        out.mkdir(parents=True, exist_ok=True)
    except (UsageError, OSError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from None
    settings = GpuSettings(
        device="cpu" if rehearse else "cuda",
        rehearsal=rehearse,
        records=min(records, _REHEARSED_RECORDS) if rehearse else records,
        tokenizer=str(Path(tokenizer).resolve()) if Path(tokenizer).is_dir() else tokenizer,
        vllm=vllm,
        out=str(out.resolve()),
    )
    with (out / "log.txt").open("a") as log:

        def say(text: str) -> None:
            for file in (sys.stdout, log):
                print(text, file=file, flush=True)

        def keep(row: Mapping[str, Any]) -> None:
            with (out / "results.jsonl").open("a") as file:
                print(json.dumps({**row, "rehearsal": rehearse, "time": time.time()}), file=file)

        for line in _machine():
            say(line)
        done = Supervisor(settings, budget, say, keep).run(asked)
        failed = _report(out, rehearse, done, say)
    _pack(out)
    raise typer.Exit(1 if failed else 0)


def _report(out: Path, rehearse: bool, done: list[Done], say: Any) -> bool:
    """Print the table, what is missing in it, and the JSON line. Return whether a part failed."""
    path = out / "results.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [row for row in map(json.loads, lines) if row["rehearsal"] == rehearse]
    found = summary.report(rows, say)
    for item in done:
        if item.outcome != "ok":
            say(f"{item.part.name}: {item.outcome}" + (f": {item.message}" if item.message else ""))
    outcomes = [{"part": item.part.name, "outcome": item.outcome, "seconds": item.seconds} for item in done]
    say(json.dumps({**found, "parts": outcomes}))
    return any(item.outcome in _FAILED for item in done)


def _pack(out: Path) -> None:
    """Pack all files but the results and the log into one archive, others.tar.gz."""
    others = [path for path in out.iterdir() if path.is_file() and path.name not in ("results.jsonl", "log.txt")]
    with tarfile.open(out / "others.new", "w:gz") as packed:
        for path in others:
            packed.add(path, path.name if path.name != "others.tar.gz" else "before.tar.gz")
    for path in others:
        path.unlink()
    (out / "others.new").rename(out / "others.tar.gz")


def _machine() -> list[str]:
    """Return lines on the machine, as far as it can be told without torch."""
    versions = []
    for name in _PACKAGES:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(f"no {name}")
    lines = [f"Python {sys.version.split()[0]}, {', '.join(versions)}, {os.cpu_count()} CPU cores"]
    query = "--query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit"
    try:
        found = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, timeout=20, check=False
        )
        lines += found.stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired) as error:
        lines.append(f"nvidia-smi: {error}")
    return lines


if __name__ == "__main__":
    app()
