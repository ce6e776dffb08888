"""Cells of Parquet files: what is read of every type, and which types are refused before a run."""

from __future__ import annotations

import datetime
import decimal
import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.catalog.cells import cell_text
from pipelines.catalog.parquet_rows import check_column_types, to_rows
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import UsageError
from tests.pipelines.catalog.test_rows import CONFIG
from tests.tables import table

KINDS = {"id": pa.string(), "category": pa.string(), "name": pa.string(), "bullets": pa.string()}


def stored(cells: pa.Array) -> list[Any]:
    """The cells of a column that was written to a Parquet file and read back."""
    buffer = io.BytesIO()
    pq.write_table(pa.table({"x": cells}), buffer)
    batches = pq.ParquetFile(buffer).iter_batches()
    return [row["x"] for batch in batches for row in to_rows(batch, ["x"])]


def texts(cells: pa.Array) -> list[str]:
    return [cell_text(cell, "|") for cell in stored(cells)]


FLOATS = [0.1, 12.99, 3.0, 1e20, 16777216.0, 1e-45, float("nan"), None]
NANOSECONDS = 1_764_000_000_000_000_000


@table(
    ("cells", "expected"),
    [
        (pa.array(FLOATS, pa.float32()), ["0.1", "12.99", "3", "1e+20", "16777216", "1e-45", "", ""]),
        (pa.array(FLOATS[:3], pa.float64()), ["0.1", "12.99", "3"]),
        (pa.array([np.float16(0.1), np.float16(65504), None], pa.float16()), ["0.1", "65504", ""]),
        (pa.array([[0.1, None, 2.5], None, []], pa.list_(pa.float32())), ["0.1|2.5", "", ""]),
        (pa.array([0.1, None, 0.1], pa.float32()).dictionary_encode(), ["0.1", "", "0.1"]),
        (pa.array([decimal.Decimal("1.50"), decimal.Decimal("-0.00")], pa.decimal128(9, 2)), ["1.50", "0.00"]),
        (pa.array([decimal.Decimal("1" * 60 + "." + "0" * 10)], pa.decimal256(70, 10)), ["1" * 60 + "." + "0" * 10]),
        (pa.array([-(2**63), 2**63 - 1], pa.int64()), ["-9223372036854775808", "9223372036854775807"]),
        (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
        (pa.array([True, False, None]), ["true", "false", ""]),
        (pa.array([b"Caf\xc3\xa9", b"", None], pa.binary()), ["Café", "", ""]),
        (pa.array([b"B07"], pa.binary(3)), ["B07"]),
        (pa.array([b"a"], pa.binary_view()), ["a"]),
        (pa.array([[b"a", b"b"]], pa.list_(pa.binary())), ["a|b"]),
        (pa.array(["a", None], pa.string_view()), ["a", ""]),
        (pa.array([["a", None, "b"]], pa.list_view(pa.string())), ["a|b"]),
        (pa.nulls(2), ["", ""]),
        (pa.array([datetime.date(2026, 11, 21)], pa.date32()), ["2026-11-21"]),
        (pa.array([NANOSECONDS], pa.timestamp("ns")), ["2025-11-24T16:00:00"]),
        (pa.array([NANOSECONDS + 1], pa.timestamp("ns")), ["2025-11-24T16:00:00.000000001"]),
        (pa.array([NANOSECONDS // 1000], pa.timestamp("us", "Europe/Berlin")), ["2025-11-24T17:00:00+01:00"]),
        (pa.array([30_600_000_000_000, None], pa.time64("ns")), ["08:30:00", ""]),
        # A time's text does not depend on the times beside it.
        (
            pa.array([30_600_000_000_001, 30_600_000_000_000, 30_600_000_001_000], pa.time64("ns")),
            ["08:30:00.000000001", "08:30:00", "08:30:00.000001"],
        ),
        (pa.array([[0]], pa.list_(pa.timestamp("s", "Mars/Phobos"))), ["1970-01-01T00:00:00+00:00"]),
        (pa.array([30_600_000], pa.time32("ms")), ["08:30:00"]),
        (pa.array([bytes(range(16))], pa.uuid()), ["00010203-0405-0607-0809-0a0b0c0d0e0f"]),
        (pa.array(['{"a": 1}'], pa.json_()), ['{"a": 1}']),
        (pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8())), ["true", "false"]),
        (pa.array([], pa.string()), []),
    ],
)
def test_every_type_has_the_text_of_its_values(cells: pa.Array, expected: list[str]) -> None:
    assert texts(cells) == expected


def test_the_way_out_is_one_that_keeps_ids_whole() -> None:
    schema = pa.schema(list((KINDS | {"id": pa.float32()}).items()))
    with pytest.raises(UsageError, match=r'Write it as whole numbers, in DuckDB .*CAST\("id" AS BIGINT\) AS "id"'):
        check_column_types(CONFIG, schema, "f.parquet")
    schema = pa.schema(list((KINDS | {"name": pa.duration("s")}).items()))
    with pytest.raises(UsageError, match=r'Write it as text, in DuckDB .*CAST\("name" AS VARCHAR\) AS "name"'):
        check_column_types(CONFIG, schema, "f.parquet")


def test_a_mapped_column_that_stands_twice_is_refused() -> None:
    schema = pa.schema([*KINDS.items(), ("name", pa.string())])
    with pytest.raises(
        UsageError, match=r"column 'name' \(input.fields\) stands 2 times in f\.parquet.*rename or drop"
    ):
        check_column_types(CONFIG, schema, "f.parquet")
    config = InputConfig(path=("x",), id="id", fields={"bullets": "bullets"})
    check_column_types(config, schema, "f.parquet")
