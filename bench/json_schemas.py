"""Counts how many JSON Schemas of a folder are taken, and how many of the answers by them are valid.

    python -m bench.json_schemas FOLDER --answers 200

A file is a schema, or has one under "schema" (guidance-ai/jsonschemabench and its MaskBench). Each is checked alone;
the time is that of the processor. Exit code 1: a check took longer than `--most-seconds`, or an answer without problems
is not valid by its schema.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from jsonschema.validators import validator_for
from referencing import Registry

from hpd_core import Engine, SchemaError, check_schema

_KEYWORDS = {"type", "properties", "$ref", "allOf", "oneOf", "anyOf", "items", "enum", "const", "definitions", "$defs"}
_AT_A_TIME = 8
_WRONG = "wrongly said to be valid"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
_DOCUMENT = "A record of the kind that is described: the first of a list, of 3 March 2026, called example, in use."


@dataclass(frozen=True, slots=True)
class Checked:
    """A schema, why it is refused (None: it is taken), and the processor's seconds for its check."""

    path: Path
    schema: Any
    refusal: str | None
    seconds: float


def schemas_in(folder: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the schemas below a folder, in an order that is shuffled, and always the same."""
    paths = sorted(path for path in folder.rglob("*.json") if path.is_file())
    random.Random(0).shuffle(paths)
    for path in paths:
        try:
            found = json.loads(path.read_text())
        except ValueError:
            continue
        if isinstance(found, dict) and isinstance(found.get("schema"), dict):
            found = found["schema"]
        if isinstance(found, dict) and _KEYWORDS & found.keys():
            yield path, found


def checked(path: Path, schema: Any) -> Checked:
    """Check one schema."""
    started, refusal = time.process_time(), None
    try:
        check_schema(schema)
    except SchemaError as error:
        refusal = error.message
    return Checked(path, schema, refusal, time.process_time() - started)


def reason(refusal: str) -> str:
    """Return a refusal without what is of one schema: names, numbers, and what follows them."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|[0-9][0-9,]*", "_", refusal)[:120]


def validity(found: list[Checked], model: str, adapter: str | None) -> Counter[str]:
    """Count what an engine answers by schemas: valid, with problems, and valid by its word only, which is an error."""
    counts: Counter[str] = Counter()
    with Engine.from_pretrained(model, adapter=adapter) as engine, ThreadPoolExecutor(_AT_A_TIME) as pool:
        for each, (result,) in zip(
            found, pool.map(lambda each: engine.extract_json([_DOCUMENT], each.schema), found), strict=True
        ):
            if result.problems:
                counts[f"says that {reason(result.problems[0].message)}"] += 1
                continue
            judge = validator_for(each.schema)(each.schema, registry=Registry())
            try:
                counts["valid" if judge.is_valid(result.data) else _WRONG] += 1
            except re.error:
                counts["said to be valid, by a pattern that Python's own re does not read"] += 1
    return counts


@app.command()
def main(
    folder: Annotated[Path, typer.Argument(help="Of schemas, in files that end with .json.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Schemas that are checked.")] = None,
    answers: Annotated[int, typer.Option(min=0, help="Schemas taken by which an answer is decoded.")] = 0,
    model: Annotated[str, typer.Option(help="What answers.")] = "smollm2",
    adapter: Annotated[str | None, typer.Option(help="LoRA adapter for it.")] = None,
    most_seconds: Annotated[float, typer.Option(help="Of the processor, for one check.")] = 1.0,
) -> None:
    """Print how many are taken, why others are refused, and how many of the answers are valid."""
    found = [checked(*each) for each in islice(schemas_in(folder), limit)]
    if not found:
        raise typer.BadParameter(f"{folder} has no JSON Schema")
    taken = [each for each in found if each.refusal is None]
    slowest = max(found, key=lambda each: each.seconds)
    typer.echo(f"taken: {len(taken):,} of {len(found):,}, {len(taken) / len(found):.1%}")
    for why, count in Counter(reason(each.refusal) for each in found if each.refusal is not None).most_common():
        typer.echo(f"refused: {count:,}  {why}")
    typer.echo(f"slowest check: {slowest.seconds:.2f} s, {slowest.path}")
    counts = validity(taken[:answers], model, adapter) if answers else Counter[str]()
    for what, count in counts.most_common():
        typer.echo(f"{what}: {count:,} of {counts.total():,} answers")
    raise typer.Exit(int(slowest.seconds > most_seconds or _WRONG in counts))


if __name__ == "__main__":
    app()
