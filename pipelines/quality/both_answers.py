"""Answers of two models for the same products, from a run in which the larger one was asked again for everything."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hpd_core import RecordResult, Value
from pipelines.config.extraction import JobConfig
from pipelines.errors import UsageError
from pipelines.quality.gold import read_gold
from pipelines.quality.run_answers import RowKey, RunProduct, read_run
from pipelines.quality.scoring import Answer, AnswerOutcome, judge
from pipelines.store.no_run import read_schemas
from pipelines.store.run_tables import Parts, published_tables

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


@dataclass(frozen=True, slots=True)
class Standing:
    """The merged answers of a record.

    Attributes:
        result: for each attribute the valid answer of the last model asked.
        asked: attributes that the larger model was asked, with the confidence of their first answer; None: unknown.
        replaced: attributes with the larger model's answer, with the answer it replaced; None if the first model failed
            on the record.
        seconds: the larger model's engine seconds for this record alone; None without such a model.
    """

    result: RecordResult
    asked: Mapping[str, float | None] = field(default_factory=dict)
    replaced: Mapping[str, Value | None] = field(default_factory=dict)
    seconds: float | None = None


def standing(first: RecordResult, second: RecordResult | None, asked: Mapping[str, float | None]) -> Standing:
    """Merge the first model's answers with the larger one's (None: it was not asked, or gave up).

    If the larger model failed on the record, or has no answer to an attribute (truncated, no valid value), the first
    model's answer stands.
    """
    if second is None or second.error is not None:
        return Standing(first, asked, seconds=second.engine_seconds if second is not None else 0.0)
    if first.error is not None:
        result = replace(second, engine_seconds=first.engine_seconds)
        return Standing(result, asked, dict.fromkeys(second.values), second.engine_seconds)
    before = first.values
    taken = {name: value for name, value in second.values.items() if _takes_place(value, before.get(name))}
    result = replace(first, values={**before, **taken})
    return Standing(result, asked, {name: before.get(name) for name in taken}, second.engine_seconds)


def _takes_place(value: Value, before: Value | None) -> bool:
    return is_answer(value.status) or before is None or not is_answer(before.status)


def replaced_answer(value: Value | None, engine: Mapping[str, Any], confidence: float | None) -> dict[str, Any]:
    """Return the answer of the model that `engine` describes, for the table's `replaced`; an error for None."""
    model = {name: engine[name] for name in ("model_id", "adapter_revision")}
    if value is None:
        nothing = dict.fromkeys(("value", "logprob_mean", "probability", "confidence"))
        return {"source": "model", **model, "status": "error", **nothing}
    return {
        "source": "model",
        **model,
        "status": value.status,
        "value": value.text if value.status == "value" else None if value.status == "absent" else value.raw or None,
        "logprob_mean": value.logprob_mean,
        "probability": own_probability(value),
        "confidence": confidence,
    }


def count_asked(stood: Iterable[Standing]) -> dict[str, int]:
    """Count a shard's answers in the second pass.

    Of `answers` in all, `asked` were asked again, in `products`. Of those, `replaced` are now the larger model's, and
    `changed` of these differ from before. `kept` are unchanged, because the larger model had no answer.
    """
    counts: Counter[str] = Counter(answers=0, products=0, asked=0, replaced=0, changed=0)
    for one in stood:
        values = one.result.values
        counts["answers"] += len(values)
        counts["products"] += bool(one.asked)
        counts["asked"] += len(one.asked)
        counts["replaced"] += len(one.replaced)
        counts["changed"] += sum(
            old is None or (old.status, old.items) != (values[name].status, values[name].items)
            for name, old in one.replaced.items()
        )
    return {**counts, "kept": counts["asked"] - counts["replaced"]}


ALL = 1.0
"""Threshold at which every answer is asked again."""

_NO_ANSWER = ("truncated", "invalid", "error")


def is_answer(status: str) -> bool:
    """Return whether the model answers: a value, or that the text states none."""
    return status not in _NO_ANSWER


def own_probability(value: Value) -> float | None:
    """Return the model's own probability of the answer, else the product of its tokens' probabilities."""
    if value.probability is not None or value.logprob_mean is None:
        return value.probability
    return math.exp(value.num_tokens * value.logprob_mean)


def sureness(status: str, confidence: float | None, probability: float | None) -> float:
    """Return how sure an answer is, from 0 to 1: its confidence, else the model's own probability.

    A failed answer (truncated, no valid value) has 0, whatever its tokens' probability.
    """
    if not is_answer(status):
        return 0.0
    return next((each for each in (confidence, probability) if each is not None), 0.0)


def certainty(value: Value, confidence: float | None) -> float:
    """Return the `sureness` of an engine's answer."""
    return sureness(value.status, confidence, own_probability(value))


def is_doubtful(sure: float, below: float) -> bool:
    """Return whether an answer of that certainty is asked again."""
    return sure < below or below >= ALL


def doubtful(result: RecordResult, confidences: Mapping[str, float | None], below: float) -> dict[str, float | None]:
    """Return the attributes to ask again, with the confidence of their current answers.

    Args:
        confidences: confidences by attribute; None or missing: unknown.
    """
    return {
        name: confidences.get(name)
        for name, value in result.values.items()
        if is_doubtful(certainty(value, confidences.get(name)), below)
    }


def larger_model(config: JobConfig) -> JobConfig:
    """Replace model, adapter, engine and actors by the larger model's. Raises `ValueError` without a cascade."""
    cascade = config.cascade
    if cascade is None:
        raise ValueError("the job has no cascade")
    changes = {"model": cascade.model, "adapter": cascade.adapter, "engine": cascade.engine, "actors": cascade.actors}
    return config.model_copy(update={**changes, "cascade": None})
