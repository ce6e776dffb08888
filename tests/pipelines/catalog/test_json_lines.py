"""Lines of JSONL files: what is read of them, and why not."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pipelines.catalog.json_lines import parse_line
from tests.tables import table


@table(
    ("line", "problem"),
    [
        (b'{"a": "x', "not JSON: it is cut off after 8 characters: its end is missing"),
        (b'{"a": {"b": 1}', "it is cut off after 14 characters"),
        (b'{"a": "x"} {"a": "y"}', "a second object at character 11; one a line is needed"),
        (b'{"a": "x"}\xef\xbb\xbf{"a": "y"}', "a second object at character 10"),
        (b'{"a": 1},', ", behind the object; JSON Lines has neither commas nor brackets"),
        (b'{"a": 1,}', "a comma at character 7 has nothing behind it"),
        (b'{"a": [1,]}', "a comma at character 8 has nothing behind it"),
        (b"{'a': 1}", "the quote ' at character 1; JSON wants \""),
        ("{“a”: 1}".encode(), "the quote “ at character 1"),
        (b"// products of May", "a comment; JSON has none"),
        (b"# products of May", "a comment; JSON has none"),
        (b'[{"a": 1}]', "a JSON object is needed, not a list; write its objects a line each"),
        (b"[", "[ alone; one whole object a line is needed"),
        (b'  "a": 1,', "a part of an object that goes over several lines"),
        (b'{"a": None}', "None at character 6 is no JSON"),
        (b"id,title,price", "id at character 0 is no JSON"),
        (b'{"a": "x\ty"}', "a control character (U+0009) stands in a text at character 8"),
        (b'{"a": "C:\\temp\\x"}', "a backslash at character 14 begins no escape; write it twice"),
        (b'{"a": 01}', "a comma or a closing bracket is missing at character 7, where '1}' stands"),
        (b'{"a"=1}', "a colon is missing at character 4"),
        (b'{"a": .5}', "a value is missing at character 6, where '.5}' stands"),
        (b'{"a": 1}\x0c', "'\\x0c' stands behind the end"),
        (b"\xef\xbb\xbf\r", "nothing stands in the line"),
        (b"\x00" * 64, "nothing but NUL bytes; the file is damaged"),
        ('{"a": "x"}'.encode("utf-16-le"), "it looks like UTF-16: iconv -f UTF-16 -t UTF-8"),
        ('{"a": "é"}'.encode("utf-16"), "it looks like UTF-16: iconv -f UTF-16 -t UTF-8"),
        ('{"a": "é"}'.encode("latin-1"), "not UTF-8: invalid continuation byte at byte 7; it looks like Windows-1252"),
        (b"null", "a JSON object is needed, not null"),
        (b"5", "a JSON object is needed, not a number"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a":' * 200_000, "nested too deeply"),
    ],
)
def test_a_broken_line_says_what_is_wrong(line: bytes, problem: str) -> None:
    parsed = parse_line(line)
    assert parsed.row is None
    assert problem in str(parsed.problem)
    assert len(str(parsed.problem)) < 250


@given(st.binary())
def test_any_line_is_a_row_or_a_problem(line: bytes) -> None:
    parsed = parse_line(line)
    assert (parsed.row is None) == (parsed.problem is not None)


@given(st.dictionaries(st.text(), st.text() | st.none() | st.booleans() | st.lists(st.text())))
def test_what_json_can_say_without_numbers_is_read_as_it_is(row: dict[str, object]) -> None:
    assert parse_line(json.dumps(row).encode()).row == row


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_worth_what_json_says(number: float) -> None:
    row = parse_line(json.dumps({"a": number}).encode()).row
    assert row is not None
    assert row["a"] == json.dumps(number)
