"""Products of a gold file with their texts, from the file itself or from the catalog that it belongs to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hpd_core import CategorySchema, Record
from hpd_core.text.near_names import near_names
from pipelines.catalog.finding import find_files
from pipelines.catalog.input_files import scan_sources
from pipelines.catalog.readers import read_piece
from pipelines.catalog.rows import RowRefusal, default_id, row_id, to_record
from pipelines.catalog.sharding import RowRange
from pipelines.config.catalog_input import InputConfig
from pipelines.config.finetuning import DatasetConfig
from pipelines.errors import UsageError
from pipelines.quality.gold import GoldProduct, read_gold


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
    found: set[int] = set()
    refused: dict[int, str] = {}
    for number, product_id, record in read_records(catalog, schemas):
        match = by_id.get(product_id or "") or by_row.get(number)
        if match is None:
            continue
        if match.row in found:
            report.leave_out("a second row of the same product", f"{match.name}, in row {number}")
            continue
        if not isinstance(record, Record):
            refused.setdefault(match.row, f"{match.name}: {record.message}")
            continue
        if match.category != record.category:
            raise UsageError(
                f"{match.place_in(dataset.gold)}: category {match.category!r}, but the catalog says "
                f"{record.category!r} for {record.id!r}; do the two files belong together?"
            )
        found.add(match.row)
        yield record, match
    for product in gold:
        if product.row in found:
            continue
        if product.row in refused:
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
            own_id = default_id(source.name, row.number)
            found = own_id if config.id is None else row_id(row.values or {}, config)
            record: Record | RowRefusal = row.problem or RowRefusal("unreadable", "the row could not be read")
            if row.values is not None:
                record = to_record(row.values, own_id, config, schemas)
            yield CatalogRow(row.number, found, record)


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
