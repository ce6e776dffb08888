from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpd_core import Attribute, CategorySchema, Record
from pipelines.catalog.rows import RowRefusal, check_column_types, field_text, parse_line, row_json, to_record
from pipelines.config.extraction import InputConfig
from pipelines.errors import UsageError

SCHEMAS = {"Shoes": CategorySchema(category="Shoes", attributes=(Attribute(name="Brand"),))}
CONFIG = InputConfig(path=("x",), id="id", fields={"title": "name", "features": "bullets"})


def take(**row: Any) -> Record | RowRefusal:
    return to_record({"id": "1", "category": "Shoes", "name": "t"} | row, "file:0", CONFIG, SCHEMAS)


def test_a_row_becomes_a_record_with_fields_in_the_order_of_the_mapping() -> None:
    record = take(bullets=["a", None, "b", ""], name="Shoe", other=5)
    assert record == Record("1", "Shoes", {"title": "Shoe", "features": "a\nb"})
    assert list(record.fields) == ["title", "features"]


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"id": None}, "null_id", "column 'id' is empty"),
        ({"id": ""}, "null_id", "column 'id' is empty"),
        ({"id": True}, "wrong_type", "text or a whole number is needed, not a truth value"),
        ({"id": 1.5}, "wrong_type", "text or a whole number is needed, not a number"),
        ({"id": ["a"]}, "wrong_type", "not a list"),
        ({"id": "\ud800"}, "wrong_type", "half a surrogate pair"),
        ({"category": None}, "null_category", "column 'category' is empty"),
        ({"category": ""}, "null_category", "column 'category' is empty"),
        ({"category": 5}, "wrong_type", "column 'category': text is needed, not a number"),
        ({"category": "Hats"}, "no_schema", "no schema for category 'Hats'"),
        (
            {"name": {"en": "t"}},
            "wrong_type",
            "column 'name': text, a number or a list of them is needed, not an object",
        ),
        ({"name": [["t"]]}, "wrong_type", "column 'name'"),
        ({"name": b"t"}, "wrong_type", "not a bytes"),
        ({"name": "\ud800"}, "wrong_type", "half a surrogate pair"),
        ({"name": None, "bullets": [" ", None]}, "no_text", "every text column is empty: name, bullets"),
    ],
)
def test_a_row_that_is_no_record_says_why(change: dict[str, Any], code: str, message: str) -> None:
    refusal = take(**change)
    assert isinstance(refusal, RowRefusal)
    assert refusal.code == code
    assert message in refusal.message


def test_whole_numbers_are_ids_and_without_a_column_the_place_is_the_id() -> None:
    assert take(id=42).id == "42"
    config = InputConfig(path=("x",), fields={"title": "name"})
    record = to_record({"category": "Shoes", "name": "t"}, "catalog:17", config, SCHEMAS)
    assert isinstance(record, Record)
    assert record.id == "catalog:17"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (float("nan"), ""),
        (3, "3"),
        (3.0, "3"),
        (0.1, "0.1"),
        (1e300, "1e+300"),
        (True, "true"),
        (decimal.Decimal("1.50"), "1.50"),
        (datetime.date(2026, 11, 21), "2026-11-21"),
        (["a", 1, None], "a|1"),
        ([], ""),
        ({}, None),
        ([{}], None),
    ],
)
def test_cells_have_one_text(value: Any, text: str | None) -> None:
    assert field_text(value, "|") == text


@given(st.binary())
def test_any_line_is_a_row_or_a_problem(line: bytes) -> None:
    parsed = parse_line(line)
    assert (parsed.row is None) == (parsed.problem is not None)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner), max_leaves=5))
def test_any_json_value_is_a_record_or_a_refusal(value: Any) -> None:
    for column in ("id", "category", "name", "bullets"):
        assert isinstance(take(**{column: value}), (Record, RowRefusal))


def test_lines() -> None:
    assert parse_line(b'\xef\xbb\xbf{"a": 1}\r\n').row == {"a": 1}
    assert "not JSON" in str(parse_line(b'{"a": ').problem)
    assert "not UTF-8" in str(parse_line(b'{"a": "\xe9"}').problem)
    assert parse_line(b"[1]").problem == "a JSON object is needed, not a list"
    assert parse_line(b"null").problem == "a JSON object is needed, not null"
    assert "nested too deeply" in str(parse_line(b"[" * 200_000).problem)


def test_dead_rows_are_kept_as_text_whatever_they_hold() -> None:
    assert json.loads(row_json({"d": datetime.date(2026, 1, 2), "b": b"x"})) == {"d": "2026-01-02", "b": "b'x'"}
    assert row_json({"a": "ü"}) == '{"a": "ü"}'
    assert row_json({"a": "\ud800"}).encode() == b'{"a": "\\ud800"}'


@pytest.mark.parametrize(
    ("column", "kind", "is_fine"),
    [
        ("id", pa.int32(), True),
        ("id", pa.large_string(), True),
        ("id", pa.float64(), False),
        ("category", pa.dictionary(pa.int32(), pa.string()), True),
        ("category", pa.null(), True),
        ("category", pa.int64(), False),
        ("name", pa.list_(pa.string()), True),
        ("name", pa.date32(), True),
        ("name", pa.list_(pa.list_(pa.string())), False),
        ("name", pa.struct([("en", pa.string())]), False),
        ("name", pa.map_(pa.string(), pa.string()), False),
        ("name", pa.binary(), False),
    ],
)
def test_columns_that_cannot_hold_what_they_are_mapped_to(column: str, kind: pa.DataType, is_fine: bool) -> None:
    kinds = {"id": pa.string(), "category": pa.string(), "name": pa.string(), "bullets": pa.string()} | {column: kind}
    schema = pa.schema(list(kinds.items()))
    if is_fine:
        check_column_types(CONFIG, schema, "f.parquet")
        return
    with pytest.raises(UsageError, match=rf"column '{column}' \(input\..*\) of f\.parquet has the type"):
        check_column_types(CONFIG, schema, "f.parquet")
