"""Products for a judge: drawn from a run, with the text that the model read and its answers."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpd_core import Attribute
from pipelines.errors import UsageError
from pipelines.evaluating.answer_changes import wilson
from pipelines.evaluating.questions import RIGHT, Class, Values
from pipelines.job.run import Run
from pipelines.job.source_texts import Wanted, read_texts
from pipelines.quality.run_answers import RowKey
from pipelines.quality.scoring import Estimate
from pipelines.store.corrections import kappa
from pipelines.store.verdicts import answer_items

_PLACE = ("source_file", "source_row")
_ANSWERS = (*_PLACE, "category", "attribute", "value_index", "value_raw", "status")


@dataclass(frozen=True, slots=True)
class JudgedProduct:
    """A product, its text and its answers.

    Attributes:
        fields: the text as the model read it.
        attributes: the attributes that were asked for.
        values: values by attribute, as the model wrote them: a text, several for a list, or null (also if failed).
        failed: attributes whose answer was truncated, invalid or an error.
    """

    key: RowKey
    product_id: str
    category: str
    fields: dict[str, str]
    attributes: tuple[Attribute, ...]
    values: Values
    failed: frozenset[str]


@dataclass(slots=True)
class DrawnProducts:
    """Result of a draw.

    Attributes:
        num_products: number of products in the run, or among those to draw from.
        without_text: ids of drawn products that cannot be judged, because their text cannot be read back.
        notes: reasons for that.
    """

    products: list[JudgedProduct] = field(default_factory=list)
    num_products: int = 0
    without_text: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, order=True)
class _Row:
    """A candidate for the draw; the smallest ranks are drawn."""

    rank: str
    shard: int
    key: RowKey
    product_id: str
    category: str
    input_hash: str


def draw_products(side: Run, limit: int | None, seed: int, among: Collection[RowKey] | None = None) -> DrawnProducts:
    """Draw at most `limit` products of the run by a hash of seed and row; a larger draw holds the smaller one.

    `among`: only these. Raises `UsageError` if parts of the run cannot be read, or no product's text can.
    """
    drawn = DrawnProducts()

    def rows() -> Iterator[_Row]:
        for row in _rows(side, seed, among):
            drawn.num_products += 1
            yield row

    chosen = sorted(rows()) if limit is None else heapq.nsmallest(limit, rows())
    wanted = [Wanted(*row.key, row.category, row.input_hash) for row in chosen]
    texts, drawn.notes = read_texts(side.plan, side.input_settings, wanted)
    drawn.without_text = [row.product_id for row in chosen if row.key not in texts]
    with_text = [row for row in chosen if row.key in texts]
    if chosen and not with_text:
        why = " ".join(drawn.notes)
        raise UsageError(f"a judge reads what the model read, and no product's text can be read back: {why}")
    answers = side.reviewed.answers_of(_ANSWERS, {row.key for row in with_text}, {row.shard for row in with_text})
    for row in with_text:
        fields = {name: text.text for name, text in texts[row.key].items()}
        drawn.products.append(_product(side, row, fields, answers[row.key]))
    return drawn


def _rows(side: Run, seed: int, among: Collection[RowKey] | None) -> Iterator[_Row]:
    columns = [*_PLACE, "product_id", "category", "input_hash"]
    for shard in side.shards:
        table = side.read("products", shard, columns)
        for file, number, product_id, category, digest in zip(*(each.to_pylist() for each in table), strict=True):
            key = RowKey(file, number)
            if among is None or key in among:
                rank = hashlib.md5(f"{seed}|{file}|{number}".encode()).hexdigest()
                yield _Row(rank, shard, key, product_id, category, digest)


def _product(
    side: Run, row: _Row, fields: dict[str, str], by_attribute: Mapping[str, Sequence[dict[str, Any]]]
) -> JudgedProduct:
    schema = (side.schemas or {}).get(row.category)
    known = {each.name: each for each in schema.attributes} if schema is not None else {}
    # In the order of the list that the model was asked with.
    names = [*(name for name in known if name in by_attribute), *(name for name in by_attribute if name not in known)]
    attributes = [known.get(name) or Attribute(name=name) for name in names]
    values = {each.name: _value(by_attribute[each.name], each.multiple) for each in attributes}
    failed = frozenset(name for name in names if by_attribute[name][0]["status"] not in ("value", "absent"))
    return JudgedProduct(row.key, row.product_id, row.category, fields, tuple(attributes), values, failed)


def _value(lines: Sequence[dict[str, Any]], is_list: bool) -> str | list[str] | None:
    texts = list(answer_items(lines))
    return None if not texts else texts if is_list or len(texts) > 1 else texts[0]


Answers = Mapping[RowKey, Mapping[str, Class | None]]


@dataclass(frozen=True, slots=True)
class Pair:
    """Number of answers with this verdict by the judge and that one by exact match."""

    judge: str
    other: str
    number: int


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """Agreement of the judge with exact match.

    Attributes:
        share: share of equally judged answers, with its 95% interval (Wilson's, as if answers of one product were
            independent). None without answers.
        kappa: Cohen's kappa: 1 full agreement, 0 chance agreement; None if chance alone would always agree.
        pairs: answers by both judgements, most frequent first.
    """

    num_answers: int
    share: Estimate | None
    kappa: float | None
    pairs: Sequence[Pair]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> JudgeAgreement:
        """Compute the agreement on answers judged twice."""
        counts = Counter(pairs)
        number = counts.total()
        if not number:
            return cls(0, None, None, ())
        alike = sum(count for (first, second), count in counts.items() if first == second) / number
        found = [Pair(*pair, count) for pair, count in counts.most_common()]
        return cls(number, wilson(alike, number), kappa(counts), found)


def with_exact_match(classes: Answers, exact: Mapping[tuple[RowKey, str], bool]) -> JudgeAgreement:
    """Compare the judge with exact match, right or wrong, on the answers that gold labels and the judge decides."""
    return JudgeAgreement.of(
        (_word(found in RIGHT), _word(exact[key, name]))
        for key, answers in classes.items()
        for name, found in answers.items()
        if found is not None and (key, name) in exact
    )


def _word(is_right: bool) -> str:
    return "right" if is_right else "wrong"
