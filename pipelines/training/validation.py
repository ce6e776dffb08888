"""Validation by real decoding, with the inference engine and the scorer of evaluations."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import asdict, dataclass, replace
from typing import Any

from hpd_core import AutoregressiveBaseline, CategorySchema, Engine, Record, RecordResult
from hpd_core.extractor import Extractor
from hpd_core.training.loss import attach_training
from pipelines.config.finetuning import FinetuneConfig
from pipelines.quality.scoring import Answer, Counts, count, judge
from pipelines.training.labelled_products import LabelledProduct, is_held_out

_SECONDS_BETWEEN_LOOKS = 0.2
_MEASURED_PRODUCTS = 8
_PRODUCTS_AT_ONCE = 16  # of the baseline


@dataclass(frozen=True, slots=True)
class ValidationScore:
    """Scores over the validation products (see quality/scoring.py).

    `num_answered`: unlabelled attributes that got a value, which is suspicious, but not always wrong.
    `refusals`: reasons why the engine refused products, such as one that is too long.
    """

    precision: float
    recall: float
    f1: float
    hallucination_rate: float | None
    num_products: int
    num_unlabelled: int
    num_answered: int
    products_per_second: float
    refusals: tuple[str, ...]

    def as_metrics(self) -> dict[str, Any]:
        """Return plain data for the log."""
        return asdict(self)


def split_products(
    products: Sequence[LabelledProduct], share: float
) -> tuple[list[LabelledProduct], list[LabelledProduct]]:
    """Return (for training, for validation). Equal texts are on one side, and a product's side never changes."""
    held_out = [is_held_out(product.record, share) for product in products]
    training = [product for product, held in zip(products, held_out, strict=True) if not held]
    return training, [product for product, held in zip(products, held_out, strict=True) if held]


def choose(products: Sequence[LabelledProduct], limit: int) -> list[LabelledProduct]:
    """Return at most `limit` products, always the same ones, ordered by fingerprint."""
    return sorted(products, key=lambda product: product.fingerprint)[:limit]


def seconds_for(products: Sequence[LabelledProduct], score: Callable[[Sequence[LabelledProduct]], object]) -> float:
    """Estimate the seconds to `score` all products from the first few; 0 for none.

    The estimate tends to be too long, since many products at once are decoded faster.
    """
    few = products[:_MEASURED_PRODUCTS]
    if not few:
        return 0.0
    started = time.monotonic()
    score(few)
    return (time.monotonic() - started) * len(products) / len(few)


def _extract(
    engine: Extractor, records: Sequence[Record], schemas: Mapping[str, CategorySchema], is_stopped: Callable[[], bool]
) -> list[RecordResult] | None:
    """Extract and return the results; None if stopped. Pending requests end when the engine is closed."""
    # The engine gives up at its next step what it was given; the baseline ends it.
    size = len(records) if isinstance(engine, Engine) else _PRODUCTS_AT_ONCE
    results: list[RecordResult] = []
    for start in range(0, len(records), size):
        future = engine.submit(records[start : start + size], schemas)
        while not future.done():
            if is_stopped():
                return None
            wait([future], _SECONDS_BETWEEN_LOOKS)
        results += future.result()
    return results


def validate(
    model: Any,
    tokenizer: Any,
    products: Sequence[LabelledProduct],
    config: FinetuneConfig,
    is_stopped: Callable[[], bool] = lambda: False,
) -> ValidationScore | None:
    """Decode and score the products with the current model, and put it back into training mode.

    A product that the engine refuses, because it is too long, counts as wrong.

    Args:
        is_stopped: polled while decoding; once it returns true, decoding is aborted and None is returned.
    """
    model.eval()
    # Two datasets may call two categories alike: here a category's name is its schema's hash.
    schemas = {product.schema.hash: product.schema for product in products}
    records = [replace(product.record, category=product.schema.hash) for product in products]
    started = time.perf_counter()
    counts = Counts()
    num_unlabelled = num_answered = 0
    layout = "stacked" if config.layout == "stacked" else "tree"
    engine_config = config.engine.model_copy(update={"layout": layout})
    kind = AutoregressiveBaseline if config.layout == "ar" else Engine
    try:
        with kind(model, tokenizer, engine_config) as engine:
            results = _extract(engine, records, schemas, is_stopped)
        if results is None:
            return None
        refusals = [result.error for result in results if result.error is not None]
        for product, result in zip(products, results, strict=True):
            answers = {name: Answer(value.status, value.items) for name, value in result.values.items()}
            missing = Answer("not_asked")
            asked = {attribute.name: attribute for attribute in product.schema.attributes}
            counts += count(
                judge(gold, answers.get(name, missing), attribute=asked.get(name), fields=product.record.fields)
                for name, gold in product.gold.values.items()
            )
            others = [answer for name, answer in answers.items() if name not in product.gold.values]
            num_unlabelled += len(others)
            num_answered += sum(answer.status == "value" for answer in others)
    finally:
        attach_training(model)
        model.train()
    seconds = time.perf_counter() - started
    rates = counts.rates
    return ValidationScore(
        rates.precision,
        rates.recall,
        rates.f1,
        counts.hallucination_rate,
        len(products),
        num_unlabelled,
        num_answered,
        len(products) / seconds,
        tuple(refusals),
    )
