from __future__ import annotations

from typing import Any

import pytest

from hpd_core import Attribute, CategorySchema, Record
from pipelines.catalog.cells import CellError
from pipelines.catalog.rows import MAX_CHARS, RowRefusal, to_record
from pipelines.config.catalog_input import InputConfig
from tests.tables import table

SCHEMAS = {"Shoes": CategorySchema(category="Shoes", attributes=(Attribute(name="Brand"),))}
CONFIG = InputConfig(path=("x",), id="id", fields={"title": "name", "features": "bullets"})


def take(**row: Any) -> Record | RowRefusal:
    return to_record({"id": "1", "category": "Shoes", "name": "t"} | row, "file:0", CONFIG, SCHEMAS)


@table(
    ("change", "code", "message"),
    [
        ({"id": None}, "null_id", "column 'id' is empty"),
        ({"id": True}, "wrong_type", "text or a whole number is needed, not a truth value"),
        ({"id": 1.5}, "wrong_type", "text or a whole number is needed, not the number 1.5"),
        ({"id": 2.0**53}, "wrong_type", "store ids as text"),
        ({"id": ["a"]}, "wrong_type", "not a list"),
        ({"id": "\ud800"}, "wrong_type", "half a surrogate pair"),
        ({"category": None}, "null_category", "column 'category' is empty"),
        ({"category": 5}, "wrong_type", "column 'category': text is needed, not a number"),
        ({"category": "Hats"}, "no_schema", "no schema for category 'Hats'"),
        (
            {"name": {"en": "t"}},
            "wrong_type",
            "column 'name': text, a number or a list of them is needed, not an object",
        ),
        ({"name": b"\xe9"}, "unreadable", "column 'name': not UTF-8: unexpected end of data at byte 0"),
        ({"name": CellError("doubled_column", "it stands twice")}, "doubled_column", "column 'name': it stands twice"),
        ({"id": CellError("unreadable", "it is odd")}, "unreadable", "column 'id': it is odd"),
        ({"name": "\ud800"}, "wrong_type", "half a surrogate pair"),
        ({"name": "a" * MAX_CHARS}, "too_long", "the row has 2,000,001 characters of text; 2,000,000 are the most"),
        ({"name": None, "bullets": [" ", None]}, "no_text", "every text column is empty: name, bullets"),
    ],
)
def test_a_row_that_is_no_record_says_why(change: dict[str, Any], code: str, message: str) -> None:
    refusal = take(**change)
    assert isinstance(refusal, RowRefusal)
    assert refusal.code == code
    assert message in refusal.message


def test_what_nobody_has_foreseen_costs_its_row_only(caplog: pytest.LogCaptureFixture) -> None:
    class Odd(list[Any]):
        def __iter__(self) -> Any:
            raise KeyError("odd \ud800")

    refusal = take(bullets=Odd())
    assert isinstance(refusal, RowRefusal)
    assert (refusal.code, refusal.message) == ("unreadable", "the row cannot be read: KeyError: 'odd \\ud800'")
    assert "a row could not be read" in caplog.text
