"""Reader of a run's tables: its answers for the products of a gold file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, NamedTuple, cast, get_args

from hpd_core import Attribute, CategorySchema
from hpd_core.text.near_names import difference, fold_name
from pipelines.errors import UsageError
from pipelines.quality.answer_features import LabelledAnswer, answer_probability, features_of
from pipelines.quality.calibration_file import CalibratedModel
from pipelines.quality.gold import GoldProduct, read_gold
from pipelines.quality.scoring import Answer, AnswerOutcome, AnswerStatus, judge
from pipelines.store.layer import Layer
from pipelines.store.ledger import MANIFEST_NAME
from pipelines.store.no_run import read_asked_schemas, read_schemas
from pipelines.store.run_tables import Parts, Place, published_tables
from pipelines.store.verdicts import AnswerKey, answer_items

_KEY_COLUMNS = ("source_file", "source_row")
_ANSWER_COLUMNS = (
    *(*_KEY_COLUMNS, "category", "attribute", "value_index", "value_raw", "value_norm", "status"),
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
    parts = Parts(tables.folder, tables.shards, reviews)
    for key, answers in parts.answers_of(_ANSWER_COLUMNS, by_key.keys()).items():
        by_key[RowKey(*key)].answers = {name: _answer(rows, uri) for name, rows in answers.items()}
    is_finished = tables.folder.exists(MANIFEST_NAME)
    notes = [] if is_finished else [f"{uri} is not finished (it has no manifest.json yet)"]
    return products, notes


def _answer(rows: Sequence[Mapping[str, Any]], uri: str) -> Answer:
    """Merge an answer's rows. Every item's row has the tokens and log-probability of the whole answer."""
    first = rows[0]
    texts, norms = answer_items(rows), answer_items(rows, "value_norm")
    status, probability = _status(first["status"], uri), answer_probability(first)
    return Answer(status, texts, probability, first["confidence"], first["source"] == "review", norms)


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


Row = Mapping[str, Any]

_COLUMNS = (
    *("source_file", "source_row", "category", "attribute", "value_index", "value_raw", "value_norm", "norm_status"),
    "status",
    *("evidence", "num_tokens", "logprob_mean", "logprob_min"),
    *("model_id", "model_revision", "adapter_revision", "prompt_hash", "input_hash"),
    *("choice", "probability", "margin", "source"),
)


def gold_answers(uri: str, gold: str, model: CalibratedModel) -> list[LabelledAnswer]:
    """Return the values of `model` in the finished run at `uri` that the gold file labels.

    Raises `UsageError` if the gold file does not belong to the run.
    """
    parts = published_tables(uri)
    schemas, asked = _schemas(parts), _asked(parts)
    products = read_gold(gold, schemas)
    labels: dict[Place, GoldProduct] = {
        each.key: products[index] for index, each in matched_products(parts, products, gold).items()
    }
    found: list[LabelledAnswer] = []
    for key, answers in _answers(parts, model, Layer.open(parts.folder, schemas), labels).items():
        label = labels[key]
        now = {each.name: each for each in schemas[label.category].attributes}
        found += judged_answers(_name(answers), answers, now, label, _by_name(asked, label.category))
    return found


def reviewed_answers(uri: str, model: CalibratedModel) -> list[LabelledAnswer]:
    """Return the values of `model` in the finished run at `uri` that people have judged (`hpd review`).

    Raises `UsageError` for a damaged log of reviews.
    """
    parts = published_tables(uri)
    layer, asked = Layer.open(parts.folder, _schemas(parts)), _asked(parts)
    places = {(key.source_file, key.source_row) for key in layer.corrections}
    found = []
    for key, answers in _answers(parts, model, layer, places).items():
        for name, rows in answers.items():
            correction = layer.corrections.get(AnswerKey(*key, name))
            attribute = _by_name(asked, rows[0]["category"]).get(name)
            if correction is None or attribute is None or not correction.is_of(rows):
                continue
            if rows[0]["status"] == "value":
                found.append(_labelled(_name(answers), rows, attribute, is_right=not correction.is_corrected))
    return found


def judged_answers(
    product: str,
    answers: Mapping[str, Sequence[Row]],
    attributes: Mapping[str, Attribute],
    gold: GoldProduct,
    asked: Mapping[str, Attribute] | None = None,
) -> Iterator[LabelledAnswer]:
    """Yield the values of one product that gold labels, judged as `hpd evaluate` does exactly.

    Args:
        product: its name in the result.
        answers: rows of the attribute table by attribute, each with its category.
        attributes: attributes of its schema, for comparing values.
        asked: attributes as the model was asked, if the schema was edited for normalisation since.
    """
    known = attributes if asked is None else asked
    for name, label in gold.values.items():
        rows, attribute = answers.get(name), attributes.get(name)
        if not rows or attribute is None or name not in known or rows[0]["status"] != "value":
            continue
        items, norms = answer_items(rows), answer_items(rows, "value_norm")
        outcome = judge(label, Answer("value", items, norms=norms), attribute=attribute, fields=gold.fields)
        yield _labelled(product, rows, known[name], is_right=outcome is AnswerOutcome.VC)


def _labelled(product: str, rows: Sequence[Row], attribute: Attribute, *, is_right: bool) -> LabelledAnswer:
    return LabelledAnswer(product, attribute.definition, features_of(rows[0], attribute, *rows[1:]), is_right)


def _answers(
    parts: Parts, model: CalibratedModel, layer: Layer, places: Collection[Place]
) -> dict[Place, dict[str, Sequence[Row]]]:
    """Return the answers of `model` for these products, by product and attribute, before people's corrections."""
    found: dict[Place, dict[str, Sequence[Row]]] = defaultdict(dict)
    for place, answers in parts.answers_of(_COLUMNS, places).items():
        for name, items in answers.items():
            if model.differences(CalibratedModel.of(items[0])):
                continue
            rows = layer.model_rows(AnswerKey(*place, name), items)
            # What people said of an earlier run, or a column holds, is not the model's answer.
            if rows[0]["source"] in ("model", None):
                found[place][name] = rows
    return found


def _name(answers: Mapping[str, Sequence[Row]]) -> str:
    """Return one name for products of equal texts, so that they are never on both sides of a split."""
    return str(next(iter(answers.values()))[0]["input_hash"])


def _schemas(parts: Parts) -> Mapping[str, CategorySchema]:
    if (schemas := read_schemas(parts.folder)) is None:
        place = parts.folder.uri
        raise UsageError(f"{place} does not say what it asked for (it has no _schemas.json); run it again")
    return schemas


def _asked(parts: Parts) -> Mapping[str, CategorySchema]:
    """Return the schemas that the model was asked, even if values were re-normalised later.

    A promise holds only for them.
    """
    return read_asked_schemas(parts.folder) or _schemas(parts)


def _by_name(schemas: Mapping[str, CategorySchema], category: str) -> dict[str, Attribute]:
    schema = schemas.get(category)
    return {each.name: each for each in schema.attributes} if schema is not None else {}
