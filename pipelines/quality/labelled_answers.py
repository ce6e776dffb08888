"""A run's values with labels from gold or from people: the training data of a calibration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpd_core import Attribute, CategorySchema
from pipelines.confidence.answer_features import definition_of, features_of
from pipelines.confidence.calibration_file import CalibratedModel
from pipelines.confidence.labelled_answer import LabelledAnswer
from pipelines.errors import UsageError
from pipelines.quality.gold import GoldProduct, read_gold
from pipelines.quality.run_answers import RowKey, matched_products
from pipelines.quality.scoring import Answer, AnswerOutcome, judge
from pipelines.reviewing.layer import Layer
from pipelines.reviewing.run_tables import Parts, published_tables
from pipelines.reviewing.verdicts import AnswerKey
from pipelines.store.asked_schemas import read_asked_schemas, read_schemas

Row = Mapping[str, Any]

_COLUMNS = (
    *("source_file", "source_row", "category", "attribute", "value_index", "value_raw", "norm_status", "status"),
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
    labels = {each.key: products[index] for index, each in matched_products(parts, products, gold).items()}
    found: list[LabelledAnswer] = []
    for key, answers in _answers(parts, model, Layer.open(parts.folder, schemas), set(labels)).items():
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
    places = {RowKey(key.source_file, key.source_row) for key in layer.corrections}
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
        items = tuple(row["value_raw"] for row in rows if row["value_raw"] is not None)
        outcome = judge(label, Answer("value", items), attribute=attribute, fields=gold.fields)
        yield _labelled(product, rows, known[name], is_right=outcome is AnswerOutcome.VC)


def _labelled(product: str, rows: Sequence[Row], attribute: Attribute, *, is_right: bool) -> LabelledAnswer:
    return LabelledAnswer(product, definition_of(attribute), features_of(rows[0], attribute, *rows[1:]), is_right)


def _answers(
    parts: Parts, model: CalibratedModel, layer: Layer, keys: set[RowKey]
) -> dict[RowKey, dict[str, Sequence[Row]]]:
    """Return the answers of `model` for these products, by product and attribute, before people's corrections."""
    found: dict[RowKey, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for values in parts.rows("attributes", _COLUMNS):
        row = dict(zip(_COLUMNS, values, strict=True))
        key = RowKey(row["source_file"], row["source_row"])
        if key in keys and not model.differences(CalibratedModel.of(row)):
            found[key][row["attribute"]].append(row)
    models: dict[RowKey, dict[str, Sequence[Row]]] = defaultdict(dict)
    for key, answers in found.items():
        for name, items in answers.items():
            rows = layer.model_rows(AnswerKey(*key, name), sorted(items, key=lambda row: row["value_index"]))
            # What people said of an earlier run, or a column holds, is not the model's answer.
            if rows[0]["source"] in ("model", None):
                models[key][name] = rows
    return models


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
