"""Rows drawn by hypothesis: lines of JSON, whole and broken, and columns of all Arrow types."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from hpd_core.types import is_encodable

SEPARATOR = "|"


class Cell(NamedTuple):
    """A JSON value as it is written, and its text; None where it has none."""

    literal: str
    text: str | None


def _said(value: str, is_ascii: bool) -> Cell:
    text = value if is_encodable(value) else None
    # Half a pair can only be written as an escape.
    return Cell(json.dumps(value, ensure_ascii=is_ascii or text is None), text)


def _listed(cells: list[Cell]) -> Cell:
    texts = [cell.text for cell in cells]
    joined = None if None in texts else SEPARATOR.join(text for text in texts if text)
    return Cell(f"[{', '.join(cell.literal for cell in cells)}]", joined)


_MARKED_UP = ["<p>red</p>", "a &amp; b", "<br>", "<p></p>", "<b", "List<T>", "<|im_end|>", "\u200b", '"', "\\n", "\x00"]
_any_text = st.text(st.characters(exclude_categories=()), max_size=12) | st.sampled_from(_MARKED_UP)
_numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
_long_numbers = st.builds(lambda digit, count: digit * count, st.sampled_from("123456789"), st.integers(4000, 6000))
_scalars = st.one_of(
    st.builds(_said, _any_text, st.booleans()),
    st.one_of(_numbers, _long_numbers).map(lambda literal: Cell(literal, literal)),
    st.sampled_from([Cell("true", "true"), Cell("false", "false"), Cell("null", ""), Cell("NaN", "")]),
    st.sampled_from([Cell("Infinity", None), Cell("-Infinity", None)]),
)
_nested = st.sampled_from([Cell(text, None) for text in ("{}", '{"a": {"a": 1, "a": 2}}', "[[]]", '[["a"]]', "[{}]")])
json_cells = st.one_of(_scalars, st.lists(_scalars, max_size=4).map(_listed), _nested)


class Line(NamedTuple):
    """A line and the text of its title; None where the row is to be refused."""

    data: bytes
    title: str | None


@st.composite
def whole_lines(draw: st.DrawFn) -> Line:
    """A line that is JSON: keys in any order, some twice, others beside them."""
    title = draw(json_cells)
    pairs = [
        ("id", Cell(f'"{draw(st.integers(0, 99))}"', "")),
        ("category", Cell('"Shoes"', "")),
        ("title", title),
        ("bullets", Cell('["light"]', "light")),
    ]
    others = draw(st.lists(st.tuples(_any_text, json_cells), max_size=3))
    pairs += [(key, cell) for key, cell in others if key not in ("id", "category", "title", "bullets")]
    doubled = draw(st.sampled_from([None, None, None, "id", "title"]))
    if doubled is not None:
        pairs.append((doubled, draw(_scalars)))
    keys = st.sampled_from((", ", ",", " ,\t"))
    text = draw(keys).join(f"{json.dumps(key)}: {cell.literal}" for key, cell in draw(st.permutations(pairs)))
    mark, end = draw(st.sampled_from(["", "", "\ufeff"])), draw(st.sampled_from(["", "\r", " "]))
    return Line(f"{mark}{{{text}}}{end}".encode(), title.text if doubled is None else None)


def _cut(line: bytes, place: int, put: bytes) -> bytes:
    return line[: place % (len(line) + 1)]


def _insert(line: bytes, place: int, put: bytes) -> bytes:
    place %= len(line) + 1
    return line[:place] + put + line[place:]


def _replace(line: bytes, place: int, put: bytes) -> bytes:
    place %= len(line) + 1
    return line[:place] + put + line[place + max(1, len(put)) :]


def _encode(line: bytes, place: int, put: bytes) -> bytes:
    names = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252", "latin-1", "cp037")
    return line.decode().encode(names[place % len(names)], errors="replace")


def _twice(line: bytes, place: int, put: bytes) -> bytes:
    return line + put + line


_CHANGES: list[Callable[[bytes, int, bytes], bytes]] = [_cut, _insert, _replace, _encode, _twice]


@st.composite
def broken_lines(draw: st.DrawFn) -> bytes:
    """Any bytes, or a line that something has happened to. It may be whole all the same."""
    line = draw(st.one_of(st.binary(max_size=40), whole_lines().map(lambda line: line.data)))
    change, place, put = draw(st.sampled_from(_CHANGES)), draw(st.integers(0, 10**6)), draw(st.binary(max_size=4))
    if change is not _encode or line.isascii():
        line = change(line, place, put)
    return line.replace(b"\n", b"")


_WIDTHS: dict[int, list[pa.DataType]] = {
    8: [pa.int8(), pa.uint8()],
    16: [pa.int16(), pa.uint16(), pa.float16()],
    32: [pa.int32(), pa.uint32(), pa.float32(), pa.date32(), pa.time32("s"), pa.time32("ms")],
    64: [
        *(pa.int64(), pa.uint64(), pa.float64(), pa.date64(), pa.time64("us"), pa.time64("ns")),
        *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Asia/Kolkata")),
        *(pa.duration("ms"), pa.duration("ns")),
    ],
}
_BITS = {kind: width for width, kinds in _WIDTHS.items() for kind in kinds}
_WORDS = [b"red", "Größe".encode(), b"", b" ", b"x\ny", b"<b>", b"007", b"12.50", b"\x00", b"Gr\xf6\xdfe", b"\xff\xfe"]
_BYTES = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()]
_DECIMALS = [pa.decimal128(9, 2), pa.decimal128(38, 0), pa.decimal128(38, 38), pa.decimal256(76, 10)]
_PLAIN = [*_BITS, *_BYTES, *_DECIMALS, pa.bool_(), pa.null(), pa.binary(3), pa.uuid(), pa.json_(), pa.bool8()]


def _wrapped(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    makers: list[Callable[[pa.DataType], pa.DataType]] = [
        *(pa.list_, pa.large_list, lambda kind: pa.list_(kind, 2), lambda kind: pa.dictionary(pa.int32(), kind)),
        *(lambda kind: pa.struct({"k": kind}), lambda kind: pa.map_(pa.string(), kind)),
    ]
    return st.builds(lambda make, kind: make(kind), st.sampled_from(makers), inner)


arrow_types = st.recursive(st.sampled_from(_PLAIN), _wrapped, max_leaves=3)


def drawn_column(kind: pa.DataType, count: int, generator: np.random.Generator) -> pa.Array:
    """`count` cells of a type, some of them null, some of them such that Python cannot hold them.

    Raises `pa.ArrowException` if Arrow has no such columns.
    """
    cells = _cells(kind, count, generator)
    if pa.types.is_null(kind):
        return cells
    places = [None if generator.random() < 0.2 else place for place in range(count)]
    return cells.take(pa.array(places, pa.int64()))


def _cells(kind: pa.DataType, count: int, generator: np.random.Generator) -> pa.Array:
    if kind in _BITS:
        return _numbers_of(kind, count, generator)
    if kind in _BYTES:
        return (
            pa.array([_WORDS[index] for index in generator.integers(0, len(_WORDS), count)])
            .cast(_bytes_of(kind))
            .view(kind)
        )
    if pa.types.is_decimal(kind):
        digits = [generator.integers(0, 10, generator.integers(1, kind.precision + 1)).tolist() for _ in range(count)]
        return pa.array([Decimal((int(generator.integers(2)), each, -kind.scale)) for each in digits], kind)
    if pa.types.is_boolean(kind):
        return pa.array(generator.integers(0, 2, count).astype(bool))
    if pa.types.is_null(kind):
        return pa.nulls(count)
    if pa.types.is_fixed_size_binary(kind):
        return pa.array([generator.bytes(kind.byte_width) for _ in range(count)], kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _cells(kind.storage_type, count, generator))
    if pa.types.is_dictionary(kind):
        return drawn_column(kind.value_type, count, generator).dictionary_encode()
    if pa.types.is_struct(kind):
        fields = list(kind)
        return pa.StructArray.from_arrays([drawn_column(each.type, count, generator) for each in fields], fields=fields)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(drawn_column(kind.value_type, 2 * count, generator), 2)
    offsets = pa.array(np.sort(generator.integers(0, count + 1, count + 1)).astype(np.int32))
    if pa.types.is_map(kind):
        keys = pa.array([f"k{index}" for index in range(count)])
        return pa.MapArray.from_arrays(offsets, keys, drawn_column(kind.item_type, count, generator))
    make = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return make.from_arrays(
        offsets.cast(pa.int64()) if pa.types.is_large_list(kind) else offsets,
        drawn_column(kind.value_type, count, generator),
    )


def _bytes_of(kind: pa.DataType) -> pa.DataType:
    """The type of bytes that is stored as the type of text is."""
    return {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}.get(
        kind, kind
    )


def _numbers_of(kind: pa.DataType, count: int, generator: np.random.Generator) -> pa.Array:
    """Any bits, of which every second number is small."""
    width = _BITS[kind]
    bits = np.frombuffer(generator.bytes(count * width // 8), dtype=f"int{width}")
    numbers = np.where(generator.random(count) < 0.5, bits, bits % 100)
    return pa.array(numbers.astype(f"int{width}")).view(kind)
