"""Records and cells keep every letter, and say what the run's reader says."""

from __future__ import annotations

import csv
import io

from hypothesis import assume, given
from hypothesis import strategies as st

from pipelines.catalog.delimited import Dialect, read_records
from pipelines.exporting.raw_csv import RawRecord, raw_cells, raw_records, raw_value, to_raw

_PIECES = st.sampled_from(
    ['"', '""', '"a"', ",", ";", "\n", "\r", "\r\n", "a", "é", "日", " ", "\t", "\x00", "\\", "a,b\n"]
)
_DIALECTS = st.builds(
    Dialect, st.sampled_from([",", ";", "\t", "|"]), st.sampled_from(['"', "'", ""]), st.just("")
) | st.builds(Dialect, st.sampled_from([",", "\t"]), st.just('"'), st.just("\\"))


_COMMA = Dialect(",")


def lines(text: str) -> list[str]:
    return list(io.StringIO(text, newline=""))


def split(text: str, dialect: Dialect = _COMMA) -> list[RawRecord]:
    return list(raw_records(lines(text), dialect))


@given(st.lists(_PIECES, max_size=40).map("".join), _DIALECTS)
def test_every_text_is_put_together_again(text: str, dialect: Dialect) -> None:
    records = split(text, dialect)
    assert "".join(record.before + record.text for record in records) == text
    expected = [(record.cells, record.text) for record in read_records(lines(text), dialect)]
    assert [(record.values, record.text) for record in records if record.text] == expected


@given(st.lists(_PIECES, max_size=40).map("".join), _DIALECTS)
def test_cells_are_put_together_again_and_say_what_was_read(text: str, dialect: Dialect) -> None:
    for record in split(text, dialect):
        if record.values is not None and (found := raw_cells(record, dialect)):
            cells, end = found
            assert dialect.delimiter.join(cells) + end == record.text
            said = [raw_value(cell, dialect) for cell in cells] + [""] * len(record.values)
            assert said[: len(record.values)] == record.values


_VALUES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8)


@given(
    st.lists(st.lists(_VALUES, min_size=2, max_size=2), min_size=1, max_size=5),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["\r\n", "\n"]),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
)
def test_well_formed_cells_are_all_told_apart(rows: list[list[str]], delimiter: str, end: str, quoting: int) -> None:
    # The module leaves a carriage return without quotes where it ends no line of its own.
    assume(quoting == csv.QUOTE_ALL or not any("\r" in value for row in rows for value in row))
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows([["a", "b"], *rows])
    dialect = Dialect(delimiter)
    records = split(file.getvalue(), dialect)
    assert [record.values for record in records] == [["a", "b"], *rows]
    assert all(raw_cells(record, dialect) for record in records)


@given(_VALUES, _DIALECTS)
def test_a_written_value_is_read_again(value: str, dialect: Dialect) -> None:
    cell = to_raw(value, dialect)
    if cell is None:
        assert not dialect.quote
        return
    assert raw_value(cell, dialect) == value
    (record,) = split(dialect.delimiter.join([cell, "x"]) + "\n", dialect)
    assert record.values == [value, "x"]
    assert raw_cells(record, dialect) == ([cell, "x"], "\n")
