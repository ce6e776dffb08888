"""Is what accept.precision promises found on products that nothing was learned from?

    python bench/acceptance_backtest.py DATA --cache runs/acceptance
    python bench/acceptance_backtest.py DATA --cache runs/acceptance --write calibration.json

DATA holds {oa-mine,ae-110k}.{train,test}.jsonl as published by ExtractGPT. Every set is decoded once, by the engine
alone, and its judged values are kept in --cache: after that it is seconds of arithmetic. A set's products are dealt
into halves, several times; a calibration is learned from one half and decides the other one. Then the shipped way:
learned from the validation parts of the two training sets, and found on everything else.

The table has a line for each set and precision, all draws together: attributes with a threshold of their own, and with
one together; values that are accepted; of those, how many were right, with a 95% interval (exact, of all draws as if
they were as many values as one draw has); draws in which less was found than promised, and in which significantly less;
attributes, of those with accepted values, that lie significantly below (one-sided 5%, each for itself).
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer

from bench.labelled_sets import SAMPLE, LabelledSet, labelled_set
from hpd_core import Engine, HPDError
from pipelines.confidence.calibration_file import Calibration
from pipelines.confidence.decider import Decider
from pipelines.confidence.labelled_answer import LabelledAnswer
from pipelines.confidence.learning import learn
from pipelines.confidence.precision_bounds import Taken, lower_bound, upper_bound
from pipelines.confidence.reliability import reliability
from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from pipelines.errors import RunError, UsageError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_TESTS = ("oa-mine.test", "ae-110k.test")
_VALIDATION = ("oa-mine.validation", "ae-110k.validation")
_HEAD = (
    *("learned from", "found on", "promised", "attributes own / together", "accepted", "found [95%]"),
    *("draws below / significantly", "attributes below / with accepted"),
)
_CONFIG = Path(__file__).resolve().parent.parent / "configs" / "extractgpt.yaml"
Answers = Sequence[LabelledAnswer]


@dataclass(frozen=True, slots=True)
class Draw:
    """What one calibration promised, and what was found.

    Attributes:
        own, together: attributes promised alone, and together.
        found: the accepted values; `by_attribute` those of each.
        num_values: of the other half, accepted or not.
    """

    own: int
    together: int
    found: Taken
    by_attribute: Mapping[tuple[str, str], Taken]
    num_values: int


def draw(calibration: Calibration, others: Answers, precision: float, pools: bool) -> Draw:
    """Decides `others` by a calibration that has not seen their products."""
    decider = Decider(calibration, precision, pools)
    accepted = defaultdict(list)
    for each in others:
        confidence = calibration.confidence(each.answer)
        if decider.decide(*each.pair, each.answer.status, confidence, each.definition) == "accept":
            accepted[each.pair].append(each.is_right)
    by_attribute = {pair: Taken(len(rights), sum(rights)) for pair, rights in accepted.items()}
    found = Taken(sum(each.num for each in by_attribute.values()), sum(each.right for each in by_attribute.values()))
    own = sum(not each.is_pooled for each in decider.promises.values())
    return Draw(own, len(decider.promises) - own, found, by_attribute, len(others))


def halves(answers: Answers, seed: int) -> tuple[list[LabelledAnswer], list[LabelledAnswer]]:
    """The values dealt into two halves by product."""
    products = sorted({each.product for each in answers})
    random.Random(seed).shuffle(products)
    first = set(products[: len(products) // 2])
    return [each for each in answers if each.product in first], [each for each in answers if each.product not in first]


def line(learned_from: str, found_on: str, precision: float, draws: Sequence[Draw]) -> str:
    """A line of the table."""
    num = sum(each.found.num for each in draws)
    right, values = sum(each.found.right for each in draws), sum(each.num_values for each in draws)
    mean = Taken(round(num / len(draws)), round(right / len(draws)))
    found = f"{right / num:.3f} [{lower_bound(*mean, 0.025):.3f}, {upper_bound(*mean, 0.025):.3f}]" if num else "-"
    with_some = [each for each in draws if each.found.num]
    below = sum(each.found.right < precision * each.found.num for each in with_some)
    far = sum(_is_below(each.found, precision) for each in with_some)
    attributes = [taken for each in draws for taken in each.by_attribute.values()]
    cells = (
        *(learned_from, found_on, f"{precision:g}"),
        f"{_mean(each.own for each in draws):.1f} / {_mean(each.together for each in draws):.1f}",
        *(f"{num / values:.0%}", found),
        f"{below} / {far} of {len(draws)}",
        f"{sum(_is_below(each, precision) for each in attributes)} / {len(attributes)}",
    )
    return f"| {' | '.join(cells)} |"


def _is_below(found: Taken, precision: float) -> bool:
    return upper_bound(*found) < precision


def _mean(numbers: Iterable[int]) -> float:
    known = list(numbers)
    return sum(known) / len(known)


def _print_errors(learned_from: str, calibration: Calibration, others: LabelledSet) -> None:
    """How far off confidences and the model's own probabilities are on a set that nothing was learned from."""
    rights = [each.is_right for each in others.answers]
    errors = [
        reliability(zip(values, rights, strict=True))
        for values in (
            [each.answer.probability or 0.0 for each in others.answers],
            [calibration.confidence(each.answer) or 0.0 for each in others.answers],
        )
    ]
    before, after = (each.ece if each is not None else float("nan") for each in errors)
    typer.echo(
        f"{learned_from} on {others.name} ({others.num_products} products, {len(rights)} values, {sum(rights)} right): "
        f"expected calibration error {before:.3f} -> {after:.3f}"
    )


@app.command()
def main(
    data: Annotated[Path, typer.Argument(help="Folder with the sets' .train.jsonl and .test.jsonl.")],
    cache: Annotated[Path, typer.Option(help="Folder for the judged values; decoded where they are missing.")],
    model: Annotated[str, typer.Option(help="As in a job's configuration.")] = "smollm2",
    adapter: Annotated[str, typer.Option(help="LoRA adapter; '' for none.")] = "adapters/smollm2-generalist",
    precisions: Annotated[str, typer.Option(metavar="P,P,...", help="What is promised.")] = "0.95,0.9,0.8",
    seeds: Annotated[int, typer.Option(min=1, help="Draws of halves.")] = 20,
    pool_rare: Annotated[bool, typer.Option(help="As accept.pool_rare.")] = True,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N products of each set.")] = None,
    write: Annotated[Path | None, typer.Option(help="Write what is learned from the validation parts.")] = None,
) -> None:
    """Compare promised with found precision."""

    def load() -> Engine:
        config = load_config(JobConfig, str(_CONFIG)).engine
        return Engine.from_pretrained(model, config, adapter or None)

    try:
        wanted = [float(each) for each in precisions.split(",")]
        sets = {name: labelled_set(name, data, cache, load, limit) for name in (*_VALIDATION, *_TESTS, SAMPLE)}
        _backtest(sets, wanted, seeds, pool_rare, write)
    except (HPDError, UsageError, RunError, OSError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from None


def _backtest(
    sets: Mapping[str, LabelledSet], precisions: Sequence[float], seeds: int, pools: bool, write: Path | None
) -> None:
    shipped = learn(
        [each for name in _VALIDATION for each in sets[name].answers],
        sets[_VALIDATION[0]].model,
        {"sources": _VALIDATION},
    )
    for name in (*_TESTS, SAMPLE):
        _print_errors("validation parts", shipped, sets[name])
    typer.echo(f"\n| {' | '.join(_HEAD)} |\n|{'---|' * len(_HEAD)}")
    for name in (*_TESTS, SAMPLE):
        dealt = [halves(sets[name].answers, seed) for seed in range(seeds)]
        learned = [(learn(known, sets[name].model), others) for known, others in dealt]
        for precision in precisions:
            draws = [draw(calibration, others, precision, pools) for calibration, others in learned]
            typer.echo(line("half", name, precision, draws))
    for name in (*_TESTS, SAMPLE):
        for precision in precisions:
            typer.echo(line("validation", name, precision, [draw(shipped, sets[name].answers, precision, pools)]))
    if write is not None:
        write.write_bytes(shipped.to_json())
        typer.echo(f"\nwritten: {write}")


if __name__ == "__main__":
    app()
