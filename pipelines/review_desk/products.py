"""Products as a reviewer sees them: answers from the run's tables, texts from the catalog.

Read in batches and cached, because a request for one product is soon followed by one for the next.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hpd_core import CategorySchema, Record, RecordResult, Value
from pipelines.catalog.shown_text import shown_record
from pipelines.config.catalog_input import HtmlMode
from pipelines.job.answer_rows import find_places
from pipelines.reporting.source_texts import Key, SourceText, Wanted, read_texts
from pipelines.reviewing.layer import Layer, by_answer
from pipelines.reviewing.verdicts import AnswerKey
from pipelines.runs.run import Run

Row = Mapping[str, Any]

_REMEMBERED = 200
_KEY = ("source_file", "source_row")
_PRODUCT_COLUMNS = (*_KEY, "product_id", "category", "input_hash")
_ANSWER_COLUMNS = (
    *(*_KEY, "category", "attribute", "value_index", "value_raw", "value_norm", "norm_status", "unit", "status"),
    *("evidence", "num_tokens", "logprob_mean", "probability", "confidence", "decision", "source"),
)


@dataclass(frozen=True, slots=True)
class ReviewedProduct:
    """A product under review.

    Attributes:
        answers: the model's rows, by attribute.
        fields: its texts; None if the catalog no longer has them.
    """

    product_id: str | None
    category: str
    input_hash: str
    answers: Mapping[str, Sequence[Row]]
    fields: Mapping[str, SourceText] | None

    @property
    def texts(self) -> dict[str, str]:
        """Texts that the model read, by field."""
        return {name: each.text for name, each in (self.fields or {}).items()}


class Products:
    """Reader of products with a cache; thread-safe."""

    def __init__(self, run: Run, layer: Layer) -> None:
        self._run, self._layer = run, layer
        self._found: OrderedDict[Key, ReviewedProduct] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: AnswerKey, shard: int, ahead: Collection[tuple[AnswerKey, int]] = ()) -> ReviewedProduct | None:
        """Return the product of an answer; None if the run has none there.

        Args:
            ahead: answers that are shown next, with their shards; read in the same pass if this one must be read.

        Raises `UsageError` if the run cannot be read.
        """
        place = key.source_file, key.source_row
        with self._lock:
            if place not in self._found:
                self._read({place: shard} | {(each.source_file, each.source_row): where for each, where in ahead})
            found = self._found.get(place)
            if found is not None:
                self._found.move_to_end(place)
            return found

    def _read(self, places: Mapping[Key, int]) -> None:
        by_shard: defaultdict[int, set[Key]] = defaultdict(set)
        for place, shard in places.items():
            if place not in self._found:
                by_shard[shard].add(place)
        products: dict[Key, Row] = {}
        answers: defaultdict[Key, dict[str, Sequence[Row]]] = defaultdict(dict)
        for shard, here in by_shard.items():
            products |= {_place(row): row for row in self._rows("products", shard, _PRODUCT_COLUMNS, here)}
            for key, rows in by_answer(self._rows("attributes", shard, _ANSWER_COLUMNS, here)).items():
                place = key.source_file, key.source_row
                answers[place][key.attribute] = self._layer.model_rows(key, rows)
        wanted = [Wanted(*place, row["category"], row["input_hash"]) for place, row in products.items()]
        texts, _ = read_texts(self._run.plan, self._run.input_settings, wanted)
        for place, row in products.items():
            about = row["product_id"], row["category"], row["input_hash"]
            self._found[place] = ReviewedProduct(*about, answers[place], texts.get(place))
        while len(self._found) > _REMEMBERED + len(places):
            self._found.popitem(last=False)

    def _rows(self, table: str, shard: int, columns: Sequence[str], places: Collection[Key]) -> list[Row]:
        part = self._run.parts.read_one(table, shard, columns)
        numbers = pa.array(sorted({number for _, number in places}), pa.int64())
        near = part.filter(pc.is_in(part["source_row"], numbers)).to_pylist()
        return [row for row in near if _place(row) in places]


def shard_of(run: Run, key: AnswerKey) -> int | None:
    """Return the committed shard that holds a row; None if there is none."""
    for shard in run.plan.shards:
        if shard.id in run.parts.shards and (run.plan.is_clustered or _holds(run, shard.pieces, key)):
            part = run.parts.read_one("products", shard.id, _KEY)
            near = part.filter(pc.equal(part["source_row"], key.source_row))
            if key.source_file in near["source_file"].to_pylist():
                return shard.id
    return None


def places_of_items(
    product: ReviewedProduct, schema: CategorySchema, attribute: str, items: Sequence[str], html: HtmlMode
) -> list[list[dict[str, Any]]] | None:
    """Find each item's places in the text, as in the attribute table; None if the text is not available."""
    if product.fields is None:
        return None
    fields = {name: text.original for name, text in product.fields.items()}
    record = shown_record(Record("", product.category, fields), html)
    value = Value(text="; ".join(items), items=tuple(items), status="value")
    return find_places(record, schema, RecordResult("", product.category, {attribute: value}), html)[attribute]


def _holds(run: Run, pieces: Sequence[Any], key: AnswerKey) -> bool:
    return any(
        piece.start <= key.source_row < piece.stop and run.plan.files[piece.file].name == key.source_file
        for piece in pieces
    )


def _place(row: Row) -> Key:
    return row["source_file"], row["source_row"]
