"""Measures what it brings and costs to copy strings from the text (`engine.strings: verbatim`), on ExtractGPT's sets.

    python bench/verbatim_values.py DATA --model MODEL
    python bench/verbatim_values.py DATA --model MODEL --schemas FOLDER --limit 60

DATA holds {oa-mine,ae-110k}.{train,test}.jsonl as published by ExtractGPT; FOLDER holds {oa-mine,ae-110k}.yaml, where
the schemas shall not be made of the training sets. The engine is used alone, loaded anew for each line, and scored as
`hpd evaluate` and `hpd compare` do. A line for each set and variant: free strings; verbatim with the default budget;
greedy, which is verbatim with a budget of 0, along the runs of the document; exclusive, but of the attributes that
share text in the labels of the training set. verbatim@0.4, exclusive@0.4 and the like: with that
`engine.answer_threshold`.

    F1, change     exact, with the 95% interval of a bootstrap over products; the change against free, paired
    elsewhere      values that stand in none of the product's texts, of all values
    no place       values that find no place in the texts that a likelier one has not, of all values; of the labels as
                   many: a line of its own
    s              the engine's time, without loading; the model has answered a few products before
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer

from bench.gold_sets import CONFIG, Answered, GoldSet, compare, extract, figure, read_set
from hpd_core import Engine
from hpd_core.config import DTypeName, EngineConfig
from hpd_core.text.exclusive_places import Copied, ExclusivePlaces
from hpd_core.text.runs import field_lines
from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from pipelines.quality.gold import read_gold
from pipelines.schemas.schema_file import load_schemas
from pipelines.schemas.shared_text import exclusive_schemas, shared_text

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_SETS = ("oa-mine", "ae-110k")
_VARIANTS: dict[str, dict[str, Any]] = {
    "free": {},
    "verbatim": {"strings": "verbatim"},
    "greedy": {"strings": "verbatim", "max_scored_tokens": 0},
    "exclusive": {"strings": "verbatim"},
}
_THRESHOLD = "@"  # between a variant and its answer_threshold
_WARM_UP = 8
_HEAD = ("set", "strings", "products", "precision", "recall", "F1", "change of F1", "elsewhere", "no place", "s")


def elsewhere(gold_set: GoldSet, answered: Answered) -> tuple[int, int]:
    """How many values stand in no text of their record, and how many there are."""
    records, found = gold_set.records, []
    for row, product in answered.products.items():
        texts = records[row].fields.values() if row in records else ()
        found += [
            not any(item in text for text in texts) for answer in product.answers.values() for item in answer.items
        ]
    return sum(found), len(found)


def without_place(gold_set: GoldSet, values: Mapping[int, Sequence[Copied]]) -> str:
    """How many values of the rows of a set with exclusive schemas find no place of their own."""
    contested = total = 0
    for row, record in gold_set.records.items():
        found = values.get(row, [])
        places = ExclusivePlaces(field_lines(record.fields), gold_set.schemas[record.category].rivals)
        contested, total = contested + len(places.settle(found)), total + len(found)
    return f"{contested} of {total}"


def answered_values(answered: Answered) -> dict[int, list[Copied]]:
    """By row. Of equal probability: they are placed by their names."""
    return {
        row: [Copied(name, answer.items[0], 1.0) for name, answer in product.answers.items() if answer.items]
        for row, product in answered.products.items()
    }


def labelled_values(gold_set: GoldSet) -> dict[int, list[Copied]]:
    """By row, as `answered_values`."""
    return {
        row: [Copied(name, value.items[0][0], 1.0) for name, value in product.values.items() if not value.is_absent]
        for row, product in gold_set.gold.items()
    }


def lines(engines: Iterator[tuple[str, Engine]], gold_set: GoldSet, exclusive: GoldSet) -> Iterator[tuple[str, ...]]:
    """A line of the table for each engine; the first one is what others are compared with.

    Args:
        exclusive: the set with exclusive schemas.
    """
    yield (
        gold_set.name,
        "labels",
        str(len(gold_set.rows)),
        *[""] * 5,
        without_place(exclusive, labelled_values(exclusive)),
        "",
    )
    first: Answered | None = None
    for name, engine in engines:
        asked = exclusive if name.startswith("exclusive") else gold_set
        engine.extract(list(islice(asked.records.values(), _WARM_UP)), asked.schemas)
        answered = extract(engine, asked)
        first = first or answered
        rates = compare(gold_set, first, answered)
        shares = (figure(each, ".3f") for each in (rates.b.precision, rates.b.recall, rates.b.f1))
        num_elsewhere, num_values = elsewhere(gold_set, answered)
        yield (
            *(gold_set.name, name, str(len(gold_set.rows)), *shares, figure(rates.difference.f1, "+.3f")),
            f"{num_elsewhere} of {num_values}",
            without_place(exclusive, answered_values(answered)),
            f"{answered.seconds:.1f}",
        )


def loaded(
    model: str, adapter: str | None, settings: EngineConfig, variants: Sequence[str]
) -> Iterator[tuple[str, Engine]]:
    """An engine for each variant, one at a time."""
    for name in variants:
        kind, _, threshold = name.partition(_THRESHOLD)
        update = _VARIANTS[kind] | {"answer_threshold": float(threshold) if threshold else None}
        with Engine.from_pretrained(model, settings.model_copy(update=update), adapter) as engine:
            yield name, engine


@app.command()
def main(
    data: Annotated[Path, typer.Argument(help="folder of ExtractGPT's files")],
    model: Annotated[str, typer.Option(help="as in a job")] = "smollm2",
    adapter: Annotated[str | None, typer.Option(help="as in a job")] = None,
    schemas: Annotated[Path | None, typer.Option(help="folder of schema files")] = None,
    sets: Annotated[str, typer.Option(help="which, with commas between")] = ",".join(_SETS),
    strings: Annotated[str, typer.Option(help="which variants, with commas between")] = ",".join(_VARIANTS),
    limit: Annotated[int | None, typer.Option(help="products of each set; all by default")] = None,
    dtype: Annotated[DTypeName, typer.Option(help="engine.dtype")] = "auto",
    device: Annotated[str, typer.Option(help="engine.device")] = "auto",
) -> None:
    """Prints a table."""
    variants = strings.split(",")
    if unknown := {variant.partition(_THRESHOLD)[0] for variant in variants} - _VARIANTS.keys():
        raise typer.BadParameter(f"no such strings: {', '.join(sorted(unknown))}; there are {', '.join(_VARIANTS)}")
    settings = load_config(JobConfig, str(CONFIG)).engine.model_copy(update={"dtype": dtype, "device": device})
    print(" | ".join(_HEAD))
    for name in sets.split(","):
        gold_set = read_set(data, name, limit)
        if schemas is not None:
            gold_set = replace(gold_set, schemas=load_schemas(str(schemas / f"{name}.yaml")))
        sharing = shared_text(read_gold(str(data / f"{name}.train.jsonl")))
        exclusive = replace(gold_set, schemas=exclusive_schemas(gold_set.schemas, sharing))
        for line in lines(loaded(model, adapter, settings, variants), gold_set, exclusive):
            print(" | ".join(line), flush=True)


if __name__ == "__main__":
    app()
