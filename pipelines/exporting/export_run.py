"""Driver of an export: open the run, write accepted answers, count the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hpd_core import CategorySchema
from pipelines.errors import UsageError
from pipelines.exporting.answers import (
    NOT_NORMALISED,
    NOT_STATED,
    Answers,
    ExportAcceptance,
    ExportedProduct,
    LeftOutAnswers,
    asked_schemas,
    opened_answers,
)
from pipelines.exporting.outputs import DEFAULT_FOLDER, Outputs, check_destination
from pipelines.exporting.shop_export import ShopExport
from pipelines.exporting.targets import Shop, ShopWishes
from pipelines.exporting.wide_columns import wide_columns
from pipelines.exporting.writers import STEM, WIDE_KINDS, Style, wide_tables
from pipelines.job.run import Run
from pipelines.job.source_texts import Wanted, read_texts
from pipelines.reporting import formats
from pipelines.store.texts_in_run import left_out_note
from pipelines.store.verdicts import as_read

_SPREADSHEETS = ("csv", "xlsx")


@dataclass(frozen=True, slots=True)
class ExportWishes:
    """Options of an export.

    Attributes:
        kind: kind of files.
        out: file or folder to write to; None for `DEFAULT_FOLDER` in the run's.
        takes_raw, min_logprob, min_confidence, takes_review: as in `ExportAcceptance`.
        takes_ids: whether a wide table has the vocabulary's ids instead of labels.
        forces: whether an existing file is replaced.
    """

    kind: str
    out: str | None = None
    takes_raw: bool = False
    min_logprob: float | None = None
    min_confidence: float | None = None
    takes_review: bool = False
    takes_ids: bool = False
    forces: bool = False
    style: Style = field(default_factory=Style)
    shop: ShopWishes = field(default_factory=ShopWishes)


@dataclass(slots=True)
class Exported:
    """Outcome of an export.

    Attributes:
        num_values: number of answers that were written; of a table, of accepted ones, before its own rules.
        is_decided: whether the run has decided which values may be taken.
        notes: notes for the user about the files.
    """

    kind: str
    run: str
    files: list[str] = field(default_factory=list)
    num_products: int = 0
    num_values: int = 0
    num_dead_letters: int = 0
    is_decided: bool = False
    left_out: LeftOutAnswers = field(default_factory=LeftOutAnswers)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as plain data, for JSON output."""
        return {
            "to": self.kind,
            "run": self.run,
            "files": self.files,
            "products": self.num_products,
            "values": self.num_values,
            "is_decided": self.is_decided,
            "dead_letters": self.num_dead_letters,
            "left_out": self.left_out.by_reason,
            "left_out_answers": self.left_out.to_list(),
            "notes": self.notes,
        }


def export_run(uri: str, wishes: ExportWishes, shops: Mapping[str, Shop]) -> Exported:
    """Write the files. Raises `UsageError` if there is no such run, or something cannot be read or written.

    Args:
        shops: shops whose files may be filled in, by name.
    """
    shop = shops.get(wishes.kind)
    if shop is None and wishes.kind not in WIDE_KINDS:
        kinds = ", ".join([*WIDE_KINDS, *shops])
        raise UsageError(f"--to {wishes.kind}: there is no such kind of file; there are {kinds}")
    _check_options(wishes, shops)
    side = Run.open_with_rows(uri)
    schemas = asked_schemas(side)
    is_decided = side.precision is not None
    result = Exported(wishes.kind, side.uri, num_dead_letters=side.totals.dead_letters, is_decided=is_decided)
    result.notes.extend([*side.notes(), *left_out_note(side.reviews.left_out, side.uri)])
    acceptance = ExportAcceptance(
        wishes.takes_raw, wishes.min_logprob, wishes.min_confidence, wishes.takes_review, is_decided
    )
    with opened_answers(side, acceptance, result.left_out) as answers:
        if shop is not None:
            answers.leave_out_parts()
        result.num_products, result.num_values = answers.count()
        before = result.left_out.counts.total()
        if shop is None:
            _export_wide(side, schemas, answers, wishes, result)
        else:
            out = wishes.out or f"{side.uri}/{DEFAULT_FOLDER}"
            ShopExport(
                side, schemas, shop, wishes.shop, out, wishes.forces, result.left_out, result.files, result.notes
            ).write(answers)
            # A file may have a value there, or may not take an answer that was accepted.
            result.num_values -= result.left_out.counts.total() - before
    return result


def _check_options(wishes: ExportWishes, shops: Mapping[str, Shop]) -> None:
    """Raise `UsageError` for an option that the kind of file does not use: it would be ignored silently."""
    style, shop, plain = wishes.style, wishes.shop, Style()
    if not style.separator or '"' in style.separator:
        raise UsageError(f"--separator {style.separator!r}: name one without quotes, such as '; '")
    for option, is_given, kinds in (
        ("--original", shop.original, shops),
        ("--columns", shop.columns, shops),
        ("--overwrite", shop.overwrites, shops),
        ("--ids", wishes.takes_ids, WIDE_KINDS),
        ("--separator", style.separator != plain.separator, _SPREADSHEETS),
        ("--guard-formulas", style.guards_formulas, _SPREADSHEETS),
        ("--identifier", shop.identifier != ShopWishes().identifier, ()),
    ):
        takers = list(kinds) or [name for name, each in shops.items() if option in each.options]
        if is_given and wishes.kind not in takers:
            raise UsageError(f"{option} is for {', '.join(takers)}, not for {wishes.kind}")


def _export_wide(
    side: Run,
    schemas: Mapping[str, CategorySchema],
    answers: Answers,
    wishes: ExportWishes,
    result: Exported,
) -> None:
    kind = WIDE_KINDS[wishes.kind]
    if kind.max_rows is not None and result.num_products > kind.max_rows:
        raise UsageError(
            f"{result.num_products:,} products, and a sheet of Excel has {kind.max_rows:,} rows: export csv"
        )
    outputs = Outputs.of(wishes.out or f"{side.uri}/{DEFAULT_FOLDER}", kind.suffix)
    name = outputs.file or f"{STEM}{kind.suffix}"
    check_destination(side, None, outputs, [name], wishes.forces)
    columns = wide_columns(schemas, only_text=kind.only_text, takes_raw=wishes.takes_raw, for_readers=kind.for_readers)
    tables = wide_tables(
        answers.products(), columns, result.left_out, partial(_titles, side), wishes.takes_ids, kind.max_digits
    )
    with outputs.writing(name) as path:
        kind.write(path, tables, columns, wishes.style, result.left_out)
    result.files.append(outputs.describe(name))


def _titles(side: Run, products: Sequence[ExportedProduct]) -> list[str | None]:
    """Return the first text of each product, read again from the catalog; None if it is gone or has changed."""
    wanted = [
        Wanted(each.source_file, each.source_row, each.category, each.input_hash)
        for each in products
        if each.input_hash
    ]
    texts, _ = read_texts(side.plan, side.input_settings, wanted)
    found = (texts.get((each.source_file, each.source_row), {}) for each in products)
    return [next((text.text for text in fields.values()), None) for fields in found]


_MAX_EXAMPLES = 8
_MAX_VALUE = 60


def print_exported(exported: Exported) -> None:
    """Print the files, the counts of written and left-out answers, and examples of these."""
    for note in exported.notes:
        print(f"NOTE: {formats.plain(note)}")
    files = formats.plain(", ".join(exported.files))
    kind = "accepted answers" if exported.is_decided else "unchecked answers (the run was not asked to decide: accept)"
    print(f"{exported.num_products:,} products, {exported.num_values:,} {kind}: {files}")
    for reason, count in exported.left_out.by_reason.items():
        what = "not stated in the text" if reason == NOT_STATED else f"left out, {reason}"
        print(f"  {count:,} answer{'s' * (count != 1)} {formats.plain(what)}")
    _print_examples(exported)
    if exported.num_dead_letters:
        count = exported.num_dead_letters
        given_up = "rows were given up" if count > 1 else "row was given up"
        print(f"  {count:,} {given_up}, and no product: {exported.run}/dead_letter says why")


def _print_examples(exported: Exported) -> None:
    examples = [row for row in exported.left_out.to_list() if row["reason"] != NOT_STATED]
    for row in examples[:_MAX_EXAMPLES]:
        value = formats.shortened(row["value"] or "", _MAX_VALUE)
        line = f"{row['attribute']}: {row['reason']} ({row['count']:,}), such as {value!r} of {row['product_id']}"
        if row["reason"] == NOT_NORMALISED["conflict"]:
            line += f", which {as_read(row['value'] or '')} by itself"
        print(f"    {formats.plain(line)}")
    if len(examples) > _MAX_EXAMPLES:
        print(f"    and {len(examples) - _MAX_EXAMPLES:,} more; --json has all of them")
