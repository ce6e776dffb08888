"""Measures JSON by a schema on made-up forms (bench/workloads/forms.py): this engine beside its rivals.

    python bench/json_forms.py --model smollm2 --documents 20
    python bench/json_forms.py --adapter adapters/smollm2-generalist --vllm .venv-rivals/bin/python

    hpd           Engine.extract_json
    generate      transformers' `generate` is given the schema and the document, and writes the whole JSON, the
                  documents of a batch at once; it is not constrained
    vllm-schema   vLLM, likewise, all documents at once, each answer held to its schema
    vllm-fan-out  vLLM with a request for each field, behind the engine's prompts, wave by wave; it writes as many
                  tokens as the engine did, so that only its speed tells something

All decode greedily, with the same weights: an adapter is merged into the model beforehand.

    documents/s   of the second of two runs
    valid         share of the documents whose JSON fits the schema
    right         share of the answers' leaves that are exactly what the document says; what is missing is wrong
    tokens        that were written, in all
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
import typer
from transformers import PreTrainedModel

from bench.merged_model import merged
from bench.rivals import vllm_forms
from bench.rivals.vllm_process import VllmProcess
from bench.workloads.forms import Form, make_forms
from hpd_core import Engine, EngineConfig
from hpd_core.decoding.prompt import Prompt
from hpd_core.json_schema.validation import checker
from hpd_core.models import loading
from hpd_core.text.template import PromptTemplate, chat_wrapping

_BLOCK_SIZE = 32

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What somebody wrote for each document, None where it is no JSON, in how many tokens and seconds."""

    answers: Sequence[Any]
    num_tokens: int
    seconds: float


def by_engine(engine: Engine, forms: Sequence[Form]) -> Outcome:
    """All forms at once; those of a schema in one call."""
    started = time.perf_counter()
    names = list(dict.fromkeys(form.name for form in forms))
    of_name = {name: [form for form in forms if form.name == name] for name in names}
    futures = {
        name: engine.submit_json([form.document for form in own], own[0].schema) for name, own in of_name.items()
    }
    results = {name: iter(future.result()) for name, future in futures.items()}
    found = [next(results[form.name]) for form in forms]
    num_tokens = sum(result.num_output_tokens for result in found)
    return Outcome([result.data for result in found], num_tokens, time.perf_counter() - started)


def prompt_of(form: Form, tokenizer: Any) -> str:
    """Asks for all of the JSON, which begins behind it."""
    head, tail = chat_wrapping(PromptTemplate(), tokenizer)
    asked = f"Answer with JSON that fits this schema, and with nothing else.\n\n{json.dumps(form.schema)}\n\n"
    return f"{head}{asked}Document:\n{form.document}{tail}"


@torch.inference_mode()
def by_generate(model: Any, tokenizer: Any, forms: Sequence[Form], batch: int, most: int) -> Outcome:
    """`batch` documents at a time."""
    started = time.perf_counter()
    tokenizer.padding_side = "left"
    answers: list[Any] = []
    num_tokens = 0
    for first in range(0, len(forms), batch):
        prompts = [prompt_of(form, tokenizer) + "{" for form in forms[first : first + batch]]
        encoded = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
        written = model.generate(**encoded, max_new_tokens=most, do_sample=False, pad_token_id=tokenizer.pad_token_id)
        for row in written[:, encoded["input_ids"].shape[1] :].tolist():
            ids = [token for token in row if token != tokenizer.pad_token_id]
            num_tokens += len(ids)
            answers.append(_first_json("{" + tokenizer.decode(ids, skip_special_tokens=True)))
    return Outcome(answers, num_tokens, time.perf_counter() - started)


def by_vllm(
    python: str,
    source: str,
    model: PreTrainedModel,
    tokenizer: Any,
    forms: Sequence[Form],
    waves: Sequence[Sequence[Prompt]],
    most: int,
) -> tuple[Outcome, Outcome]:
    """By schema, and with a request for each field of `waves`. The latter's answers are not read."""
    prompts = [tokenizer(prompt_of(form, tokenizer), add_special_tokens=False)["input_ids"] for form in forms]
    fields = {f"wave {number}": vllm_forms.fan_out(wave) for number, wave in enumerate(waves, start=1)}
    runs = {"schema": vllm_forms.by_schema(prompts, forms, most), **fields}
    with closing(VllmProcess.of_model(python, source, model, runs, _BLOCK_SIZE)) as vllm:
        found = {name: vllm.run(name) for name in runs}
    whole = found.pop("schema")
    answers = [_first_json(tokenizer.decode(ids, skip_special_tokens=True)) for ids in whole.answers]
    num_tokens = sum(len(ids) for run in found.values() for ids in run.answers)
    return (
        Outcome(answers, sum(map(len, whole.answers)), whole.seconds),
        Outcome([], num_tokens, sum(run.seconds for run in found.values())),
    )


def _first_json(text: str) -> Any:
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except ValueError:
        return None


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """What stands in a JSON value, by its path; an empty list stands for itself."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from leaves(each, (*path, key))
    elif isinstance(value, list) and value:
        for number, each in enumerate(value):
            yield from leaves(each, (*path, number))
    else:
        yield path, value


def report(name: str, forms: Sequence[Form], outcome: Outcome) -> str:
    """One line of the table. Without answers it is of speed alone."""
    speed, tokens = f"{name:12} {len(forms) / outcome.seconds:11.3f}", f"{outcome.num_tokens:7,}"
    if not outcome.answers:
        return f"{speed} {'-':>6} {'-':>6} {tokens}"
    valid = [not checker(form.schema)(answer) for form, answer in zip(forms, outcome.answers, strict=True)]
    found = right = 0
    for form, answer in zip(forms, outcome.answers, strict=True):
        own = dict(leaves(answer))
        for path, value in leaves(dict(form.answer)):
            found += 1
            right += path in own and own[path] == value
    return f"{speed} {sum(valid) / len(valid):6.1%} {right / found:6.1%} {tokens}"


@app.command(help=__doc__)
def main(
    model: Annotated[str, typer.Option(help="Hub id, folder or embedded name.")] = "smollm2",
    documents: Annotated[int, typer.Option(min=1, help="How many.")] = 20,
    batch: Annotated[int, typer.Option(min=1, help="Documents that generate has at a time.")] = 8,
    most: Annotated[int, typer.Option(min=1, help="Tokens of a document's whole answer, at most.")] = 600,
    vllm: Annotated[str | None, typer.Option(metavar="PYTHON", help="vLLM, too: a Python that has it")] = None,
    adapter: Annotated[str | None, typer.Option(help="Folder of a LoRA adapter of the model.")] = None,
) -> None:
    """Prints a line for each."""
    with merged(model, adapter) as folder:
        run(folder, documents, batch, most, vllm)


def run(model: str, documents: int, batch: int, most: int, vllm: str | None) -> None:
    """As `main` is told."""
    forms, config = make_forms(documents), EngineConfig()
    typer.echo(f"{'':12} {'documents/s':>11} {'valid':>6} {'right':>6} {'tokens':>7}")
    with Engine.from_pretrained(model, config) as engine:
        by_engine(engine, forms)
        with vllm_forms.recorded() as waves:
            outcome = by_engine(engine, forms)
        typer.echo(report("hpd", forms, outcome))
    alone, tokenizer = loading.load_model(model, config), loading.load_tokenizer(model, config)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    by_generate(alone, tokenizer, forms[:1], batch, 2)
    typer.echo(report("generate", forms, by_generate(alone, tokenizer, forms, batch, most)))
    if vllm is not None:
        by_schema, fan_out = by_vllm(vllm, model, alone, tokenizer, forms, waves, most)
        typer.echo(report("vllm-schema", forms, by_schema))
        typer.echo(report("vllm-fan-out", forms, fan_out))


if __name__ == "__main__":
    app()
