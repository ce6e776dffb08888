"""ExtractGPT's test sets for the engine alone, without Ray: read as a job reads them, scored as commands score."""

from __future__ import annotations

import glob
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hpd_core import CategorySchema, Record, RecordResult
from hpd_core.extractor import Extractor
from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from pipelines.profiling.from_gold import schemas_from_gold
from pipelines.quality.gold import GoldProduct, read_gold
from pipelines.quality.run_answers import RowKey, RunProduct
from pipelines.quality.scoring import Answer, Estimate
from pipelines.training.labelled_products import CatalogRow, read_records

CONFIG = Path(__file__).resolve().parent.parent / "configs" / "extractgpt.yaml"


@dataclass(frozen=True, slots=True)
class GoldSet:
    """A test set: its rows as a job reads them, and the gold product of each that has one, by the row's number."""

    name: str
    rows: Sequence[CatalogRow]
    gold: Mapping[int, GoldProduct]
    schemas: Mapping[str, CategorySchema]

    @property
    def records(self) -> dict[int, Record]:
        """By row, those that are records; a category's one after the other, as a job has them: they share a prefix."""
        found = [(row.number, row.record) for row in self.rows if isinstance(row.record, Record)]
        return dict(sorted(found, key=lambda each: each[1].category))


@dataclass(frozen=True, slots=True)
class GoldAnswers:
    """What a variant says about the rows of a set, by their number, and the seconds that it took."""

    products: Mapping[int, RunProduct]
    seconds: float


def read_set(data: Path, name: str, limit: int | None) -> GoldSet:
    """The first `limit` products of a test set, with the schemas of its training set.

    Raises `UsageError` or `RunError` for a file that is missing, unreadable or no gold file.
    """
    test = str(data / f"{name}.test.jsonl")
    schemas = schemas_from_gold(read_gold(str(data / f"{name}.train.jsonl")))
    gold = {product.row: product for product in read_gold(test, schemas)}
    job = load_config(JobConfig, str(CONFIG), [f"input.path={json.dumps(glob.escape(test))}"])
    rows = list(islice(read_records(job.input, schemas), limit))
    return GoldSet(name, rows, {row.number: gold[row.number] for row in rows if row.number in gold}, schemas)


def extract(engine: Extractor, gold_set: GoldSet) -> GoldAnswers:
    """What the engine says of every row; a row that is no record has been given up, as in a job."""
    records = gold_set.records
    started = time.perf_counter()
    results = engine.extract(list(records.values()), gold_set.schemas)
    seconds = time.perf_counter() - started
    found = dict(zip(records, results, strict=True))
    return GoldAnswers({row.number: _product(row, found.get(row.number), gold_set) for row in gold_set.rows}, seconds)


def _product(row: CatalogRow, result: RecordResult | None, gold_set: GoldSet) -> RunProduct:
    key, failed = RowKey(gold_set.name, row.number), result is None or result.error is not None
    category = row.record.category if isinstance(row.record, Record) else None
    product = RunProduct(key, row.product_id, category, failed)
    if category is not None:
        product.asked = {attribute.name: attribute for attribute in gold_set.schemas[category].attributes}
    if result is not None and not failed:
        product.answers = {name: Answer(value.status, value.items) for name, value in result.values.items()}
    return product


def figure(estimate: Estimate, form: str) -> str:
    """A number of a table with its interval; `form` as in format(), such as "+.3f" for differences."""
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"
