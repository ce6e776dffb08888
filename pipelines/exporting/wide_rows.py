"""From the answers of a shard to rows of a wide table, without a look at single values in Python."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.exporting.answers import ShardAnswers
from pipelines.exporting.left_out import LeftOut
from pipelines.exporting.wide_columns import PLACE, WideColumn, WideColumns

_NO_NUMBER = "not one number, but a range or a text"


def wide_rows(shard: ShardAnswers, columns: WideColumns, left_out: LeftOut, *, takes_ids: bool = False) -> pa.Table:
    """The products of a shard with their accepted answers; what no column can hold is counted in `left_out`.

    Args:
        takes_ids: where the vocabulary has ids, they stand instead of labels.
    """
    products, answers = shard.products, shard.answers
    texts = pc.coalesce(answers["value_norm"], answers["value_raw"])
    if takes_ids:
        texts = pc.coalesce(answers["value_id"], texts)
    answers = answers.append_column("text", texts).append_column("owner", pa.array(shard.owner))
    rows = _rows_by_attribute(answers)
    # Of thousands of attributes a shard has a few: the others cost next to nothing.
    made = {field.name: pa.nulls(products.num_rows, field.type) for field in columns.schema}
    made.update((name, products[name]) for name in PLACE)
    for column in columns.columns:
        if column.attribute in rows:
            part = answers.take(rows[column.attribute])
            made.update(_cells(column, part, products.num_rows, left_out))
    return pa.table(made, schema=columns.schema)


def _rows_by_attribute(answers: pa.Table) -> dict[str, pa.Array]:
    encoded = pc.dictionary_encode(answers["attribute"].combine_chunks())
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[order], np.arange(len(encoded.dictionary) + 1))
    names = encoded.dictionary.to_pylist()
    return {name: pa.array(order[cuts[index] : cuts[index + 1]]) for index, name in enumerate(names)}


def _cells(
    column: WideColumn, answers: pa.Table, num_products: int, left_out: LeftOut
) -> Iterator[tuple[str, pa.Array]]:
    """The attribute's column, and that of its unit."""
    values = _values(column, answers)
    if column.kind != "text" and values.null_count:
        lost = answers.filter(pc.is_null(values))
        left_out.add_rows(lost.append_column("reason", pa.array([_NO_NUMBER] * lost.num_rows, pa.string())))
        answers, values = answers.filter(pc.is_valid(values)), values.drop_null()
    owner = answers["owner"].to_numpy()
    if column.is_list and (column.kind != "number" or column.unit is not None):
        # Numbers that are the same may still have units of their own.
        fresh = _first_of_each(owner, values)
        answers, values, owner = answers.take(fresh), values.take(fresh), owner[fresh]
    yield column.name, _by_product(values, owner, num_products, is_list=column.is_list)
    if column.unit_name is not None:
        units = answers["unit"].combine_chunks()
        if column.unit is not None:
            units = pc.fill_null(units, column.unit)
        yield column.unit_name, _by_product(units, owner, num_products, is_list=pa.types.is_list(column.unit_type))


def _by_product(values: pa.Array, owner: npt.NDArray[np.int64], num_products: int, *, is_list: bool) -> pa.Array:
    """One value a product, the first, or a list of all; null for one without. `owner`: whose each is, ascending."""
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    where = np.full(num_products, -1)
    where[owner[first]] = first
    if is_list:
        where[owner[first]] = np.arange(len(first))
        values = pa.ListArray.from_arrays(pa.array(np.append(first, len(owner)).astype(np.int32)), values)
    return values.take(pa.array(where, mask=where < 0))


def _first_of_each(owner: npt.NDArray[np.int64], values: pa.Array) -> npt.NDArray[np.int64]:
    """The rows without those that repeat a value of their product: items may have one normalised form."""
    codes = values.dictionary_encode().indices.to_numpy()
    _, first = np.unique(owner * (codes.max(initial=0) + 1) + codes, return_index=True)
    return np.sort(first)


def _values(column: WideColumn, answers: pa.Table) -> pa.Array:
    """One for each row; null for a text that is no number where one is wanted."""
    texts = answers["text"].combine_chunks()
    if column.kind == "boolean":
        return pc.if_else(pc.equal(texts, "true"), True, pc.if_else(pc.equal(texts, "false"), False, None))
    if column.kind == "text":
        return texts
    is_number = pc.match_substring_regex(texts, r"^[+-]?(\d+\.?\d*|\.\d+)$")
    plain = pc.if_else(is_number, texts, pa.scalar(None, pa.string())).cast(pa.float64())
    return pc.coalesce(answers["value_num"].combine_chunks(), plain)
