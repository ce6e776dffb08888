"""Measures what it brings and costs to score closed answers (`engine.max_scored_tokens`): enums and booleans.

    python bench/closed_answers.py                            the sample, as configs/demo.yaml has it
    python bench/closed_answers.py --data DATA --limit 200    and ExtractGPT's sets, as enums

DATA holds {oa-mine,ae-110k}.train.jsonl as published by ExtractGPT. Their attributes are made enums of their most
frequent values; what is labelled otherwise is not counted. The engine is used alone, with the model and adapter of
configs/demo.yaml, and loaded anew for each line: a set and a budget, 0 for greedy decoding under the constraint.

    right      share of labelled closed answers that are exactly the label (null is one)
    tokens     forwarded behind the keys, of all values; `more`: of these, for members that were not the answer
    steps, s   of the engine, and its time, prefill and other attributes included
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer

from hpd_core import Attribute, CategorySchema, Engine, Record, RecordResult
from hpd_core.decoding import member_bounds
from hpd_core.extractor import ExtractionMetrics
from pipelines.catalog.small_catalog import read_records
from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from pipelines.config.shipped_files import shipped_file
from pipelines.quality.gold import GoldProduct, read_gold
from pipelines.quality.scoring import Answer, Comparison, Outcome, judge
from pipelines.schemas.schema_file import load_schemas

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_CONFIG = Path(__file__).resolve().parent.parent / "configs" / "demo.yaml"
_SETS = ("oa-mine", "ae-110k")
_WARM_UP = 8
_HEAD = ("set", "budget", "labels", "right", "scored", "beam", "greedy", "tokens", "more", "steps", "s")


@dataclass(frozen=True, slots=True)
class ClosedSet:
    """Records, their schemas, and what is known of each record."""

    name: str
    schemas: Mapping[str, CategorySchema]
    records: Sequence[Record]
    gold: Sequence[GoldProduct]


def sample_set(config: JobConfig) -> ClosedSet:
    """The sample; all attributes are asked for."""
    schemas = load_schemas(shipped_file("sample/schemas.yaml"))
    gold = {product.product_id: product for product in read_gold(shipped_file("sample/gold.jsonl"), schemas)}
    rows = read_records(config.input, schemas)
    known = [(row.record, gold[row.product_id]) for row in rows if row.product_id in gold]
    pairs = [(record, product) for record, product in known if isinstance(record, Record)]
    return ClosedSet("sample", schemas, [record for record, _ in pairs], [product for _, product in pairs])


def enum_set(path: Path, max_members: int, limit: int) -> ClosedSet:
    """A set of ExtractGPT, its attributes as enums. Raises `UsageError` for a file that is none of its."""
    gold = read_gold(str(path))
    texts = {row: json.loads(line)["input"] for row, line in enumerate(path.read_text("utf-8").split("\n")) if line}
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for product in gold:
        for name, value in product.values.items():
            if len(value.items) == 1:
                counts[product.category, name][value.items[0][0]] += 1
    attributes: dict[str, list[Attribute]] = defaultdict(list)
    for (category, name), found in counts.items():
        if len(found) > 1:
            members = [value for value, _ in found.most_common(max_members)]
            attributes[category].append(Attribute.model_validate({"name": name, "type": "enum", "values": members}))
    schemas = {name: CategorySchema(category=name, attributes=tuple(found)) for name, found in attributes.items()}
    asked = [product for product in gold if product.category in schemas]
    picked = asked[:: max(1, len(asked) // limit)][:limit]
    records = [Record(str(n), product.category, {"title": texts[product.row]}) for n, product in enumerate(picked)]
    return ClosedSet(path.name.removesuffix(".train.jsonl"), schemas, records, picked)


@dataclass(frozen=True, slots=True)
class Measured:
    """What an engine says about a set, and what that cost."""

    results: Sequence[RecordResult]
    metrics: ExtractionMetrics
    seconds: float

    def row(self, closed: ClosedSet, budget: int) -> tuple[str, ...]:
        """A line of the table."""
        outcomes: Counter[bool] = Counter()
        choices: Counter[str | None] = Counter()
        num_values = 0
        for result, product in zip(self.results, closed.gold, strict=True):
            num_values += len(result.values)
            for attribute in closed.schemas[product.category].attributes:
                gold, value = product.values.get(attribute.name), result.values[attribute.name]
                if not attribute.is_closed:
                    continue
                choices[value.choice] += 1
                labels = {form for forms in gold.items for form in forms} if gold else set()
                if gold is None or (attribute.type == "enum" and labels and labels.isdisjoint(attribute.labels)):
                    continue
                outcome = judge(gold, Answer(value.status, value.items), Comparison.EXACT, attribute)
                outcomes[outcome in (Outcome.NN, Outcome.VC)] += 1
        metrics = self.metrics
        fed = metrics.value_tokens - num_values + metrics.scored_tokens
        return (
            *(closed.name, str(budget), str(outcomes.total()), f"{outcomes[True] / outcomes.total():.1%}"),
            *(str(choices[choice]) for choice in ("scored", "beam", "greedy")),
            *(str(fed), str(metrics.scored_tokens), str(metrics.num_steps), f"{self.seconds:.1f}"),
        )


def measure(config: JobConfig, closed: ClosedSet, budget: int) -> Measured:
    """Loads the model, and extracts what is asked; a few of the records first, so that nothing is compiled then."""
    settings = config.engine.model_copy(update={"max_scored_tokens": budget})
    with Engine.from_pretrained(config.model, settings, config.adapter) as engine:
        engine.extract(closed.records[:_WARM_UP], closed.schemas)
        started = time.perf_counter()
        future = engine.submit(closed.records, closed.schemas)
        results = future.result()
        return Measured(results, future.metrics, time.perf_counter() - started)


@app.command()
def main(
    data: Annotated[Path | None, typer.Option(help="folder of ExtractGPT's files")] = None,
    budgets: Annotated[str, typer.Option(help="max_scored_tokens, with commas between")] = "0,8,32,64,256",
    limit: Annotated[int, typer.Option(help="products of each of ExtractGPT's sets")] = 200,
    members: Annotated[int, typer.Option(help="of an enum, at most")] = 100,
    negligible: Annotated[float, typer.Option(help="of the probability, what may stay unknown")] = (
        member_bounds.NEGLIGIBLE
    ),
    dtype: Annotated[str, typer.Option(help="engine.dtype")] = "auto",
) -> None:
    """Prints a table."""
    member_bounds.NEGLIGIBLE = negligible
    config = load_config(
        JobConfig, str(_CONFIG), [f"input.path={shipped_file('sample/products.parquet')}", f"engine.dtype={dtype}"]
    )
    sets = [sample_set(config)]
    if data is not None:
        sets += [enum_set(data / f"{name}.train.jsonl", members, limit) for name in _SETS]
    print(" | ".join(_HEAD))
    for closed in sets:
        for budget in map(int, budgets.split(",")):
            print(" | ".join(measure(config, closed, budget).row(closed, budget)), flush=True)


if __name__ == "__main__":
    app()
