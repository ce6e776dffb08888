"""Sample of a report: products with their values, the values' places in the text, and gold's verdict on them.

The draw of the sample: least certain products, products with ungrounded or failed values, and random ones.

Categories take turns, so that a small one is seen as well. The same seed draws the same products.
"""

from __future__ import annotations

import bisect
import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from hpd_core import CategorySchema
from pipelines.job.run_plan import Plan
from pipelines.job.source_texts import Key, SourceText, Wanted, cut, marks_of, read_texts
from pipelines.quality.answer_features import answer_probability
from pipelines.quality.gold import GoldProduct
from pipelines.quality.scoring import Answer, judge
from pipelines.reporting.formats import shortened
from pipelines.reporting.sample_facts import (
    FieldText,
    ReplacedAnswer,
    ReportSample,
    SampledProduct,
    SampledValue,
    TextPlace,
)
from pipelines.reporting.table_scan import Pairs, Scored
from pipelines.store.run_tables import Parts
from pipelines.store.tables import stored_evidence
from pipelines.store.verdicts import answer_items

_KEY = ("source_file", "source_row")
_PRODUCT_COLUMNS = (*_KEY, "product_id", "category", "input_hash")
_VALUE_COLUMNS = (
    *(*_KEY, "category", "attribute", "value_index", "value_raw", "status", "num_tokens", "logprob_mean", "evidence"),
    *("value_norm", "value_min", "value_max", "unit", "value_id", "norm_status"),
    *("probability", "confidence", "decision", "source", "replaced"),
)
_MAX_TEXT = 500  # characters of a value; what is longer is no value but what a model wrote without an end

Row = Mapping[str, Any]


class GoldIndex:
    """Gold answers for the run's rows: by id, or by row number if gold has no ids."""

    def __init__(
        self, products: Sequence[GoldProduct], path: str, schemas: Mapping[str, CategorySchema] | None
    ) -> None:
        self._schemas = schemas or {}
        self._name = PurePosixPath(path).name
        self._by_id = {each.product_id: each for each in products if each.product_id is not None}
        self._by_row = {each.row: each for each in products if each.product_id is None}

    def verdict(self, product: Row, items: Sequence[Row]) -> tuple[str | None, bool | None]:
        """Return gold's answer and whether the given answer matches it; (None, None) without a label."""
        found = self._by_id.get(product["product_id"])
        if found is None and PurePosixPath(product["source_file"]).name == self._name:
            found = self._by_row.get(product["source_row"])
        status, name = items[0]["status"], items[0]["attribute"]
        label = found.values.get(name) if found is not None else None
        if found is None or label is None:
            return None, None
        texts, norms = answer_items(items), answer_items(items, "value_norm")
        schema = self._schemas.get(product["category"])
        asked = next((each for each in schema.attributes if each.name == name), None) if schema else None
        outcome = judge(label, Answer(status, texts, norms=norms), attribute=asked, fields=found.fields)
        return shortened(str(label), _MAX_TEXT), outcome.is_right


def build_sample(
    parts: Parts,
    plan: Plan,
    input_settings: Mapping[str, Any],
    drawn: Sequence[DrawnSample],
    seed: int,
    booleans: Pairs,
    gold: GoldIndex | None,
) -> tuple[ReportSample, list[str]]:
    """Return the sample in the order of `drawn`, and notes on texts that cannot be shown."""
    keys = {each.scored[:2] for each in drawn}
    shards = _shards_of(plan, keys)
    products = {_key(row): row for row in parts.rows_of("products", _PRODUCT_COLUMNS, keys, shards)}
    values = parts.answers_of(_VALUE_COLUMNS, keys, shards)
    wanted = [Wanted(*(row[name] for name in (*_KEY, "category", "input_hash"))) for row in products.values()]
    texts, notes = read_texts(plan, input_settings, wanted)
    sampled = []
    for each in drawn:
        key = each.scored[:2]
        if key in products:
            sampled.append(_product(each, products[key], values[key], texts.get(key), booleans, gold))
    return ReportSample(seed, len(sampled), tuple(sampled)), notes


def _product(
    drawn: DrawnSample,
    row: Row,
    values: Mapping[str, Sequence[Row]],
    fields: Mapping[str, SourceText] | None,
    booleans: Pairs,
    gold: GoldIndex | None,
) -> SampledProduct:
    answers = []
    for attribute, items in values.items():
        verdict = gold.verdict(row, items) if gold is not None else (None, None)
        answers += [(_value(item, (row["category"], attribute) in booleans, verdict), item) for item in items]
    answers.sort(key=lambda answer: _doubt(answer[0]))
    shown = None
    if fields is not None:
        marks = marks_of(fields, [map(stored_evidence, item["evidence"] or ()) for _, item in answers])
        shown = tuple(FieldText(name, cut(each.text, marks[name])) for name, each in fields.items() if each.text)
    return SampledProduct(
        source_file=row["source_file"],
        source_row=row["source_row"],
        product_id=row["product_id"],
        category=row["category"],
        why=drawn.why,
        lowest=drawn.scored.lowest if math.isfinite(drawn.scored.lowest) else None,
        values=tuple(value for value, _ in answers),
        fields=shown,
    )


def normal_form(item: Row) -> str | None:
    """Return a value in its attribute's own form, with its unit; None if that adds nothing to the raw value."""
    low, high = item["value_min"], item["value_max"]
    if low is not None or high is not None:
        bounds = f"at least {low:g}" if high is None else f"at most {high:g}" if low is None else f"{low:g} to {high:g}"
    else:
        bounds = item["value_norm"]
    if item["norm_status"] != "ok" or bounds is None:
        return None
    text = f"{bounds} {item['unit']}" if item["unit"] else bounds
    return None if text == item["value_raw"] else shortened(text, _MAX_TEXT)


_AS_STORED = ("attribute", "status", "confidence", "decision", "source", "norm_status", "value_id")


def _value(item: Row, is_boolean: bool, verdict: tuple[str | None, bool | None]) -> SampledValue:
    evidence = item["evidence"]
    looked_for = item["status"] == "value" and evidence is not None and not is_boolean
    places = tuple(TextPlace(each["field"], each["start"], each["end"], each["match"]) for each in evidence or ())
    return SampledValue(
        **{name: item[name] for name in _AS_STORED},
        text=shortened(item["value_raw"], _MAX_TEXT),
        probability=answer_probability(item),
        places=places if looked_for else None,
        normal=normal_form(item),
        replaced=tuple(
            ReplacedAnswer(
                *(each["source"], each["model_id"], each["status"]),
                shortened(each["value"], _MAX_TEXT),
                each["probability"],
            )
            for each in item["replaced"] or ()
        ),
        gold=verdict[0],
        is_right=verdict[1],
    )


def _doubt(value: SampledValue) -> tuple[bool, float]:
    """Return a sort key: values by ascending certainty, then absent answers likewise."""
    return value.status == "absent", -1.0 if value.certainty is None else value.certainty


def _shards_of(plan: Plan, keys: set[Key]) -> set[int]:
    """Return the ids of the shards that hold these rows."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for name, number in keys:
        numbers[name].append(number)
    return {
        shard.id
        for shard in plan.shards
        for piece in shard.pieces
        if any(piece.start <= number < piece.stop for number in numbers[plan.files[piece.file].name])
    }


def _key(row: Row) -> Key:
    return row["source_file"], row["source_row"]


_MAX_CANDIDATES = 30_000  # over all categories and reasons: some megabytes
_MIN_CANDIDATES = 4


@dataclass(frozen=True, slots=True)
class DrawnSample:
    """A product of the sample and why it is in it."""

    scored: Scored
    why: str


_Ranked = list[tuple[float, float, Scored]]
"""Products by their rank, and by lot among equals; the smallest first."""

# Why -> share of the sample, and the product's rank; None: no candidate.
_REASONS: Mapping[str, tuple[float, Callable[[Scored], float | None]]] = {
    "least certain": (0.4, lambda product: product.lowest if product.lowest < math.inf else None),
    "ungrounded": (0.2, lambda product: -product.ungrounded if product.ungrounded else None),
    "failed": (0.1, lambda product: -product.failed if product.failed else None),
    "random": (0.3, lambda product: 0.0),
}


def draw(products: Iterable[Scored], size: int, seed: int) -> list[DrawnSample]:
    """Draw at most `size` products, returned in order of ascending certainty."""
    best: dict[str, dict[str, _Ranked]] = {why: {} for why in _REASONS}
    categories: set[str] = set()
    for product in products:
        categories.add(product.category)
        capacity = max(_MIN_CANDIDATES, min(size, _MAX_CANDIDATES // (len(_REASONS) * len(categories))))
        tie = _lot(product, seed)
        for why, (_, rank) in _REASONS.items():
            if (value := rank(product)) is not None:
                ranked = best[why].setdefault(product.category, [])
                bisect.insort(ranked, (value, tie, product))
                del ranked[capacity:]  # it shrinks while categories come up
    chosen: dict[Key, DrawnSample] = {}
    for why, (share, _) in _REASONS.items():
        _take(chosen, why, best[why], min(size, len(chosen) + round(share * size)))
    # Fill the rest of the sample at random.
    _take(chosen, "random", best["random"], size)
    return sorted(chosen.values(), key=lambda drawn: (drawn.scored.lowest, drawn.scored[:2]))


def _take(chosen: dict[Key, DrawnSample], why: str, best: Mapping[str, _Ranked], until: int) -> None:
    """Add the best of each category, then the second best of each, and so on."""
    queues = [(scored for *_, scored in best[category]) for category in sorted(best)]
    while queues and len(chosen) < until:
        for queue in list(queues):
            scored = next((each for each in queue if each[:2] not in chosen), None)
            if scored is None:
                queues.remove(queue)
            elif len(chosen) < until:
                chosen[scored[:2]] = DrawnSample(scored, why)


def _lot(product: Scored, seed: int) -> float:
    """Return a number in [0, 1) that depends only on the row and the seed."""
    name = f"{seed}:{product.source_file}:{product.source_row}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=7).digest(), "big") / 2**56
