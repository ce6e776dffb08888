"""Lines of JSONL files: what is read of them, and why not."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pipelines.catalog.text_files import parse_line


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
