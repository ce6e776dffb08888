"""How long a client waits for one product, when 1, 8 or 64 of them ask at once: hpd serve and others in the same run.

    python bench/serve_latency.py
    python bench/serve_latency.py --transformers --vllm .venv-rivals/bin/python --adapter adapters/smollm2-generalist

Products and attributes are the sample's, one category. Attributes that are lists are left out: a small model that was
not taught does not end them. `hpd serve` is sent a product's text and the schema. The others are sent what a teacher is
(hpd label): the attributes and the text in words; vLLM the schema as well. `transformers serve` takes no schema: its
answers are whatever the model writes, up to --max-tokens. Servers run one after another, each with all cores and the
model in the same dtype; the first requests of each are not timed. The last line is JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
from rich.console import Console
from rich.table import Table

from bench.merged_model import merged
from bench.served_load import Waits, measure, started
from hpd_core import CategorySchema, Record
from hpd_core.models.loading import resolve_source
from hpd_core.text.template import render_document
from pipelines.catalog.small_catalog import read_records
from pipelines.config.extraction import JobConfig
from pipelines.config.labelling import OpenAITeacherConfig
from pipelines.config.loading import load_config
from pipelines.console.exit_codes import EXIT_CLEAN, run_command
from pipelines.labelling.teacher_prompts import product_messages, response_format
from pipelines.schemas.schema_file import load_schemas

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_CONFIG = Path(__file__).resolve().parent.parent / "configs" / "demo.yaml"
_WARM_UP = 8  # requests
_PATIENCE = 3600  # seconds
_TEACHER = OpenAITeacherConfig(kind="openai", base_url="http://127.0.0.1/v1", model="model")


@dataclass(frozen=True, slots=True)
class Contender:
    """A server: how it is started, and what it is asked of each product."""

    name: str
    command: Sequence[str]
    port: int
    requests: Sequence[Mapping[str, Any]]


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def main(
    model: Annotated[str, typer.Option(help="local folder or an embedded model's name")] = "smollm2",
    category: Annotated[str, typer.Option(help="of the sample")] = "Coffee",
    clients: Annotated[str, typer.Option(help="how many ask at once, one measurement each")] = "1,8,64",
    seconds: Annotated[float, typer.Option(min=1, help="in which requests begin, a measurement")] = 20.0,
    dtype: Annotated[str, typer.Option(help="of the model, for all")] = "bfloat16",
    max_tokens: Annotated[int, typer.Option(min=1, help="of a rival's answer")] = 256,
    transformers: Annotated[bool, typer.Option("--transformers", help="transformers serve, too")] = False,
    vllm: Annotated[str | None, typer.Option(metavar="PYTHON", help="vLLM's server, too: a Python that has it")] = None,
    adapter: Annotated[str | None, typer.Option(help="folder of a LoRA adapter, merged into the model of all")] = None,
) -> None:
    """Starts each server in turn and measures."""
    console = Console(stderr=True)

    def work() -> int:
        counts = [int(count) for count in clients.split(",")]
        with merged(model, adapter) as whole:
            contenders = [_hpd(whole, category, dtype)]
            if transformers:
                contenders.append(_transformers(whole, category, dtype, max_tokens))
            if vllm is not None:
                contenders.append(_vllm(vllm, whole, category, dtype, max_tokens))
            rows = [row for contender in contenders for row in _measure(contender, counts, seconds, console)]
        _print(rows)
        said = {"model": model, "adapter": adapter, "category": category, "dtype": dtype}
        print(json.dumps(said | {"rows": rows}))
        return EXIT_CLEAN

    run_command(work)


def _measure(contender: Contender, counts: Sequence[int], seconds: float, console: Console) -> Iterator[dict[str, Any]]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "4"}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.txt")
        with started(contender.command, contender.port, log, environment) as address:
            asyncio.run(measure(address, contender.requests, 2, 0, _WARM_UP))
            for count in counts:
                waits: Waits = asyncio.run(measure(address, contender.requests, count, seconds, count))
                row = {"server": contender.name, **waits.summary()}
                console.print(f"{row['server']}, {count} clients: p50 {row['p50']:.3f} s, p99 {row['p99']:.3f} s")
                yield row


def _hpd(model: str, category: str, dtype: str) -> Contender:
    port = _free_port()
    schema, records = _products(category)
    serve = Path(__file__).resolve().parent.parent / "pipelines" / "serve.py"
    command = [sys.executable, str(serve), "--model", model, "--port", str(port), "--set", f"engine.dtype={dtype}"]
    command += ["--timeout", str(_PATIENCE)]
    shape = response_format("json_schema", schema)
    requests = [
        {
            "model": model,
            "messages": [{"role": "user", "content": render_document(record.fields)}],
            "response_format": shape,
        }
        for record in records
    ]
    return Contender("hpd serve", command, port, requests)


def _transformers(model: str, category: str, dtype: str, max_tokens: int) -> Contender:
    port = _free_port()
    source = resolve_source(model)
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", "--port", str(port), "--dtype", dtype]
    return Contender("transformers serve", command, port, _asked_in_words(source, category, max_tokens))


def _vllm(python: str, model: str, category: str, dtype: str, max_tokens: int) -> Contender:
    port = _free_port()
    source = resolve_source(model)
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", source, "--port", str(port)]
    shape = response_format("json_schema", _products(category)[0])
    requests = [{**each, "response_format": shape} for each in _asked_in_words(source, category, max_tokens)]
    return Contender("vLLM, JSON schema", [*command, "--dtype", dtype], port, requests)


def _asked_in_words(model: str, category: str, max_tokens: int) -> list[dict[str, Any]]:
    schema, records = _products(category)
    return [
        {
            "model": model,
            "messages": product_messages(_TEACHER, schema, record),
            "max_tokens": max_tokens,
            "temperature": 0.0,
        }
        for record in records
    ]


def _products(category: str) -> tuple[CategorySchema, list[Record]]:
    job = load_config(JobConfig, str(_CONFIG))
    schemas = load_schemas(job.schemas)
    rows = (row.record for row in read_records(job.input, schemas))
    attributes = tuple(each for each in schemas[category].attributes if not each.multiple)
    schema = CategorySchema(category=category, attributes=attributes)
    return schema, [row for row in rows if isinstance(row, Record) and row.category == category]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table("server", "clients", "requests", "p50 s", "p99 s", "requests/s", "tokens an answer")
    for row in rows:
        numbers = [f"{row[key]:.3f}" for key in ("p50", "p99", "requests_per_second")]
        counts = [str(row[key]) for key in ("clients", "requests")]
        table.add_row(row["server"], *counts, *numbers, f"{row['tokens_per_answer']:.1f}")
    Console().print(table)


if __name__ == "__main__":
    app()
