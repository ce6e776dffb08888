"""One pass over products, dead letters and attributes: sums by category, and the scores for drawing the sample.

Memory grows with the number of categories, not with the number of products.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hpd_core import ErrorCode
from pipelines.reporting.formats import shortened
from pipelines.reporting.report_facts import DeadExample, DeadReason
from pipelines.store.run_tables import Parts

DOUBTFUL = 0.5
"""Certainty below which a value is more likely wrong than right."""

_ATTRIBUTE_COLUMNS = (
    *("source_file", "source_row", "category", "attribute", "value_index", "status"),
    *("num_tokens", "logprob_mean", "evidence", "probability", "confidence", "decision", "source"),
)

Pairs = Set[tuple[str, str]]


class Scored(NamedTuple):
    """Scores of a product for drawing the sample. `lowest`: lowest certainty of its values; infinite if unknown."""

    source_file: str
    source_row: int
    category: str
    lowest: float
    ungrounded: int
    failed: int


@dataclass(slots=True)
class CategorySums:
    """Counts of a category.

    Attributes:
        engine_seconds: engine seconds; None until a product has some.
        priced: number of products decoded in shards with a price; `usd_weight`: their engine seconds, each times its
            shard's price per hour.
        doubtful, ungrounded: numbers of answers; an answer of several items counts once.
        scored, sought: numbers of answers that could be doubtful (certainty known), or ungrounded (looked for in the
            text, or not needed to be).
    """

    products: int = 0
    carried: int = 0
    dead_letters: int = 0
    engine_seconds: float | None = None
    priced: int = 0
    usd_weight: float | None = None
    doubtful: int = 0
    ungrounded: int = 0
    scored: int = 0
    sought: int = 0


def scan_products(
    parts: Parts, prices: Mapping[int, float], larger_prices: Mapping[int, float] | None = None
) -> dict[str, CategorySums]:
    """Count products and seconds by category, without the counts that need the attributes.

    Args:
        prices: price of an engine hour, by shard; only shards that have one.
        larger_prices: likewise, for the engines of a cascade's larger model.
    """
    sums: defaultdict[str, CategorySums] = defaultdict(CategorySums)
    shards_by_price: defaultdict[tuple[float | None, float | None], set[int]] = defaultdict(set)
    for shard in parts.shards:
        shards_by_price[prices.get(shard), (larger_prices or {}).get(shard)].add(shard)
    columns = ("category", "engine_seconds", "cascade_seconds", "carried_from")
    for both, shards in shards_by_price.items():
        for part in parts.read("products", columns, shards):
            aggregated = part.group_by("category").aggregate(
                [("category", "count"), ("carried_from", "count")]
                + [(name, "sum") for name in ("engine_seconds", "cascade_seconds")]
            )
            for row in aggregated.to_pylist():
                _add_products(sums[row["category"]], row, *both)
    return dict(sums)


def _add_products(
    category: CategorySums, row: Mapping[str, Any], price: float | None, larger_price: float | None
) -> None:
    """Add a shard's products to the category."""
    category.products += row["category_count"]
    category.carried += row["carried_from_count"]
    if price is not None:
        category.priced += row["category_count"] - row["carried_from_count"]
    for name, usd_per_hour in (("engine_seconds_sum", price), ("cascade_seconds_sum", larger_price)):
        if (seconds := row[name]) is not None:
            category.engine_seconds = (category.engine_seconds or 0.0) + seconds
            if usd_per_hour is not None:
                category.usd_weight = (category.usd_weight or 0.0) + seconds * usd_per_hour


def scan_attributes(
    parts: Parts, sums: Mapping[str, CategorySums], answers: AnswerSums, booleans: Pairs
) -> Iterator[Scored]:
    """Yield every product with its scores. Adds doubtful and ungrounded values to `sums`, and all answers to `answers`.

    Args:
        booleans: (category, attribute) of truth values, which are conclusions and stand nowhere in the text.
    """
    for part in parts.read("attributes", _ATTRIBUTE_COLUMNS):
        certainty = certainties(part)
        answers.add(part, certainty)
        rows = _score(part, certainty, booleans)
        for name, counts in rows.by_category():
            if name in sums:
                sums[name].doubtful += counts["doubtful"]
                sums[name].ungrounded += counts["ungrounded"]
                sums[name].scored += counts["scored"]
                sums[name].sought += counts["sought"]
        yield from rows.products()


@dataclass(frozen=True, slots=True)
class _Rows:
    """Attribute rows of a part, (rows,) each. Flags of an answer are set only in its first row."""

    files: Any
    numbers: Any
    categories: Any
    lowest: npt.NDArray[np.float64]
    doubtful: npt.NDArray[np.bool_]
    ungrounded: npt.NDArray[np.bool_]
    scored: npt.NDArray[np.bool_]
    sought: npt.NDArray[np.bool_]
    failed: npt.NDArray[np.bool_]

    def by_category(self) -> Iterator[tuple[str, dict[str, int]]]:
        codes = self.categories.indices.to_numpy()
        for code, name in enumerate(self.categories.dictionary.to_pylist()):
            here = codes == code
            yield (
                name,
                {key: int((getattr(self, key) & here).sum()) for key in ("doubtful", "ungrounded", "scored", "sought")},
            )

    def products(self) -> Iterator[Scored]:
        files, numbers = self.files.indices.to_numpy(), self.numbers
        # A product's rows stand together.
        changes = (np.diff(files) != 0) | (np.diff(numbers) != 0)
        starts = np.concatenate([[0], np.flatnonzero(changes) + 1])
        lowest = np.minimum.reduceat(self.lowest, starts)
        ungrounded = np.add.reduceat(self.ungrounded.astype(np.int64), starts)
        failed = np.add.reduceat(self.failed.astype(np.int64), starts)
        file_names, categories = self.files.dictionary.to_pylist(), self.categories.dictionary.to_pylist()
        category_codes = self.categories.indices.to_numpy()
        for index, start in enumerate(starts.tolist()):
            yield Scored(
                file_names[files[start]],
                int(numbers[start]),
                categories[category_codes[start]],
                float(lowest[index]),
                int(ungrounded[index]),
                int(failed[index]),
            )


def certainties(part: pa.Table) -> npt.NDArray[np.float64]:
    """Return how likely each row's answer is right, (rows,): the confidence, else the model's own probability.

    NaN if neither is known, or if a person gave the answer. Older runs lack the column `probability`: it is computed
    from all tokens.
    """
    exponent = pc.multiply(part.column("num_tokens").cast(pa.float64()), part.column("logprob_mean"))
    known = pc.coalesce(part.column("confidence"), part.column("probability"), pc.exp(exponent))
    found = known.to_numpy(zero_copy_only=False).astype(np.float64)
    return np.where(pc.equal(part.column("source"), "review").fill_null(False).to_numpy(), np.nan, found)


def _score(part: pa.Table, certainty: npt.NDArray[np.float64], booleans: Pairs) -> _Rows:
    files, categories, attributes, statuses = (
        part.column(name).combine_chunks().dictionary_encode()
        for name in ("source_file", "category", "attribute", "status")
    )
    status = np.array(statuses.dictionary.to_pylist(), dtype=object)[statuses.indices.to_numpy()]
    numbers = part.column("source_row").to_numpy()
    # An answer's items stand together, and carry its probability each.
    changes = [np.diff(each) != 0 for each in (files.indices.to_numpy(), numbers, attributes.indices.to_numpy())]
    first = np.concatenate([[True], np.logical_or.reduce(changes)])
    starts = np.flatnonzero(first)

    def of_answers(is_of_item: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return a mask that is True at an answer's first row if `is_of_item` holds for any of its items."""
        found = np.zeros_like(first)
        found[starts] = np.logical_or.reduceat(is_of_item, starts)
        return found

    is_value, is_absent = status == "value", status == "absent"
    places = pc.fill_null(pc.list_value_length(part.column("evidence")), -1).to_numpy()
    concluded = _among(categories, attributes, booleans)
    return _Rows(
        files,
        numbers,
        categories,
        # The probability of "not stated" says how sure the model is of that, not of any value.
        lowest=np.where(is_absent | np.isnan(certainty), np.inf, certainty),
        doubtful=of_answers(is_value & (certainty < DOUBTFUL)),
        ungrounded=of_answers(is_value & (places == 0) & ~concluded),
        scored=of_answers(is_value & ~np.isnan(certainty)),
        sought=of_answers(is_value & ((places >= 0) | concluded)),
        failed=~is_value & ~is_absent,
    )


def _among(categories: Any, attributes: Any, pairs: Pairs) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows whose (category, attribute) is in `pairs`."""
    names, kinds = attributes.dictionary.to_pylist(), categories.dictionary.to_pylist()
    table = np.array([[(kind, name) in pairs for name in names] for kind in kinds], dtype=bool)
    found: npt.NDArray[np.bool_] = table[categories.indices.to_numpy(), attributes.indices.to_numpy()]
    return found


_COLUMNS = ("source_file", "source_row", "product_id", "category", "stage", "error_code", "error", "row_json")
_MAX_EXAMPLES = 3
_MAX_MESSAGES = 10
# Limit of distinct messages counted. If every row has its own, there are none to show.
_MAX_COUNTED = 1000
_MAX_TEXT = 300


def read_dead_letters(parts: Parts, sums: dict[str, CategorySums]) -> tuple[DeadReason, ...]:
    """Return the reasons, most frequent first. Adds the rows of known categories to `sums`."""
    counts: Counter[tuple[str, str]] = Counter()
    messages: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    examples: defaultdict[tuple[str, str], list[DeadExample]] = defaultdict(list)
    for part in parts.read("dead_letter", _COLUMNS):
        for row in part.to_pylist():
            reason = (row["error_code"], row["stage"])
            counts[reason] += 1
            error = shortened(row["error"], _MAX_TEXT)
            if error in messages[reason] or len(messages[reason]) < _MAX_COUNTED:
                messages[reason][error] += 1
            if row["category"] is not None:
                sums.setdefault(row["category"], CategorySums()).dead_letters += 1
            if len(examples[reason]) < _MAX_EXAMPLES:
                place = f"{row['source_file']} row {row['source_row']}"
                source = shortened(row["row_json"], _MAX_TEXT)
                examples[reason].append(DeadExample(place, row["product_id"], row["category"], error, source))
    return tuple(
        DeadReason(
            *(code, stage, count, count / counts.total()),
            _worth_counting(messages[code, stage], code),
            tuple(examples[code, stage]),
        )
        for (code, stage), count in counts.most_common()
    )


def _worth_counting(messages: Counter[str], code: str) -> tuple[tuple[str, int], ...]:
    """Return the most frequent messages that several rows share; for `NO_SCHEMA` also unique ones (category names)."""
    frequent = messages.most_common(_MAX_MESSAGES)
    return tuple((text, count) for text, count in frequent if count > 1 or code == ErrorCode.NO_SCHEMA)


CERTAIN = 0.9
"""Certainty from which a value counts as likely right if no precision is promised."""

_KEYS = ("category", "attribute", "status", "decision", "source")


@dataclass(slots=True)
class AnswerSum:
    """Counts of answers. All but the statuses, `review` and `corrected` count only answers with a value.

    Attributes:
        decided: decided by the run, not by a person; `undecided`: without a decision.
        scored: with a known certainty; `certain`: with one of at least `CERTAIN`.
        calibrated: with a confidence; `expected_right`: sum of the confidences.
        said: given by a person.
    """

    values: int = 0
    absent: int = 0
    failed: int = 0
    accepted: int = 0
    review: int = 0
    decided: int = 0
    undecided: int = 0
    scored: int = 0
    certain: int = 0
    calibrated: int = 0
    expected_right: float = 0.0
    corrected: int = 0
    said: int = 0

    def __iadd__(self, other: AnswerSum) -> AnswerSum:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


@dataclass(slots=True)
class AnswerSums:
    """Answer counts by (category, attribute). Memory grows only with the number of pairs."""

    by_pair: defaultdict[tuple[str, str], AnswerSum] = field(default_factory=lambda: defaultdict(AnswerSum))

    def add(self, part: pa.Table, certainty: npt.NDArray[np.float64]) -> None:
        """Add the rows of a part. `certainty` (rows,): NaN if unknown."""
        table = part.select([*_KEYS, "confidence"]).append_column("certain", [pa.array(certainty >= CERTAIN)])
        table = table.append_column("scored", [pa.array(~np.isnan(certainty))])
        # An answer's further items repeat what its first row says.
        answers = table.filter(pc.equal(part.column("value_index"), 0))
        counted = answers.group_by(list(_KEYS)).aggregate(
            [([], "count_all"), ("certain", "sum"), ("scored", "sum"), ("confidence", "count"), ("confidence", "sum")]
        )
        for row in counted.to_pylist():
            self.by_pair[row["category"], row["attribute"]] += _sum_of(row)

    def total(self) -> AnswerSum:
        """Sum the counts over all pairs."""
        total = AnswerSum()
        for each in self.by_pair.values():
            total += each
        return total


def _sum_of(row: Mapping[str, Any]) -> AnswerSum:
    count, is_value, is_said = row["count_all"], row["status"] == "value", row["source"] == "review"
    return AnswerSum(
        values=count if is_value else 0,
        absent=count if row["status"] == "absent" else 0,
        failed=count if row["status"] not in ("value", "absent") else 0,
        accepted=count if is_value and row["decision"] == "accept" else 0,
        review=count if row["decision"] == "review" else 0,
        decided=count if row["decision"] is not None and not is_said else 0,
        undecided=count if is_value and row["decision"] is None else 0,
        scored=row["scored_sum"] if is_value else 0,
        certain=row["certain_sum"] if is_value else 0,
        calibrated=row["confidence_count"] if is_value else 0,
        expected_right=(row["confidence_sum"] or 0.0) if is_value else 0.0,
        corrected=count if is_said else 0,
        said=count if is_value and is_said else 0,
    )
