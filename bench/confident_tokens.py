"""Measures the rivals that were trained to write several tokens of an answer at once: what they gain and lose.

    python bench/confident_tokens.py DATA --ar AR --lexical-units LUD --block-diffusion BLOCKS --tree TREE

DATA holds {oa-mine,ae-110k}.{train,test}.jsonl as published by ExtractGPT. AR is a model that was fine-tuned for `ar`,
LUD and BLOCKS are what bench/train_confident.py has made of it; TREE is a model that was fine-tuned for `tree`, and is
decoded by the engine. All others write whole answers by one and the same code (rivals/confident_tokens.py), `ar` a
token a forward, so that they differ in what they take alone; `ar, generate` is the library's own baseline. A few titles
are answered before the time counts.

    F1, change       exact, micro, [95%]; change: against `ar`, paired over the products
    forwards         those that a product's answer takes part in
    products/s       of processor time: with OMP_NUM_THREADS=1, what a core would do that does nothing else;
                     `--batch-size` products at a time, `tree` as the engine does it
"""

from __future__ import annotations

import dataclasses
import gc
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer

from bench.gold_sets import Answered, GoldSet, compare, extract, figure, read_set
from bench.rivals.confident_tokens import ConfidentDecoder, LexicalUnits, load_decoder
from hpd_core import AutoregressiveBaseline, Engine, EngineConfig, HPDError
from hpd_core.extractor import Extractor
from hpd_core.models import loading
from hpd_core.models.weights import Weights
from pipelines.errors import RunError, UsageError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_WARM_UP = 8
_HEAD = ("way", "F1 [95%]", "change", "forwards a product", "products/s")


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One way to answer the set.

    Attributes:
        seconds: of processor time.
        forwards: a product; None where the way does not count them.
    """

    name: str
    answered: Answered
    seconds: float
    forwards: float | None


def _answer(engine: Extractor, gold_set: GoldSet, name: str, *, is_warm: bool = False) -> Line:
    """The whole set, after a few of its rows."""
    if not is_warm:
        extract(engine, dataclasses.replace(gold_set, rows=gold_set.rows[:_WARM_UP]))
    before = engine.num_forwards if isinstance(engine, ConfidentDecoder) else 0
    started = time.process_time()
    answered = extract(engine, gold_set)
    seconds = time.process_time() - started
    forwards = None
    if isinstance(engine, ConfidentDecoder):
        forwards = (engine.num_forwards - before) / len(gold_set.records)
    return Line(name, answered, seconds, forwards)


def plain_decoder(folder: str, config: EngineConfig) -> ConfidentDecoder:
    """A token a forward, without masks: greedy decoding. Raises ModelError."""
    weights = Weights.load(folder, config, None)
    tokenizer = loading.load_tokenizer(folder, config)
    return ConfidentDecoder(weights.model, tokenizer, weights.settings(config), LexicalUnits(0, 0, 1.0))


def lines(
    gold_set: GoldSet,
    config: EngineConfig,
    ar: str,
    tree: str | None,
    trained: Sequence[tuple[str, Path]],
    thresholds: Sequence[float],
) -> Iterator[Line]:
    """`ar`, then the rivals, then `tree`; a model at a time. Raises `HPDError` or `UsageError`."""
    with plain_decoder(ar, config) as decoder:
        yield _answer(decoder, gold_set, "ar")
    with AutoregressiveBaseline.from_pretrained(ar, config) as baseline:
        yield _answer(baseline, gold_set, "ar, generate")
    for objective, folder in trained:
        with load_decoder(folder, config, objective, thresholds[0]) as decoder:
            for number, threshold in enumerate(thresholds):
                decoder.way = dataclasses.replace(decoder.way, threshold=threshold)
                yield _answer(decoder, gold_set, f"{objective}, {threshold:g}", is_warm=number > 0)
        gc.collect()
    if tree is not None:
        with Engine.from_pretrained(tree, config) as engine:
            yield _answer(engine, gold_set, f"tree ({tree})")


@app.command()
def main(
    data: Annotated[Path, typer.Argument(help="Folder with the set's files.")],
    ar: Annotated[str, typer.Option(metavar="MODEL", help="Fine-tuned for 'ar'.")],
    name: Annotated[str, typer.Option("--name", help="Which data set.")] = "oa-mine",
    units: Annotated[Path | None, typer.Option("--lexical-units", metavar="FOLDER", help="Trained for them.")] = None,
    blocks: Annotated[Path | None, typer.Option("--block-diffusion", metavar="FOLDER", help="Trained for it.")] = None,
    tree: Annotated[str | None, typer.Option(metavar="MODEL", help="Fine-tuned for 'tree'.")] = None,
    thresholds: Annotated[str, typer.Option(metavar="P,P,...", help="Of confidence.")] = "0.7,0.9,0.99",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N titles.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Products at a time, but for 'tree'.")] = 32,
) -> None:
    """Measure what the trained rivals gain and lose."""
    try:
        gold_set = read_set(data, name, limit)
        config = EngineConfig(max_prompts_per_cohort=batch_size)
        trained = [
            (objective, folder)
            for objective, folder in (("lexical-units", units), ("block-diffusion", blocks))
            if folder is not None
        ]
        shares = [float(part) for part in thresholds.split(",")]
        typer.echo(f"| {' | '.join(_HEAD)} |\n|{'---|' * len(_HEAD)}")
        first: Line | None = None
        for line in lines(gold_set, config, ar, tree, trained, shares):
            first = first or line
            rates = compare(gold_set, first.answered, line.answered)
            change = "" if line is first else figure(rates.difference.f1, "+.3f")
            forwards = "" if line.forwards is None else f"{line.forwards:.1f}"
            speed = f"{len(gold_set.rows) / line.seconds:.2f}"
            typer.echo(f"| {line.name} | {figure(rates.b.f1, '.3f')} | {change} | {forwards} | {speed} |")
        typer.echo(f"\n{len(gold_set.rows)} titles of {name}; {batch_size} at a time")
    except (HPDError, UsageError, RunError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    app()
