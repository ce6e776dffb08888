"""Tables come out as they were written, cell for cell; what is broken costs itself alone."""

from __future__ import annotations

import csv
import io
from itertools import chain
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipelines.catalog.delimited import Dialect, find_dialect, read_records
from pipelines.catalog.text_files import decoded, split_lines
from tests.examples import examples
from tests.tables import table

Table = list[list[str]]


def read(text: str, dialect: Dialect | None = None) -> list[list[str] | str]:
    """The cells of every record, or why there are none."""
    dialect = dialect or find_dialect(text, None, None, None)
    return [
        record.cells if record.cells is not None else record.problem
        for record in read_records([*io.StringIO(text, newline="")], dialect)
    ]


_characters = st.characters(exclude_categories=["Cs"]) | st.sampled_from(list(",;\t|\"'\\\r\n \0\u2028\x1c"))


@st.composite
def tables(draw: st.DrawFn) -> Table:
    width = draw(st.integers(1, 4))
    return draw(
        st.lists(st.lists(st.text(_characters, max_size=6), min_size=width, max_size=width), min_size=1, max_size=6)
    )


@settings(max_examples=examples(400))
@given(
    table=tables(),
    delimiter=st.sampled_from([",", ";", "\t", "|", "^"]),
    quote=st.sampled_from(['"', "'"]),
    escape=st.sampled_from(["", "\\"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32-be"]),
    size=st.integers(1, 9),
)
def test_what_the_csv_module_writes_is_read_back(
    table: Table, delimiter: str, quote: str, escape: str, quoting: int, end: str, encoding: str, size: int
) -> None:
    """Whatever the dialect, and wherever the bytes are cut into chunks."""
    # Python's writer quotes only those line ends with which it ends lines itself.
    assume(quoting == csv.QUOTE_ALL or end == "\r\n" or not any("\r" in cell or "\n" in cell for cell in chain(*table)))
    buffer = io.StringIO(newline="")
    options: dict[str, Any] = {"escapechar": escape or None, "doublequote": not escape, "lineterminator": end}
    csv.writer(buffer, delimiter=delimiter, quotechar=quote, quoting=quoting, **options).writerows(table)
    text = buffer.getvalue()
    # A mark at the beginning of a cell would be taken for the file's.
    assume(not text.startswith("\ufeff"))

    class Chunks(io.BytesIO):
        def read(self, _: int | None = None) -> bytes:
            return super().read(size)

    lines = split_lines(decoded(Chunks(text.encode(encoding)), "utf-16" if encoding == "utf-16" else encoding, "c.csv"))
    assert [record.cells for record in read_records(lines, Dialect(delimiter, quote, escape))] == table


@st.composite
def written_tables(draw: st.DrawFn) -> tuple[Table, str]:
    """A table, and the text that Python's writer makes of it in one of the dialects that are looked for."""
    delimiter = draw(st.sampled_from(",;\t|"))
    # Another delimiter without quotes around it may as well be one.
    characters = st.sampled_from(list(f'ab1 \'\\""\n\n{delimiter}{delimiter}'))
    width, height = draw(st.integers(1, 3)), draw(st.integers(1, 8))
    row = st.lists(st.text(characters, max_size=8), min_size=width, max_size=width)
    table = draw(st.lists(row, min_size=height, max_size=height))
    buffer = io.StringIO(newline="")
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    csv.writer(buffer, delimiter=delimiter, quoting=quoting, lineterminator=end).writerows(table)
    text = buffer.getvalue()
    return table, text.removesuffix(end) if draw(st.booleans()) else text


@settings(max_examples=examples(1000))
@given(written_tables())
def test_what_the_csv_module_writes_is_read_back_as_it_is_found(written: tuple[Table, str]) -> None:
    table, text = written
    assert read(text) == table


def test_where_a_sample_is_cut_does_not_matter() -> None:
    """Also within the only cell that shows what quotes mean, and whatever its lines look like."""
    cell = "".join(f"line {number}, and more\n" for number in range(4))
    text = "id,description\n" + "".join(f"{row},plain\n" for row in range(40)) + f'41,"{cell}"\n'
    for stop in range(text.index('"') + 2, len(text)):
        assert find_dialect(text[:stop], None, None, None, is_cut=True) == Dialect(","), text[:stop]
    long = 'id,description\n1,"' + "a line\n" * 1000
    assert find_dialect(long, None, None, None, is_cut=True) == Dialect(",")


def test_a_broken_record_costs_itself_alone() -> None:
    text = 'a,b\n1,"x\ny"\n2,"open\n3,"c"\n4\n\n5,6,7\n7,8,,\n8,"q"x\n9,z\n10,"end\n11,k\n'
    assert read(text, Dialect(",")) == [
        ["a", "b"],
        ["1", "x\ny"],
        "a quote stands within a quoted cell; it is written twice there, or the cell is not closed",
        ["3", "c"],
        "1 cell for 2 columns",
        "3 cells for 2 columns; behind the last column stands '7'",
        ["7", "8"],
        "a quote stands within a quoted cell; it is written twice there, or the cell is not closed",
        ["9", "z"],
        "the file ends within quotes: a quote is not closed",
        ["11", "k"],
    ]


def test_missing_last_cells_are_empty_unless_a_line_end_may_part_a_record() -> None:
    """As Excel leaves out the delimiters of empty cells."""
    header = "sku,category,title,care\n"
    assert read(header + "1,Shoes,Red shoe\n2,Shoes,Blue shoe\n3,Shoes\n4,Shoes,Shoe,wash\n5,Shoes\n", Dialect(","))[
        1:
    ] == [
        ["1", "Shoes", "Red shoe", ""],
        ["2", "Shoes", "Blue shoe", ""],
        ["3", "Shoes", "", ""],
        ["4", "Shoes", "Shoe", "wash"],
        ["5", "Shoes", "", ""],
    ]
    for parted in ("shoe of size 4,wash", "shoe\nof size 4,wash", "shoe,wash", "shoe, nice\nfine, brown"):
        found = read(f"{header}0,Shoes,Shoe,wash\n1,Shoes,Red\n{parted}\n9,Shoes\n8,Shoes,a,b\n7,Shoes\n", Dialect(","))
        assert [record[0] for record in found[1:] if isinstance(record, list)] == ["0", "8", "7"]
    assert "2 cells for 4 columns" in read(f"{header}1,Shoes,Shoe,Keep it\nwarm, light\n", Dialect(","))[2]


def test_spaces_behind_a_closing_quote_are_no_part_of_a_cell() -> None:
    text = 'a,b\n"1" ,"x ""y"" , z" \n"" ,"  , 5""" \n"3" x,4\n'
    assert read(text, Dialect(","))[1:] == [
        ["1", 'x "y" , z'],
        ["", '  , 5"'],
        "a quote stands within a quoted cell; it is written twice there, or the cell is not closed",
    ]


def test_a_quote_that_swallows_whole_records_is_found_out() -> None:
    assert read('a,b\n1,"open\n2,x\n3,"\n4,y\n', Dialect(",")) == [
        ["a", "b"],
        ["1", "open\n2,x\n3,"],
        ["4", "y"],
    ]  # nobody can tell
    assert read('a,b\n1,"open\n2,x\n3,",z\n4,y\n', Dialect(","))[1:3] == ["a quote is not closed", ["2", "x"]]


def test_a_quote_that_is_never_closed_takes_no_more_memory_than_a_row_may() -> None:
    lines = ("1,x\n" if number else '1,"x\n' for number in range(1_200_000))
    records = read_records(chain(["a,b\n"], lines), Dialect(","))
    next(records)
    broken = next(records)
    assert broken.text == '1,"x\n'
    assert "more than 2,000,000 characters" in broken.problem
    assert next(records).cells == ["1", "x"]


@table(
    ("text", "dialect"),
    [
        ("id,title\n1,a\n", Dialect(",")),
        ("id;title;price\n1;a, b;1,50\n2;c, d;2,50\n", Dialect(";")),
        ("id\ttitle\n1\ta; b\n", Dialect("\t")),
        ("id|title\n1|a, b\n", Dialect("|")),
        ('id,title\n1,"a ""b"", c"\n', Dialect(",")),
        ('id,title\n1,"a \\"b\\", c"\n2,"d"\n', Dialect(",", '"', "\\")),
        ('id\ttitle\n1\t"Best" shoe\n2\t12" nail\n3\tc\n', Dialect("\t", "")),
        ("sep=^\nid^title\n1^a,b\n", Dialect("^")),
        ("title\nshoe\nboot\n", Dialect(",")),
        ("", Dialect(",")),
    ],
)
def test_the_dialect_is_found(text: str, dialect: Dialect) -> None:
    assert find_dialect(text, None, None, None) == dialect
