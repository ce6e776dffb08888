"""What a cell says: its text, an id, a category."""

from __future__ import annotations

import decimal
import uuid
from typing import Any

from pipelines.catalog.cells import JsonNumber, cell_id
from tests.tables import table

UUID = uuid.UUID("12345678-1234-5678-1234-567812345678")


@table(
    ("value", "product_id"),
    [
        (None, ""),
        (float("nan"), ""),
        ("007", "007"),
        (2**64 - 1, "18446744073709551615"),
        (12.0, "12"),
        (2.0**53 - 1, "9007199254740991"),
        (decimal.Decimal("9" * 38), "9" * 38),
        (decimal.Decimal("1E+3"), "1000"),
        (JsonNumber("12345678901234567890"), "12345678901234567890"),
        (JsonNumber("8" * 5000), "8" * 5000),
        (b"B07X", "B07X"),
        (UUID, str(UUID)),
    ],
)
def test_ids_are_texts_or_exact_whole_numbers(value: Any, product_id: str) -> None:
    assert cell_id(value) == product_id
