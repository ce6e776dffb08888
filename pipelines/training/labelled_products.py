"""Labelled products from gold files: what is taught, what is not, and why not. Too long ones: step_planner.py."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hpd_core import CategorySchema, Record
from hpd_core.text.near_names import NearNames, near_names
from hpd_core.text.numbers import is_undecided
from hpd_core.text.template import render_answer_line
from hpd_core.text.values import parse_value
from hpd_core.training.examples import ExampleBuilder
from hpd_core.types import Attribute
from pipelines.catalog.finding import find_files
from pipelines.catalog.input_files import scan_sources
from pipelines.catalog.readers import read_piece
from pipelines.catalog.rows import RowRefusal, default_id, row_id
from pipelines.catalog.sharding import RowRange
from pipelines.config.catalog_input import InputConfig
from pipelines.config.finetuning import DatasetConfig, LabelPolicy
from pipelines.config.schema_file import load_schemas
from pipelines.errors import UsageError
from pipelines.normalising.stated_numbers import label_numbers
from pipelines.quality.gold import GoldProduct, read_gold
from pipelines.quality.gold_split import fingerprint
from pipelines.quality.scoring import fold, words_pattern

Items = Sequence[str] | None
"""Label of an attribute; None: labelled absent."""
_NO_ANSWERS = {
    "boolean": "not true or false",
    "enum": "not one of the schema's values",
    "number": "not a number, not in the attribute's unit, or to be read in two ways (write 1,500 as 1500 or 1.5)",
}
"""Type of an attribute -> why a label cannot be an answer to it."""


@dataclass(frozen=True, slots=True)
class LabelledProduct:
    """Labelled product.

    Attributes:
        gold: product of the gold file; validation scores against it.
        answers: attribute -> items.
        assumed_absent: unlabelled attributes that are taken for absent.
        known: attribute -> pattern of all values that products of this schema are labelled with, as whole words of
            folded text. An attribute without values has no entry.
    """

    record: Record
    schema: CategorySchema
    gold: GoldProduct
    answers: Mapping[str, Items]
    assumed_absent: Sequence[str]
    known: Mapping[str, re.Pattern[str]]

    @property
    def fingerprint(self) -> int:
        """Hash of the product's text, see `fingerprint`."""
        return fingerprint(self.record.category, self.record.fields)


def is_held_out(record: Record, share: float) -> bool:
    """Return whether the record is for validation. It depends only on the record's text and the share."""
    return fingerprint(record.category, record.fields) < int(share * 2**64)


def load_products(
    datasets: Iterable[DatasetConfig], labels: LabelPolicy, builder: ExampleBuilder, validation_share: float = 0.0
) -> tuple[list[LabelledProduct], DataReport]:
    """Load the labelled products of all datasets, including those for validation.

    Raises `UsageError` for files that cannot be read or do not belong together. Raises it also for attributes that are
    not in the schema, unless these are skipped (`labels.unknown_attributes`).
    """
    report = DataReport()
    read = [(dataset, load_schemas(dataset.schemas)) for dataset in datasets]
    records = [list(gold_records(dataset, schemas, report)) for dataset, schemas in read]
    # What validation products are labelled with must not decide what is taught.
    known = _known_values(
        (schemas[gold.category], gold)
        for (_, schemas), pairs in zip(read, records, strict=True)
        for record, gold in pairs
        if not is_held_out(record, validation_share)
    )
    products: list[LabelledProduct] = []
    for (dataset, schemas), pairs in zip(read, records, strict=True):
        for category in sorted({gold.category for _, gold in pairs}):
            _check_room(dataset, schemas[category], builder)
        for record, gold in pairs:
            schema = schemas[gold.category]
            _check_attributes(dataset, schema, gold, labels, report)
            product = _label(dataset, record, schema, gold, labels, builder, known.get(schema.hash, {}), report)
            if not product.answers and not product.assumed_absent:
                report.leave_out("a product without anything to teach", _short_line(dataset, gold))
            products.append(product)
    report.products = len(products)
    if not any(product.answers or product.assumed_absent for product in products):
        raise UsageError(report.nothing_to_train_on())
    corrected = [each for product in products if (each := _corrections(product)) is not None]
    repeated = [each for each in corrected if not is_held_out(each.record, validation_share)]
    report.corrections = sum(len(each.answers) for each in repeated)
    report.corrections_weight = labels.corrections_weight
    return products + repeated * (labels.corrections_weight - 1), report


def _corrections(product: LabelledProduct) -> LabelledProduct | None:
    """Return the product with only the answers in which people corrected a model; None if there are none."""
    answers = {name: items for name, items in product.answers.items() if name in (product.gold.corrected or ())}
    return replace(product, answers=answers, assumed_absent=()) if answers else None


def _known_values(labelled: Iterable[tuple[CategorySchema, GoldProduct]]) -> dict[str, dict[str, re.Pattern[str]]]:
    """Return schema hash -> attribute -> pattern of its gold values as whole words in folded text.

    Datasets with the same schema share their values. A member of an enum is found by any of its spellings, not only
    by the one that it was labelled with.
    """
    forms: dict[str, dict[str, set[str]]] = {}
    schemas: dict[str, CategorySchema] = {}
    for schema, product in labelled:
        schemas[schema.hash] = schema
        by_name = forms.setdefault(schema.hash, {})
        for name, value in product.values.items():
            by_name.setdefault(name, set()).update(fold(form) for item in value.items for form in item)
    for key, schema in schemas.items():
        for attribute in schema.attributes:
            if not attribute.values or attribute.name not in forms[key]:
                continue
            texts, vocabulary = forms[key][attribute.name], attribute.vocabulary
            labels = {vocabulary.label(form) for form in texts}
            texts |= {fold(text) for text, label in vocabulary.spellings.items() if label in labels}
    return {
        key: {name: words_pattern(texts) for name, texts in by_name.items() if texts} for key, by_name in forms.items()
    }


def _check_room(dataset: DatasetConfig, schema: CategorySchema, builder: ExampleBuilder) -> None:
    for attribute in schema.attributes:
        place = f"{dataset.schemas}: category {schema.category!r}, attribute {attribute.name!r}"
        _check_null_fits(place, attribute, builder)


def _check_null_fits(place: str, attribute: Attribute, builder: ExampleBuilder) -> None:
    needed, limit = len(builder.value_ids(attribute, None)), builder.max_value_tokens(attribute)
    if needed > limit:
        raise UsageError(f"{place}: max_value_tokens is {limit}, null alone takes {needed}")


def _check_attributes(
    dataset: DatasetConfig, schema: CategorySchema, gold: GoldProduct, labels: LabelPolicy, report: DataReport
) -> None:
    names = {attribute.name for attribute in schema.attributes}
    for name in gold.values:
        if name in names:
            continue
        if labels.unknown_attributes == "refuse":
            hint = NearNames(names).hint(name)
            raise UsageError(
                f"{gold.place_in(dataset.gold)}: category {gold.category!r} has no attribute {name!r} in "
                f"{dataset.schemas}{f'; {hint}' if hint else '.'} Add it there, or set labels.unknown_attributes: skip"
            )
        report.leave_out("not in the schema", f"{gold.category} > {name}")


def _short_line(dataset: DatasetConfig, gold: GoldProduct) -> str:
    """Return the product's place for lists of examples, with the file's name instead of its path."""
    return gold.place_in(dataset.gold.rsplit("/", 1)[-1])


def _label(
    dataset: DatasetConfig,
    record: Record,
    schema: CategorySchema,
    gold: GoldProduct,
    labels: LabelPolicy,
    builder: ExampleBuilder,
    known: Mapping[str, re.Pattern[str]],
    report: DataReport,
) -> LabelledProduct:
    text = "\n".join(record.fields.values())
    folded = fold(text)
    answers: dict[str, Items] = {}
    assumed: list[str] = []
    for attribute in schema.attributes:
        place = f"{_short_line(dataset, gold)}, {attribute.name}"
        value = gold.values.get(attribute.name)
        if value is None:
            pattern = known.get(attribute.name)
            is_open = labels.unlabelled == "absent_unless_known" and pattern is not None and pattern.search(folded)
            # Not in a review: nobody looked. Taken out as doubtful, or contradictory: nobody knows.
            is_unknown = gold.corrected is not None or attribute.name in {*gold.doubtful, *gold.contradicted}
            if labels.unlabelled == "untaught" or is_open or is_unknown:
                report.unlabelled_not_taught += 1
            else:
                assumed.append(attribute.name)
                report.assumed_absent += 1
        elif value.is_absent:
            answers[attribute.name] = None
            report.absent += 1
        else:
            items = [_taught(attribute, forms, record, text) for forms in value.items]
            problem = _problem(attribute, items, record, builder)
            if problem:
                report.leave_out(problem, f"{place}: {value}")
            else:
                answers[attribute.name] = list(dict.fromkeys(filter(None, items)))
                report.values += 1
    return LabelledProduct(record, schema, gold, answers, assumed, known)


def _taught(attribute: Attribute, forms: Sequence[str], record: Record, text: str) -> str | None:
    """Return the accepted form that can be copied from the text, else the first; None if no form is an answer.

    As in scoring, types other than text are parsed like answers: "yes" as true, "120 cm" as 120 if cm is the unit.
    """
    readings = {form: reading for form in forms if (reading := _reading(attribute, form, record)) is not None}
    copied = next((form for form in readings if words_pattern([form]).search(text)), None)
    return next(iter(readings.values()), None) if copied is None else readings[copied]


def _reading(attribute: Attribute, form: str, record: Record) -> str | None:
    if attribute.is_text:
        return form
    items = parse_value(attribute, json.dumps(form), closed=True, fields=record.fields).items
    items = items or label_numbers(attribute, form)[:1]  # in another unit: as the text has it
    is_open = attribute.type == "number" and any(map(is_undecided, items))
    return None if is_open else next(iter(items), None)


def _problem(attribute: Attribute, items: Sequence[str | None], record: Record, builder: ExampleBuilder) -> str | None:
    """Return why a value cannot be taught, or None."""
    if len(items) > 1 and not attribute.multiple:
        return "several values where the schema has one"
    if None in items:
        return _NO_ANSWERS[attribute.type]
    known = tuple(dict.fromkeys(filter(None, items)))
    line = render_answer_line(attribute, known)
    read = parse_value(attribute, line.removesuffix("\n"), closed=True, fields=record.fields)
    if read.status != "value" or read.items != known:
        return "written as JSON it does not read back as it is"
    if len(builder.value_ids(attribute, known)) > builder.max_value_tokens(attribute):
        return "longer than K_max"
    return None


def gold_records(
    dataset: DatasetConfig, schemas: Mapping[str, CategorySchema], report: DataReport
) -> Iterator[tuple[Record, GoldProduct]]:
    """Yield the products of the gold file that have a record, with it; count the others in `report`.

    Raises `UsageError` if the files cannot be read or do not belong together.
    """
    gold = read_gold(dataset.gold, schemas)
    for product in gold:
        if product.category not in schemas:
            hint = near_names(schemas).hint(product.category)
            raise UsageError(
                f"{product.place_in(dataset.gold)}: {dataset.schemas} has no category {product.category!r}"
                + (f"; {hint}" if hint else "")
            )
    if dataset.input is None:
        yield from _self_contained(dataset.gold, gold, report)
        return
    by_id = {product.product_id: product for product in gold if product.product_id is not None}
    by_row = {product.row: product for product in gold if product.product_id is None}
    catalog = dataset.input
    files = find_files(catalog.path, catalog.format, anonymous=catalog.anonymous)
    report.notes += files.left_out.warnings()
    if by_row and len(files.files) > 1:
        raise UsageError(f"{dataset.gold} has no product ids; it belongs to one catalog file, not to several")
    found: dict[int, tuple[Record, GoldProduct]] = {}
    doubled: set[int] = set()
    refused: dict[int, str] = {}
    for number, product_id, record in read_records(catalog, schemas):
        match = by_id.get(product_id or "") or by_row.get(number)
        if match is None:
            continue
        if not isinstance(record, Record):
            refused.setdefault(match.row, f"{match.name}: {record.message}")
            continue
        if match.row in found and found[match.row][0].fields != record.fields:
            doubled.add(match.row)
        if match.category != record.category:
            raise UsageError(
                f"{match.place_in(dataset.gold)}: category {match.category!r}, but the catalog says "
                f"{record.category!r} for {record.id!r}; do the two files belong together?"
            )
        found.setdefault(match.row, (record, match))
    yield from (pair for row, pair in found.items() if row not in doubled)
    for product in gold:
        if product.row in doubled:
            report.leave_out("several rows of the catalog have its id, and other texts", product.name)
        elif product.row in found:
            continue
        elif product.row in refused:
            report.leave_out("the record cannot be used", refused[product.row])
        else:
            report.leave_out("the catalog has no such product", product.name)


def _self_contained(path: str, gold: Sequence[GoldProduct], report: DataReport) -> Iterator[tuple[Record, GoldProduct]]:
    for product in gold:
        if product.fields is None:
            raise UsageError(
                f"{product.place_in(path)}: no 'input' with the product's fields; name the catalog in 'input' of "
                f"the dataset"
            )
        if any(text.strip() for text in product.fields.values()):
            yield Record(product.name, product.category, product.fields), product
        else:
            report.leave_out("the record cannot be used", f"{product.name}: every field is empty")


class CatalogRow(NamedTuple):
    """A row of a catalog.

    Attributes:
        number: row number in its file.
        product_id: product id; None if the row has none.
        record: the record, or the reason why there is none.
    """

    number: int
    product_id: str | None
    record: Record | RowRefusal


def read_records(config: InputConfig, schemas: Mapping[str, CategorySchema]) -> Iterator[CatalogRow]:
    """Yield every row of the catalog, with the ids that a job assigns.

    Raise `UsageError` or `RunError` for a file that cannot be read.
    """
    for index, source in enumerate(scan_sources(config).files):
        piece = RowRange(index, 0, source.stop, source.num_rows, 0, source.size)
        for row in read_piece(*source.rows, piece, config.columns, anonymous=config.anonymous):
            found = default_id(source.name, row.number) if config.id is None else row_id(row.values or {}, config)
            yield CatalogRow(row.number, found, row.record(source.name, config, schemas))


_MAX_EXAMPLES = 3


@dataclass
class DataReport:
    """Counts of all data read, examples of labels that are not taught, and notes on the catalogs' files."""

    products: int = 0
    values: int = 0
    absent: int = 0
    assumed_absent: int = 0
    unlabelled_not_taught: int = 0
    corrections: int = 0
    corrections_weight: int = 1
    not_taught: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def leave_out(self, reason: str, example: str) -> None:
        """Count one label or product that is not taught."""
        self.not_taught[reason] += 1
        self.examples.setdefault(reason, [])
        if len(self.examples[reason]) < _MAX_EXAMPLES:
            self.examples[reason].append(example)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report for the user."""
        yield (
            f"{self.products:,} products; taught: {self.values:,} values, {self.absent:,} labelled absent, "
            f"{self.assumed_absent:,} unlabelled and taken for absent; {self.unlabelled_not_taught:,} unlabelled ones "
            f"are not taught"
        )
        if self.corrections:
            yield (
                f"answers in which people corrected a model, each taught {self.corrections_weight} times in an epoch: "
                f"{self.corrections:,}"
            )
        yield from self._left_out()
        yield from self.notes

    def nothing_to_train_on(self) -> str:
        """Return the text of an error: everything was left out, and why."""
        return "\n  ".join(["the datasets hold nothing to train on", *self._left_out()])

    def _left_out(self) -> Iterator[str]:
        for reason, number in self.not_taught.most_common():
            yield f"left out, {reason}: {number:,} (e.g. {'; '.join(self.examples[reason])})"
