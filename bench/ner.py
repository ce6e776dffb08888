"""Named entities in four ways, of the same sentences by the same model: F1 of exact spans, steps, tokens, seconds.

    python bench/ner.py --model smollm2

    lists       Engine.extract_json: of each type a list of texts, all types at once
    objects     Engine.extract_json in two waves: a list of all mentions, then the type of each
    counted     PaDeLLM-NER's way (arXiv 2402.04838), by Engine.complete: how many there are of each type, then a
                sequence for each mention, which sees its type, their number and its own; of a text that is said to be
                of several types the likeliest stays
    generate    transformers' `generate` writes the lists as one JSON text, a batch of sentences at a time

    F1, P, R    by bench/workloads/entities.py
    cut         values that were cut at their limit; of generate, answers that are no JSON
    steps       forward passes
    tokens      that were written
    seconds     that passed; cpu: of the process, which says more where others use the machine, too

All decode greedily, with the same weights, and have decoded a sentence before. The engine's values are constrained,
what `generate` writes is not.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer

from bench.json_forms import by_generate
from bench.workloads.entities import TYPES, Mention, Sentence, read_sentences, score
from bench.workloads.forms import Form
from hpd_core import Completion, Engine, EngineConfig, JsonResult, OpenBranch, Trunk
from hpd_core.json_schema.extraction import JsonForm
from hpd_core.json_schema.schema_reader import SchemaLimits
from hpd_core.models import loading
from hpd_core.text.value_kinds import Integer, JsonString, spelled

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

FILES = [Path(__file__).resolve().parent.parent / "sample" / "entities" / name for name in ("en.txt", "de.txt")]
INSTRUCTION = """\
Find the named entities in a sentence. A list is empty where the sentence has no such name.

Example:
Jo Marsh of Ostara Bank flew from Oslo to the Venice Biennale with Ida Holm.

{{
{}
}}"""
"""Everybody reads it, with the answer as he is to write it; `generate` as the schema's description."""
_EXAMPLE = {
    "PER": ["Jo Marsh", "Ida Holm"],
    "ORG": ["Ostara Bank"],
    "LOC": ["Oslo", "Venice"],
    "MISC": ["Venice Biennale"],
}
MOST_COUNTED = 10
"""Mentions of a type in a sentence that are asked for; the sample has three at most."""

_NOTES = {
    "PER": "names of people",
    "ORG": "names of organisations, companies, clubs and authorities",
    "LOC": "names of places, countries, rivers and seas",
    "MISC": "other names: nationalities, languages, events, works, prizes and products",
}
_LISTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        type_: {"type": "array", "items": {"type": "string"}, "description": note, "x-hpd-max-tokens": 64}
        for type_, note in _NOTES.items()
    },
    "required": list(TYPES),
}
_OBJECTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "entities": {
            "type": "array",
            "description": "Every name in the sentence",
            "x-hpd-max-tokens": 128,
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "type": {
                        "enum": list(TYPES),
                        "description": "; ".join(f"{type_}: {note}" for type_, note in _NOTES.items()),
                    },
                },
                "required": ["name", "type"],
            },
        }
    },
    "required": ["entities"],
}


@dataclass(frozen=True, slots=True)
class Run:
    """What was found in each sentence, and what it took."""

    answers: Sequence[Sequence[Mention]]
    num_cut: int
    num_tokens: int


class Forwards:
    """Counts forward passes."""

    count = 0

    @contextmanager
    def of_engine(self, engine: Engine) -> Iterator[Self]:
        """While this is entered."""
        step = engine._decoder.step

        def counting() -> Any:
            self.count += 1
            return step()

        engine._decoder.step = counting  # type: ignore[method-assign]
        try:
            yield self
        finally:
            engine._decoder.step = step  # type: ignore[method-assign]

    @contextmanager
    def of_model(self, model: Any) -> Iterator[Self]:
        """While this is entered."""

        def counting(*_: Any) -> None:
            self.count += 1

        hook = model.register_forward_pre_hook(counting)
        try:
            yield self
        finally:
            hook.remove()


def _instruction(lines: Iterable[tuple[str, Any]]) -> str:
    return INSTRUCTION.format(",\n".join(f"{spelled(key)}: {spelled(value)}" for key, value in lines))


def by_lists(engine: Engine, texts: Sequence[str]) -> Run:
    """A list for each type."""
    results = engine.extract_json(texts, _LISTS, _instruction(_EXAMPLE.items()))
    return _of_json(results, [_listed(result.data) for result in results])


def by_objects(engine: Engine, texts: Sequence[str]) -> Run:
    """All mentions, then the type of each."""
    named = [(type_, name) for type_, names in _EXAMPLE.items() for name in names]
    typed = [(f"entities[{number}].type", type_) for number, (type_, _) in enumerate(named, start=1)]
    instruction = _instruction([("entities", [name for _, name in named]), *typed])
    results = engine.extract_json(texts, _OBJECTS, instruction)
    rows = [(result.data or {}).get("entities", []) for result in results]
    return _of_json(results, [[(row["type"], row["name"]) for row in each if "type" in row] for each in rows])


def _of_json(results: Sequence[JsonResult], answers: Sequence[Sequence[Mention]]) -> Run:
    num_cut = sum(field.status == "truncated" for result in results for field in result.fields.values())
    return Run(answers, num_cut, sum(result.num_output_tokens for result in results))


def _listed(answer: Any) -> list[Mention]:
    """What a JSON answer lists; `generate` may have written anything."""
    lists = answer if isinstance(answer, dict) else {}
    own = [(type_, lists[type_]) for type_ in TYPES if isinstance(lists.get(type_), list)]
    return [(type_, each) for type_, listed in own for each in listed if isinstance(each, str)]


def by_counts(engine: Engine, texts: Sequence[str]) -> Run:
    """Numbers first, then each mention by itself; fields are listed as for `by_lists`."""
    lengths = [(f"{type_}.length", len(names)) for type_, names in _EXAMPLE.items()]
    names = [(f"{type_}[{n}]", name) for type_, names in _EXAMPLE.items() for n, name in enumerate(names, start=1)]
    tokenizer, instruction = engine._segments.tokenizer, _instruction([*lengths, *names])
    prefix, suffix = JsonForm.of(_LISTS, engine.config.prompt, tokenizer, instruction, SchemaLimits()).frame
    trunks = [Trunk(prefix, text, suffix) for text in texts]
    counting = [OpenBranch(f'"{type_}.length":', Integer()) for type_ in TYPES]
    counted = [found.branches for found in engine.complete(trunks, [counting] * len(texts)).result()]
    asked = [list(_one_by_one(counts)) for counts in counted]
    mentions = [[OpenBranch(text, JsonString()) for _, text in each] for each in asked]
    written = [found.branches for found in engine.complete(trunks, mentions).result()]
    answers = [_likeliest([type_ for type_, _ in each], own) for each, own in zip(asked, written, strict=True)]
    completions = [completion for each in (*counted, *written) for completion in each]
    num_cut = sum(completion.status == "truncated" for completion in completions)
    return Run(answers, num_cut, sum(completion.num_tokens for completion in completions))


def _one_by_one(counts: Sequence[Completion]) -> Iterator[Mention]:
    """The type of every mention that is to be found, and the text that asks for it."""
    for type_, count in zip(TYPES, counts, strict=True):
        for number in range(min(count.value or 0, MOST_COUNTED)):
            yield type_, f'"{type_}.length": {count.value},\n"{type_}[{number + 1}]":'


def _likeliest(types: Sequence[str], written: Sequence[Completion]) -> list[Mention]:
    """What was written, each text as the type that it is likeliest to be."""
    best: dict[str, tuple[float, str]] = {}
    found = [(type_, each) for type_, each in zip(types, written, strict=True) if each.status == "value"]
    for type_, each in found:
        best[each.value] = max(best.get(each.value, (-1.0, "")), (each.probability or 0.0, type_))
    return [(type_, each.value) for type_, each in found if best[each.value][1] == type_]


def by_generating(model: Any, tokenizer: Any, texts: Sequence[str], batch: int, most: int) -> Run:
    """All lists as one text."""
    schema = _LISTS | {"description": _instruction(_EXAMPLE.items())}
    outcome = by_generate(model, tokenizer, [Form("entities", schema, text, {}) for text in texts], batch, most)
    num_cut = sum(answer is None for answer in outcome.answers)
    return Run([_listed(answer) for answer in outcome.answers], num_cut, outcome.num_tokens)


@contextmanager
def timed(name: str, sentences: Sequence[Sentence], counted: AbstractContextManager[Forwards]) -> Iterator[list[Run]]:
    """Prints the line of the table for the run that is put into the list."""
    runs: list[Run] = []
    with counted as forwards:
        started, cpu = time.perf_counter(), time.process_time()
        yield runs
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    found = score(sentences, runs[0].answers)
    typer.echo(
        f"{name:10} {found.f1:6.3f} {found.precision:6.3f} {found.recall:6.3f} {runs[0].num_cut:4} "
        f"{forwards.count:6,} {runs[0].num_tokens:7,} {seconds:8.2f} {cpu:8.2f}"
    )


@app.command(help=__doc__)
def main(
    model: Annotated[str, typer.Option(help="Hub id, folder or embedded name.")] = "smollm2",
    sentences: Annotated[int | None, typer.Option(min=1, help="Only the first N of each language.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Sentences that generate has at a time.")] = 32,
    most: Annotated[int, typer.Option(min=1, help="Tokens that generate may write for a sentence.")] = 200,
) -> None:
    """Prints a line for each."""
    chosen = [sentence for path in FILES for sentence in read_sentences([path])[:sentences]]
    texts, config = [sentence.text for sentence in chosen], EngineConfig()
    marked = [span for sentence in chosen for span in sentence.spans]
    typer.echo(f"{len(chosen)} sentences, {len(marked)} entities")
    typer.echo(f"{'':10} {'F1':>6} {'P':>6} {'R':>6} {'cut':>4} {'steps':>6} {'tokens':>7} {'seconds':>8} {'cpu':>8}")
    with Engine.from_pretrained(model, config) as engine:
        for name, way in (("lists", by_lists), ("objects", by_objects), ("counted", by_counts)):
            way(engine, texts[:1])
            with timed(name, chosen, Forwards().of_engine(engine)) as runs:
                runs.append(way(engine, texts))
    alone, tokenizer = loading.load_model(model, config), loading.load_tokenizer(model, config)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    by_generating(alone, tokenizer, texts[:1], batch, 2)
    with timed("generate", chosen, Forwards().of_model(alone)) as runs:
        runs.append(by_generating(alone, tokenizer, texts, batch, most))


if __name__ == "__main__":
    app()
