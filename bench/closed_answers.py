"""Measures what it brings and costs to score closed answers (`engine.max_scored_tokens`): enums and booleans.

    python bench/closed_answers.py                        the sample, as configs/demo.yaml has it
    python bench/closed_answers.py --data DATA            and ExtractGPT's sets, as enums
    python bench/closed_answers.py --data DATA --sets oa-mine --parts 6 --keep runs/closed    one; killed, it goes on

DATA holds {oa-mine,ae-110k}.test.jsonl as published by ExtractGPT. Their attributes are made enums of their most
frequent values; what is labelled otherwise is not counted. The engine is used alone, with the model and adapter of
configs/demo.yaml, and loaded anew for each line: a set and a budget, 0 for greedy decoding under the constraint.

    right      share of labelled closed answers that are exactly the label (null is one), with the 95% interval of a
               bootstrap over products
    change     of that, against the first budget, in points: the same products in both resamples
    tokens     forwarded behind the keys, of all values; `more`: of these, for members that were not the answer
    steps, s   of the engine, and its time, prefill and other attributes included
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import numpy.typing as npt
import typer

from hpd_core import Attribute, CategorySchema, Engine, Record, RecordResult
from hpd_core.decoding import member_bounds
from hpd_core.extraction_future import ExtractionMetrics
from pipelines.catalog.small_catalog import read_records
from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from pipelines.config.shipped_files import shipped_file
from pipelines.quality.gold import GoldProduct, read_gold
from pipelines.quality.scoring import Answer, Comparison, Estimate, estimate, judge
from pipelines.schemas.schema_file import load_schemas

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_CONFIG = Path(__file__).resolve().parent.parent / "configs" / "demo.yaml"
_SETS = ("oa-mine", "ae-110k")
_WARM_UP = 8
_RESAMPLES, _SEED = 1_000, 0
_HEAD = ("set", "budget", "labels", "right", "change", "scored", "beam", "greedy", "tokens", "more", "steps", "s")


@dataclass(frozen=True, slots=True)
class ClosedSet:
    """Records, their schemas, and what is known of each record."""

    name: str
    schemas: Mapping[str, CategorySchema]
    records: Sequence[Record]
    gold: Sequence[GoldProduct]

    def part(self, number: int, count: int) -> ClosedSet:
        """Every so manyth product, with all schemas."""
        return replace(self, records=self.records[number::count], gold=self.gold[number::count])


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
    return ClosedSet(path.name.removesuffix(".test.jsonl"), schemas, records, picked)


@dataclass(frozen=True, slots=True)
class Measured:
    """What an engine says about a set with one budget, and what that cost.

    Attributes:
        labels, right: of each product, closed answers with a label, and those of them that are right.
        choices: how many closed answers were chosen how.
    """

    labels: Sequence[int]
    right: Sequence[int]
    choices: Mapping[str, int]
    value_tokens: int
    scored_tokens: int
    num_steps: int
    seconds: float

    @classmethod
    def of(
        cls, closed: ClosedSet, results: Sequence[RecordResult], metrics: ExtractionMetrics, seconds: float
    ) -> Measured:
        """Judges the results; the values' own first tokens were not forwarded."""
        judged = [
            list(_judged(closed.schemas[product.category], product, result))
            for product, result in zip(closed.gold, results, strict=True)
        ]
        choices = Counter(
            str(result.values[attribute.name].choice)
            for product, result in zip(closed.gold, results, strict=True)
            for attribute in closed.schemas[product.category].attributes
            if attribute.is_closed
        )
        num_values = sum(len(result.values) for result in results)
        return cls(
            labels=[len(each) for each in judged],
            right=[sum(each) for each in judged],
            choices=dict(choices),
            value_tokens=metrics.value_tokens - num_values,
            scored_tokens=metrics.scored_tokens,
            num_steps=metrics.num_steps,
            seconds=seconds,
        )

    @classmethod
    def merge(cls, parts: Sequence[Measured]) -> Measured:
        """Of the products of all parts."""
        return cls(
            labels=[count for part in parts for count in part.labels],
            right=[count for part in parts for count in part.right],
            choices=dict(sum((Counter(part.choices) for part in parts), Counter())),
            value_tokens=sum(part.value_tokens for part in parts),
            scored_tokens=sum(part.scored_tokens for part in parts),
            num_steps=sum(part.num_steps for part in parts),
            seconds=sum(part.seconds for part in parts),
        )

    def row(self, name: str, budget: int, first: Measured) -> tuple[str, ...]:
        """A line of the table; `first`: what it is compared with."""
        right = estimate(self.share, self.resampled)
        change = estimate(self.share - first.share, self.resampled - first.resampled)
        return (
            *(name, str(budget), str(sum(self.labels)), _shown(right, ""), _shown(change, "+")),
            *(str(self.choices.get(choice, 0)) for choice in ("scored", "beam", "greedy")),
            *(str(self.value_tokens + self.scored_tokens), str(self.scored_tokens)),
            *(str(self.num_steps), f"{self.seconds:.1f}"),
        )

    @property
    def share(self) -> float:
        """Of labelled closed answers, those that are right."""
        return sum(self.right) / sum(self.labels)

    @property
    def resampled(self) -> npt.NDArray[np.float64]:
        """The same of products drawn again; of as many products the same are drawn."""
        drawn = np.random.default_rng(_SEED).integers(len(self.labels), size=(_RESAMPLES, len(self.labels)))
        found: npt.NDArray[np.float64] = np.array(self.right)[drawn].sum(axis=1) / np.array(self.labels)[drawn].sum(1)
        return found


def _judged(schema: CategorySchema, product: GoldProduct, result: RecordResult) -> Iterator[bool]:
    """Of each closed answer with a label whether it is right."""
    for attribute in schema.attributes:
        gold, value = product.values.get(attribute.name), result.values[attribute.name]
        labels = {form for forms in gold.items for form in forms} if gold else set()
        is_other = attribute.type == "enum" and bool(labels) and labels.isdisjoint(attribute.labels)
        if attribute.is_closed and gold is not None and not is_other:
            outcome = judge(gold, Answer(value.status, value.items), Comparison.EXACT, attribute)
            yield outcome.is_right


def _shown(share: Estimate, sign: str) -> str:
    value, low, high = (f"{100 * number:{sign}.1f}" for number in (share.value, share.low, share.high))
    return f"{value} [{low}, {high}]"


def measure(engine: Callable[[], Engine], closed: ClosedSet) -> Measured:
    """Extracts what is asked."""
    running = engine()
    started = time.perf_counter()
    future = running.submit(closed.records, closed.schemas)
    results = future.result()
    return Measured.of(closed, results, future.metrics, time.perf_counter() - started)


@contextmanager
def engine_of(config: JobConfig, closed: ClosedSet, budget: int) -> Iterator[Callable[[], Engine]]:
    """Loads the model when it is first asked for; a few of the records run first, so that nothing is compiled later."""
    settings = config.engine.model_copy(update={"max_scored_tokens": budget})
    with ExitStack() as stack:

        @cache
        def engine() -> Engine:
            found = stack.enter_context(Engine.from_pretrained(config.model, settings, config.adapter))
            found.extract(closed.records[:_WARM_UP], closed.schemas)
            return found

        yield engine


def kept(path: Path | None, measured: Callable[[], Measured]) -> Measured:
    """What stands in the file; measured and written there if there is none."""
    if path is not None and path.exists():
        return Measured(**json.loads(path.read_text("utf-8")))
    found = measured()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(found)), encoding="utf-8")
    return found


@app.command()
def main(
    data: Annotated[Path | None, typer.Option(help="folder of ExtractGPT's files")] = None,
    sets: Annotated[str, typer.Option(help="which, with commas between; all by default")] = "",
    budgets: Annotated[str, typer.Option(help="max_scored_tokens, with commas between")] = "0,16,64",
    limit: Annotated[int, typer.Option(help="products of each of ExtractGPT's sets")] = 1_000,
    members: Annotated[int, typer.Option(help="of an enum, at most")] = 100,
    negligible: Annotated[float, typer.Option(help="of the probability, what may stay unknown")] = (
        member_bounds.NEGLIGIBLE
    ),
    dtype: Annotated[str, typer.Option(help="engine.dtype")] = "auto",
    parts: Annotated[int, typer.Option(help="in which each line is measured and kept")] = 1,
    keep: Annotated[Path | None, typer.Option(help="folder for what was measured; what is there is not again")] = None,
) -> None:
    """Prints a table."""
    member_bounds.NEGLIGIBLE = negligible
    config = load_config(
        JobConfig, str(_CONFIG), [f"input.path={shipped_file('sample/products.parquet')}", f"engine.dtype={dtype}"]
    )
    wanted = sets.split(",") if sets else ["sample", *(_SETS if data is not None else ())]
    print(" | ".join(_HEAD))
    for name in wanted:
        if name == "sample":
            closed = sample_set(config)
        elif data is not None and name in _SETS:
            closed = enum_set(data / f"{name}.test.jsonl", members, limit)
        else:
            raise typer.BadParameter(f"{name!r} is none of sample, {', '.join(_SETS)}, or --data is missing")
        first: Measured | None = None
        for budget in map(int, budgets.split(",")):
            place = keep / f"{name}-{members}-{limit}-{negligible}-{dtype}-{budget}" if keep else None
            with engine_of(config, closed, budget) as engine:
                found = Measured.merge(
                    [
                        kept(place and place / f"{number}-of-{parts}.json", partial(measure, engine, part))
                        for number, part in enumerate(closed.part(number, parts) for number in range(parts))
                    ]
                )
            first = first or found
            print(" | ".join(found.row(name, budget, first)), flush=True)


if __name__ == "__main__":
    app()
