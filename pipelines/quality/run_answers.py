"""Reader of a run's tables: its answers for the products of a gold file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, NamedTuple, cast, get_args

from hpd_core import Attribute
from hpd_core.text.near_names import difference, fold_name
from pipelines.confidence.answer_features import answer_probability
from pipelines.errors import UsageError
from pipelines.quality.gold import GoldProduct
from pipelines.quality.scoring import Answer, AnswerStatus
from pipelines.reviewing.layer import Layer
from pipelines.reviewing.run_tables import Parts, published_tables
from pipelines.reviewing.verdicts import AnswerKey
from pipelines.store.asked_schemas import read_schemas
from pipelines.store.ledger import MANIFEST_NAME

_KEY_COLUMNS = ("source_file", "source_row")
_ANSWER_COLUMNS = (
    *(*_KEY_COLUMNS, "category", "attribute", "value_index", "value_raw", "status"),
    *("num_tokens", "logprob_mean", "probability", "confidence", "source"),
)


class RowKey(NamedTuple):
    """Identity of a catalog row. Product ids may be duplicated, this is unique."""

    source_file: str
    source_row: int


@dataclass(slots=True)
class RunProduct:
    """A run's answers for one product by attribute; none if the product is a dead letter.

    `asked`: attributes that the run was asked for, by name, if the run recorded them.
    """

    key: RowKey
    product_id: str | None
    category: str | None
    dead_lettered: bool
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: Mapping[str, Attribute] = field(default_factory=dict)

    def answer(self, attribute: str) -> Answer:
        """Return the run's answer for one attribute; if missing, "error" for a dead letter, else "not_asked"."""
        return self.answers.get(attribute, Answer("error" if self.dead_lettered else "not_asked"))


def read_run(
    uri: str, gold: Sequence[GoldProduct], gold_path: str, reviews: Layer | None = None
) -> tuple[dict[int, RunProduct], list[str]]:
    """Read the run's answers for every gold product in it, by index in `gold`, and notes on the run.

    Args:
        reviews: people's answers, which replace the run's; None: answers as in the tables.
    """
    tables = published_tables(uri)
    products = matched_products(tables, gold, gold_path)
    by_key = {product.key: product for product in products.values()}
    schemas = read_schemas(tables.folder) or {}
    for product in products.values():
        if schema := schemas.get(product.category or ""):
            product.asked = {attribute.name: attribute for attribute in schema.attributes}
    rows: dict[AnswerKey, list[dict[str, Any]]] = {}
    for cells in tables.rows("attributes", _ANSWER_COLUMNS):
        if RowKey(*cells[: len(_KEY_COLUMNS)]) in by_key:
            row = dict(zip(_ANSWER_COLUMNS, cells, strict=True))
            rows.setdefault(AnswerKey(*(row[name] for name in AnswerKey._fields)), []).append(row)
    for key, items in rows.items():
        items.sort(key=lambda row: int(row["value_index"]))
        stands = items if reviews is None else reviews.answer(key, items)
        by_key[RowKey(key.source_file, key.source_row)].answers[key.attribute] = _answer(stands, uri)
    is_finished = tables.folder.exists(MANIFEST_NAME)
    notes = [] if is_finished else [f"{uri} is not finished (it has no manifest.json yet)"]
    return products, notes


def _answer(rows: Sequence[Mapping[str, Any]], uri: str) -> Answer:
    """Merge an answer's rows. Every item's row has the tokens and log-probability of the whole answer."""
    first = rows[0]
    texts = tuple(row["value_raw"] for row in rows if row["status"] == "value" and row["value_raw"] is not None)
    probability = first["probability"]
    if probability is None:
        probability = answer_probability(first["num_tokens"], first["logprob_mean"])
    status = _status(first["status"], uri)
    return Answer(status, texts, probability, first["confidence"], first["source"] == "review")


def _status(text: str, uri: str) -> AnswerStatus:
    if text not in get_args(AnswerStatus):
        raise UsageError(f"{uri}: status {text!r} is none of {', '.join(get_args(AnswerStatus))}")
    return cast(AnswerStatus, text)


def _read_products(tables: Parts) -> Iterator[RunProduct]:
    """Yield extracted products, then dead-lettered ones."""
    for table in ("products", "dead_letter"):
        for file, row, product_id, category in tables.rows(table, (*_KEY_COLUMNS, "product_id", "category")):
            yield RunProduct(RowKey(file, row), product_id, category, table == "dead_letter")


def matched_products(tables: Parts, gold: Sequence[GoldProduct], gold_path: str) -> dict[int, RunProduct]:
    """Return the run's product for every gold product in it, by index in `gold`; without answers.

    Raises `UsageError` if there is none, or one does not fit.
    """
    return _match(_read_products(tables), gold, gold_path, tables.folder.uri)


def _match(
    products: Iterable[RunProduct], gold: Sequence[GoldProduct], gold_path: str, uri: str
) -> dict[int, RunProduct]:
    """Match the run's products to gold products: by id, or by row if gold has no ids."""
    by_id = {product.product_id: index for index, product in enumerate(gold) if product.product_id is not None}
    by_row = {product.row: index for index, product in enumerate(gold) if product.product_id is None}
    gold_name = PurePosixPath(gold_path).name
    matched: dict[int, RunProduct] = {}
    source_files: set[str] = set()
    for product in products:
        source_files.add(product.key.source_file)
        index = None if product.product_id is None else by_id.get(product.product_id)
        if index is None and PurePosixPath(product.key.source_file).name == gold_name:
            index = by_row.get(product.key.source_row)
        if index is None:
            continue
        if index in matched and matched[index].key != product.key:
            rows = " and ".join(
                f"{each.key.source_file} row {each.key.source_row}" for each in (matched[index], product)
            )
            raise UsageError(
                f"{gold[index].place_in(gold_path)}: {gold[index].name} is two rows of {uri}: {rows}; nobody can tell "
                "which of them was labelled: leave the line out"
            )
        _check_category(product, gold[index], gold_path, uri)
        matched.setdefault(index, product)
    if not matched:
        raise UsageError(_nothing_matched(gold_path, uri, source_files, bool(by_row)))
    return matched


def _check_category(product: RunProduct, gold: GoldProduct, gold_path: str, uri: str) -> None:
    if product.category is not None and product.category != gold.category:
        if fold_name(product.category) == fold_name(gold.category):
            reason = f"they differ in {difference(product.category, gold.category)}; write both the same way"
        else:
            reason = "the gold file does not belong to this run"
        raise UsageError(
            f"{gold.place_in(gold_path)}: {gold.name} is of category {gold.category!r} here and "
            f"{product.category!r} in {uri}; {reason}"
        )


def _nothing_matched(gold_path: str, uri: str, source_files: Iterable[str], by_row: bool) -> str:
    read = ", ".join(sorted(source_files)) or "nothing"
    reason = "its lines have no ids, so the run must have read this very file" if by_row else "no product id is in both"
    return f"{gold_path} does not belong to {uri}: {reason} (the run read {read})"
