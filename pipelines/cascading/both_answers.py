"""Answers of two models for the same products, from a run in which the larger one was asked again for everything."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.cascading.doubt import sureness
from pipelines.errors import UsageError
from pipelines.quality.gold import read_gold
from pipelines.quality.run_answers import RowKey, RunProduct, read_run
from pipelines.quality.scoring import Answer, AnswerOutcome, judge
from pipelines.reviewing.run_tables import Parts, published_tables
from pipelines.store.asked_schemas import read_schemas

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

NEVER = math.inf
"""Certainty of an answer that no threshold would ask again, because it was carried over or the larger model failed."""

_COLUMNS = ("source_file", "source_row", "attribute", "value_index", "num_tokens", "replaced")


@dataclass(frozen=True, slots=True)
class AskedAnswer:
    """An answer of the first model that the larger one was asked again.

    Attributes:
        certainty: value that a threshold is compared with.
        num_tokens: number of tokens of the larger model's answer.
    """

    certainty: float
    num_tokens: int


def asked_answers(run: Parts) -> dict[RowKey, list[AskedAnswer]]:
    """Return the answers that were asked again, by product. Raises `UsageError` if the run cannot be read."""
    found: defaultdict[RowKey, list[AskedAnswer]] = defaultdict(list)
    for file, row, _, index, num_tokens, replaced in run.rows("attributes", _COLUMNS):
        if index == 0 and (before := _before(replaced)) is not None:
            found[RowKey(file, row)].append(AskedAnswer(_certainty(before), num_tokens))
    return dict(found)


@dataclass(frozen=True, slots=True)
class BothJudged:
    """Every labelled attribute of the products, judged twice.

    Attributes:
        products: int64 [labels], the product's index, from 0.
        first, larger: int64 [labels], the `AnswerOutcome` of each model's answer; equal if there is only one.
        certainty: float64 [labels], of the first model's answer.
        num_products: number of judged products.
    """

    products: Integers
    first: Integers
    larger: Integers
    certainty: Floats
    num_products: int


def judge_both(uri: str, gold_path: str) -> BothJudged:
    """Judge both models' answers. Raises `UsageError` if gold file or run cannot be read, or do not belong together."""
    run = published_tables(uri)
    gold = read_gold(gold_path, read_schemas(run.folder))
    products, _ = read_run(uri, gold, gold_path)
    before = _first_answers(run, {product.key: product for product in products.values()})
    judged: list[tuple[int, int, int, float]] = []
    for position, index in enumerate(sorted(products)):
        product, fields = products[index], gold[index].fields
        for name, value in gold[index].values.items():
            attribute, answer = product.asked.get(name), product.answer(name)
            larger = int(judge(value, answer, attribute=attribute, fields=fields))
            first, certainty = before.get((product.key, name), (answer, NEVER))
            judged.append((position, int(judge(value, first, attribute=attribute, fields=fields)), larger, certainty))
    if not judged:
        raise UsageError(f"{gold_path} labels no attribute of the products in {uri}")
    columns = list(zip(*judged, strict=True))
    numbers = [np.array(column, dtype=np.int64) for column in columns[:3]]
    return BothJudged(numbers[0], numbers[1], numbers[2], np.array(columns[3], dtype=np.float64), len(products))


def _first_answers(run: Parts, products: Mapping[RowKey, RunProduct]) -> dict[tuple[RowKey, str], tuple[Answer, float]]:
    """Return the answers that the larger model's replaced, and their certainty."""
    found = {}
    for file, row, name, index, _, replaced in run.rows("attributes", _COLUMNS):
        key = RowKey(file, row)
        if index != 0 or key not in products or (before := _before(replaced)) is None:
            continue
        attribute = products[key].asked.get(name)
        is_list = attribute is not None and attribute.multiple
        items = _items(before["value"], is_list=is_list) if before["status"] == "value" else ()
        found[key, name] = Answer(before["status"], items), _certainty(before)
    return found


def _before(replaced: Sequence[Mapping[str, Any]] | None) -> Mapping[str, Any] | None:
    """Return the first model's answer among the replaced ones; a person's correction comes after it."""
    return next((each for each in replaced or () if each["source"] == "model"), None)


def _items(text: str | None, *, is_list: bool) -> tuple[str, ...]:
    if text is None:
        return ()
    return tuple(text.split("; ")) if is_list else (text,)


def _certainty(before: Mapping[str, Any]) -> float:
    return sureness(before["status"], before["confidence"], before["probability"])


def outcome_counts(judged: BothJudged, outcomes: Integers) -> Integers:
    """Count the outcomes of each product: int64 [products, outcomes]."""
    counts = np.zeros((judged.num_products, len(AnswerOutcome)), dtype=np.int64)
    np.add.at(counts, (judged.products, outcomes), 1)
    return counts
