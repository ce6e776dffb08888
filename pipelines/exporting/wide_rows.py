"""Conversion of a shard's answers to rows of a wide table, without a Python loop over values."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.exporting.answers import LeftOutAnswers, ShardAnswers, is_given
from pipelines.exporting.wide_columns import FOR_READERS, PLACE, WideColumn, WideColumns

Titles = Callable[[pa.Table], Sequence[str | None]]
"""Function that returns the first text of each product of a table."""

_NO_VALUE = "neither a number nor a range"
_ENDS = ("value_min", "value_max")


def wide_rows(
    shard: ShardAnswers,
    columns: WideColumns,
    left_out: LeftOutAnswers,
    titles: Titles,
    *,
    takes_ids: bool = False,
    max_digits: int | None = None,
) -> pa.Table:
    """Return the products of a shard with their accepted answers; answers that no column can hold are counted in
    `left_out`.

    Args:
        titles: called only if the columns are for readers.
        takes_ids: whether ids of the vocabulary, if it has any, stand instead of labels.
        max_digits: most digits of a number outside a list in the file; None for as many as a double holds.
    """
    products, answers = shard.products, shard.answers
    texts = pc.coalesce(answers["value_norm"], answers["value_raw"])
    if takes_ids:
        texts = pc.coalesce(answers["value_id"], texts)
    answers = answers.append_column("text", texts).append_column("owner", pa.array(shard.owner))
    rows = _rows_by_attribute(answers)
    # A shard has a few of thousands of attributes; the others cost next to nothing.
    made = {field.name: pa.nulls(products.num_rows, field.type) for field in columns.schema}
    made.update((name, products[name]) for name in PLACE)
    if columns.for_readers:
        made.update(zip(FOR_READERS, (pa.array(titles(products), pa.string()), _least_confidence(shard)), strict=True))
    for column in columns.columns:
        if column.attribute in rows:
            part = answers.take(rows[column.attribute])
            made.update(_cells(column, part, products.num_rows, left_out, max_digits))
    return pa.table(made, schema=columns.schema)


def _least_confidence(shard: ShardAnswers) -> pa.Array:
    """Return the least confidence (or else probability) of each product's values; null if none is known."""
    worth = pc.coalesce(shard.answers["confidence"], shard.answers["probability"])
    worth = pc.if_else(is_given(shard.answers), None, worth).to_numpy(zero_copy_only=False)  # a person is sure
    least = np.full(shard.products.num_rows, np.inf)
    np.fmin.at(least, shard.owner, worth.astype(np.float64))
    return pa.array(least, mask=np.isinf(least))


def _rows_by_attribute(answers: pa.Table) -> dict[str, pa.Array]:
    encoded = pc.dictionary_encode(answers["attribute"].combine_chunks())
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[order], np.arange(len(encoded.dictionary) + 1))
    names = encoded.dictionary.to_pylist()
    return {name: pa.array(order[cuts[index] : cuts[index + 1]]) for index, name in enumerate(names)}


def _cells(
    column: WideColumn, answers: pa.Table, num_products: int, left_out: LeftOutAnswers, max_digits: int | None
) -> Iterator[tuple[str, pa.Array]]:
    """Yield the attribute's column, and those of the ends and the unit of numbers."""
    answers = answers.append_column("value", _values(column, answers))
    said = [answers[name] for name in ("value", *(_ENDS if column.kind == "number" else ()))]
    is_said = functools.reduce(pc.or_, map(pc.is_valid, said))
    answers = _without(answers, pc.invert(is_said), _NO_VALUE, left_out)
    if column.kind == "number":
        # Lists may be texts in the file, which keep every digit.
        changed = are_changed(answers["text"], None if column.is_list else max_digits)
        answers = _without(answers, changed, MORE_DIGITS, left_out)
    if column.is_list and (column.kind != "number" or column.has_one_unit):
        # Numbers that are the same may still have units of their own.
        answers = answers.take(_first_of_each(answers, ("value", *_ENDS, "unit")))
    owner = answers["owner"].to_numpy()

    def cells(name: str, *, is_list: bool) -> pa.Array:
        return _by_product(answers[name].combine_chunks(), owner, num_products, is_list=is_list)

    yield column.name, cells("value", is_list=column.is_list)
    for name, end in zip(column.end_names, _ENDS, strict=False):
        # In a list with a range each value has an entry, maybe null; a list without a range is null.
        has_one = pa.array(np.isin(np.arange(num_products), owner[answers[end].is_valid().to_numpy()]))
        yield name, pc.if_else(has_one, cells(end, is_list=column.is_list), None)
    if column.unit_name is not None:
        units = answers["unit"]
        measured = pc.is_in(answers["category"], pa.array(sorted(column.measured), pa.string()))
        if column.is_list and column.has_one_unit:
            # One unit stands for the whole list, but not if a value has none.
            bare = np.unique(owner[units.is_null().to_numpy()])
            measured = pc.and_not(measured, pa.array(np.isin(owner, bare)))
        units = pc.if_else(measured, units, None)
        answers = answers.set_column(answers.column_names.index("unit"), "unit", units)
        yield column.unit_name, cells("unit", is_list=pa.types.is_list(column.unit_type))


def _without(answers: pa.Table, is_lost: pa.Array | pa.ChunkedArray, reason: str, left_out: LeftOutAnswers) -> pa.Table:
    """Return the rows that are not lost; count the lost ones in `left_out`."""
    lost = answers.filter(is_lost)
    left_out.add_rows(lost.append_column("reason", pa.array([reason] * lost.num_rows, pa.string())))
    return answers.filter(pc.invert(is_lost))


def _by_product(values: pa.Array, owner: npt.NDArray[np.int64], num_products: int, *, is_list: bool) -> pa.Array:
    """Return the first value of each product, or a list of all; null for one without. `owner`: the product of each
    value, ascending."""
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    where = np.full(num_products, -1)
    where[owner[first]] = first
    if is_list:
        where[owner[first]] = np.arange(len(first))
        values = pa.ListArray.from_arrays(pa.array(np.append(first, len(owner)).astype(np.int32)), values)
    return values.take(pa.array(where, mask=where < 0))


def _first_of_each(answers: pa.Table, names: Sequence[str]) -> pa.Array:
    """Return the indices of rows that do not repeat a value of their product: items may have one normalised form."""
    numbered = answers.select(["owner", *names]).append_column("row", pa.array(np.arange(answers.num_rows)))
    first = numbered.group_by(["owner", *names], use_threads=False).aggregate([("row", "min")])
    return pa.array(np.sort(first["row_min"].to_numpy()))


def _values(column: WideColumn, answers: pa.Table) -> pa.Array:
    """Return the value of each row; null for a text that is not of the column's kind."""
    texts = answers["text"].combine_chunks()
    if column.kind == "boolean":
        return pc.if_else(pc.equal(texts, "true"), True, pc.if_else(pc.equal(texts, "false"), False, None))
    if column.kind == "text":
        return texts
    is_number = pc.match_substring_regex(texts, r"^[+-]?(\d+\.?\d*|\.\d+)$")
    plain = pc.if_else(is_number, texts, pa.scalar(None, pa.string())).cast(pa.float64())
    return pc.coalesce(answers["value_num"].combine_chunks(), plain)


MORE_DIGITS = "more digits than a number of the file holds: export csv"

_SURELY_HELD = 15  # digits, by any double
_LONG = rf"[\d.]{{{_SURELY_HELD + 1},}}"
_NUMBER = re.compile(r"\d+\.?\d*|\.\d+")


def are_changed(texts: pa.ChunkedArray, max_digits: int | None) -> pa.Array:
    """Return for each text whether a number in it, alone or the end of a range, would change in the file.

    Args:
        max_digits: most digits of a number there; None for a double.
    """
    # Few are long: the others are not looked at one by one.
    places = pc.indices_nonzero(pc.match_substring_regex(texts, _LONG)).to_numpy()
    changed = np.zeros(len(texts), dtype=bool)
    changed[places] = [
        not all(_is_held(each, max_digits) for each in _NUMBER.findall(text))
        for text in texts.take(pa.array(places)).to_pylist()
    ]
    return pa.array(changed)


def _is_held(number: str, max_digits: int | None) -> bool:
    if max_digits is not None:
        return len(number.replace(".", "").strip("0")) <= max_digits
    return Decimal(repr(float(number))) == Decimal(number)
