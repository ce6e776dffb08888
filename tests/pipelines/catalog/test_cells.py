"""What a cell says: its text, an id, a category."""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

import pytest

from pipelines.catalog.cells import CellError, JsonNumber, cell_id, cell_text, field_text, not_utf8
from tests.tables import table

UUID = uuid.UUID("12345678-1234-5678-1234-567812345678")
DAY, TIME = datetime.date(2026, 11, 21), datetime.time(8, 30)


@table(
    ("value", "text"),
    [
        (None, ""),
        (float("nan"), ""),
        (3, "3"),
        (10**70, "1" + 70 * "0"),
        (3.0, "3"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e300, "1e+300"),
        (2.0**53, "9007199254740992.0"),
        (True, "true"),
        (JsonNumber("1.50"), "1.50"),
        (JsonNumber("-0"), "-0"),
        (JsonNumber("1e400"), "1e400"),
        (JsonNumber("9" * 5000), "9" * 5000),
        (decimal.Decimal("1.50"), "1.50"),
        (decimal.Decimal("1.23E+4"), "12300"),
        (decimal.Decimal("0E-10"), "0.0000000000"),
        (decimal.Decimal("1" * 76), "1" * 76),
        (DAY, "2026-11-21"),
        (datetime.datetime.combine(DAY, TIME), "2026-11-21T08:30:00"),
        (TIME, "08:30:00"),
        (UUID, "12345678-1234-5678-1234-567812345678"),
        ("Kühlschrank".encode(), "Kühlschrank"),
        (b"two\nlines", "two\nlines"),
        (["a", 1, None], "a|1"),
        ([JsonNumber("1.0"), float("nan"), b"b", decimal.Decimal("2.00")], "1.0|b|2.00"),
        ([], ""),
    ],
)
def test_cells_have_one_text(value: Any, text: str) -> None:
    assert cell_text(value, "|") == field_text(value, "|") == text
    assert type(cell_text(value, "|")) is str


@table(
    ("value", "code", "reason"),
    [
        ({}, "wrong_type", "text, a number or a list of them is needed, not an object; write it as text"),
        ([{}], "wrong_type", "not an object"),
        ([["a"]], "wrong_type", "not a list of lists; join the inner ones into text"),
        (datetime.timedelta(1), "wrong_type", "not a duration"),
        (float("inf"), "wrong_type", "and infinity is none"),
        ([1.0, float("-inf")], "wrong_type", "and infinity is none"),
        ("\ud83d", "wrong_type", "half a surrogate pair"),
        (["a", "\ud83d"], "wrong_type", "half a surrogate pair"),
        (b"\x03\x00\x00\x00", "unreadable", "its bytes are no text: byte 0x03 stands among them; store it as text"),
        (b"M\xfcsli, fein", "unreadable", "invalid start byte at byte 1; it looks like Windows-1252"),
        (CellError("doubled_column", "it stands twice"), "doubled_column", "it stands twice"),
    ],
)
def test_what_has_no_text_says_why(value: Any, code: str, reason: str) -> None:
    with pytest.raises(CellError) as caught:
        cell_text(value, "|")
    assert caught.value.code == code
    assert reason in caught.value.reason
    assert field_text(value, "|") is None


@table(
    ("value", "product_id"),
    [
        (None, ""),
        ("", ""),
        (float("nan"), ""),
        ("007", "007"),
        (42, "42"),
        (2**64 - 1, "18446744073709551615"),
        (12.0, "12"),
        (2.0**53 - 1, "9007199254740991"),
        (decimal.Decimal("12.00"), "12"),
        (decimal.Decimal("9" * 38), "9" * 38),
        (decimal.Decimal("1E+3"), "1000"),
        (JsonNumber("12345678901234567890"), "12345678901234567890"),
        (JsonNumber("12.0"), "12"),
        (JsonNumber("8" * 5000), "8" * 5000),
        (b"B07X", "B07X"),
        (UUID, str(UUID)),
    ],
)
def test_ids_are_texts_or_exact_whole_numbers(value: Any, product_id: str) -> None:
    assert cell_id(value) == product_id


@table(
    ("value", "reason"),
    [
        (True, "not a truth value"),
        (1.5, "not the number 1.5, whose digits are not an exact id; store ids as text"),
        (2.0**53, "not the number 9007199254740992.0"),
        (1e22, "not the number 1e+22"),
        (decimal.Decimal("1.5"), "not the number 1.5"),
        (JsonNumber("1.5"), "not the number 1.5"),
        (JsonNumber("1e3"), "not the number 1e3"),
        (JsonNumber("9007199254740993.0"), "not the number 9007199254740993.0"),
        (JsonNumber("1" + "0" * 5000 + ".0"), "... (5,003 characters)"),
        (DAY, "not a date or time"),
        (["a"], "not a list"),
        ("\ud800", "half a surrogate pair"),
    ],
)
def test_what_is_no_id_says_why(value: Any, reason: str) -> None:
    with pytest.raises(CellError) as caught:
        cell_id(value)
    assert reason in caught.value.reason


@table(
    ("data", "looks_like"),
    [
        ("Müsli".encode("cp1252"), "Windows-1252 or Latin-1: iconv -f WINDOWS-1252 -t UTF-8"),
        ("Müsli".encode("utf-16"), "UTF-16: iconv -f UTF-16 -t UTF-8"),
        ("Müsli, fein".encode("utf-32-le"), "UTF-32: iconv -f UTF-32 -t UTF-8"),
        ("Müs".encode()[:2], "its last character is cut off"),
        ("Müsli".encode() + b"\xfc", "what is before is UTF-8, so a character was cut or damaged"),
        (b"M\xed\xa0\xbd", "half a surrogate pair"),
    ],
)
def test_bytes_that_are_no_utf8_are_told_by_their_looks(data: bytes, looks_like: str) -> None:
    with pytest.raises(UnicodeDecodeError) as caught:
        data.decode()
    assert looks_like in not_utf8(data, caught.value)
