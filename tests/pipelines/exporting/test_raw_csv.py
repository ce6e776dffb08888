"""Records and cells keep every letter, and say what the run's reader says."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from pipelines.catalog.delimited import Dialect, read_records
from pipelines.exporting.filled_csv import RawRecord, raw_cells, raw_records, raw_value, to_raw

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
