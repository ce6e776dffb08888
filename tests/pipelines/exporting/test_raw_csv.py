"""Splitting keeps every byte, and says what kept readers say."""

from __future__ import annotations

import codecs
import csv
import io

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipelines.errors import UsageError
from pipelines.exporting import raw_csv
from pipelines.exporting.raw_csv import Dialect, RawRecord, read_records

_PIECES = st.sampled_from(['"', '""', ",", ";", "\n", "\r", "\r\n", "a", "é", "日", " ", "\t", "\x00", "b c"])


def split(data: bytes, dialect: Dialect) -> list[RawRecord]:
    return list(read_records(io.BytesIO(data[len(dialect.bom) :]), dialect, "f.csv"))


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1 << 20])
@given(st.lists(_PIECES, max_size=40).map("".join))
def test_every_text_is_put_together_again(chunk: int, text: str) -> None:
    whole = split_in_chunks(text.encode(), Dialect(","), 1 << 20)
    records = split_in_chunks(text.encode(), Dialect(","), chunk)
    assert b"".join(map(Dialect(",").to_bytes, records)) == text.encode()
    assert records == whole, "where chunks end does not matter"


def split_in_chunks(data: bytes, dialect: Dialect, chunk: int) -> list[RawRecord]:
    before = raw_csv._CHUNK
    raw_csv._CHUNK = chunk
    try:
        return split(data, dialect)
    finally:
        raw_csv._CHUNK = before


@given(st.binary(max_size=60))
def test_every_byte_is_kept_whatever_the_encoding(data: bytes) -> None:
    dialect = Dialect(",", "cp1252")
    assert b"".join(map(dialect.to_bytes, split(data, dialect))) == data


_VALUES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8)


@given(
    st.lists(st.lists(_VALUES, min_size=2, max_size=4), min_size=1, max_size=5),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["\r\n", "\n"]),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    st.sampled_from(["utf-8", "utf-16-le"]),
)
def test_values_are_those_of_the_csv_module(
    rows: list[list[str]], delimiter: str, end: str, quoting: int, encoding: str
) -> None:
    # The module leaves a carriage return without quotes where it ends no line of its own.
    assume(quoting == csv.QUOTE_ALL or not any("\r" in value for row in rows for value in row))
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows(rows)
    dialect = Dialect(delimiter, encoding)
    records = split(file.getvalue().encode(encoding), dialect)
    assert [[dialect.value(cell) for cell in record.cells] for record in records] == rows
    assert {record.end for record in records} == {end}


@given(_VALUES, st.sampled_from([",", ";", "\t"]), st.sampled_from(["utf-8", "utf-16-be"]))
def test_a_written_value_is_read_again(value: str, delimiter: str, encoding: str) -> None:
    dialect = Dialect(delimiter, encoding)
    cell = dialect.raw(value)
    assert cell is not None
    assert dialect.value(cell) == value
    data = dialect.to_bytes(RawRecord([cell, "x"], "\n"))
    assert split(data, dialect) == [RawRecord([cell, "x"], "\n")]


@pytest.mark.parametrize("bom", [codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b""])
def test_the_byte_order_mark_tells_the_encoding(bom: bytes) -> None:
    dialect = Dialect.of(bom + b"xx", ",", "cp1252")
    assert dialect.bom == bom
    assert dialect.encoding == {b"": "cp1252"}.get(bom, dialect.encoding)


def test_a_letter_that_the_encoding_lacks_is_not_written() -> None:
    assert Dialect(",", "cp1252").raw("5 €") == "5 \x80"
    assert Dialect(",", "cp1252").raw("≤ 5") is None


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ('a,5" pipe,b\n', ["a", '5" pipe', "b"]),  # a quote inside of a cell is a letter
        ('"a"x,b\n', ['"a"x', "b"]),
        ('"a""",b\n', ['"a"""', "b"]),
        ('"never closed,b\n', ['"never closed,b\n']),
        ("\n", [""]),
    ],
)
def test_odd_cells(text: str, cells: list[str]) -> None:
    assert split(text.encode(), Dialect(","))[0].cells == cells


def test_a_quote_that_is_never_closed_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_csv, "MAX_RECORD", 100)
    monkeypatch.setattr(raw_csv, "_CHUNK", 60)
    with pytest.raises(UsageError, match=r"f.csv, record 1: a quote is not closed"):
        split(b'a,b\n"' + b"x" * 500, Dialect(","))


def test_half_a_letter_of_utf_16_is_refused() -> None:
    with pytest.raises(UsageError, match="no utf-16-le"):
        split(b"a\0b", Dialect(",", "utf-16-le"))
