"""Cells of Parquet files: what is read of every type, and which types are refused before a run."""

from __future__ import annotations

import datetime
import decimal
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.catalog.cells import CellError, cell_id, cell_text
from pipelines.catalog.column_types import check_column_types
from pipelines.catalog.input_files import scan_sources
from pipelines.catalog.parquet_rows import to_rows
from pipelines.catalog.readers import read_piece
from pipelines.catalog.rows import Record, row_json, to_record
from pipelines.catalog.sharding import RowRange
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import UsageError
from tests.pipelines.catalog.test_rows import CONFIG, SCHEMAS
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
        (pa.array([123456792.0, -8388609.0, 2.0**53], pa.float32()), ["123456792", "-8388609", "9007199000000000"]),
        (pa.array([[123456792.0, 12.99]], pa.list_(pa.float32())), ["123456792|12.99"]),
        (pa.array([[0.1, None, 2.5], None, []], pa.list_(pa.float32())), ["0.1|2.5", "", ""]),
        (pa.array([[0.1, 2.5]], pa.list_(pa.float32(), 2)), ["0.1|2.5"]),
        (pa.array([[0.1, 2.5]], pa.large_list(pa.float32())), ["0.1|2.5"]),
        (pa.array([[np.float16(0.1)]], pa.list_(pa.float16())), ["0.1"]),
        (pa.array([0.1, None, 0.1], pa.float32()).dictionary_encode(), ["0.1", "", "0.1"]),
        (pa.array([decimal.Decimal("1.50"), decimal.Decimal("-0.00")], pa.decimal128(9, 2)), ["1.50", "0.00"]),
        (pa.array([decimal.Decimal("1" * 60 + "." + "0" * 10)], pa.decimal256(70, 10)), ["1" * 60 + "." + "0" * 10]),
        (pa.array([-(2**63), 2**63 - 1], pa.int64()), ["-9223372036854775808", "9223372036854775807"]),
        (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
        (pa.array([True, False, None]), ["true", "false", ""]),
        (pa.array([b"Caf\xc3\xa9", b"", None], pa.binary()), ["Café", "", ""]),
        (pa.array([b"B07"], pa.binary(3)), ["B07"]),
        (pa.array([b"a"], pa.binary_view()), ["a"]),
        (pa.array([b"a"], pa.large_binary()), ["a"]),
        (pa.array([[b"a", b"b"]], pa.list_(pa.binary())), ["a|b"]),
        (pa.array([b"a", None]).dictionary_encode(), ["a", ""]),
        (pa.array(["a", None], pa.string_view()), ["a", ""]),
        (pa.array([["a", None, "b"]], pa.list_view(pa.string())), ["a|b"]),
        (pa.array([["a"]], pa.large_list_view(pa.string())), ["a"]),
        (pa.nulls(2), ["", ""]),
        (pa.array([datetime.date(2026, 11, 21)], pa.date32()), ["2026-11-21"]),
        (pa.array([datetime.date(2026, 11, 21)], pa.date64()), ["2026-11-21"]),
        (pa.array([NANOSECONDS], pa.timestamp("ns")), ["2025-11-24T16:00:00"]),
        (pa.array([NANOSECONDS + 1], pa.timestamp("ns")), ["2025-11-24T16:00:00.000000001"]),
        (pa.array([NANOSECONDS // 1000], pa.timestamp("us", "Europe/Berlin")), ["2025-11-24T17:00:00+01:00"]),
        (pa.array([30_600_000_000_000, None], pa.time64("ns")), ["08:30:00", ""]),
        # A time's text does not depend on the times beside it.
        (
            pa.array([30_600_000_000_001, 30_600_000_000_000, 30_600_000_001_000], pa.time64("ns")),
            ["08:30:00.000000001", "08:30:00", "08:30:00.000001"],
        ),
        (pa.array([[1, 1000]], pa.list_(pa.time64("ns"))), ["00:00:00.000000001|00:00:00.000001"]),
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


@table(
    ("cells", "reason"),
    [
        (pa.array([b"ok", b"M\xfcsli"]).view(pa.string()), "not UTF-8: invalid start byte at byte 1; it looks like W"),
        (pa.array([[b"ok"], [b"M\xfcsli"]], pa.list_(pa.binary())).cast(pa.list_(pa.binary())), "looks like Windows"),
        (pa.array([0, 400_000_000_000], pa.timestamp("s")), "years are 1 to 9999"),
        (pa.array([0, 2**31 - 1], pa.date32()), "years are 1 to 9999"),
        (pa.array([0, 10**14], pa.int64()).view(pa.time64("ns")), "days have 24 hours"),
        (pa.array([1.0, float("inf")], pa.float32()), "and infinity is none"),
        (pa.array([b"PT1H", b"\x03\x00\x00\x00"], pa.binary(4)), "its bytes are no text: byte 0x03"),
    ],
)
def test_what_no_text_can_be_made_of_costs_its_cell_only(cells: pa.Array, reason: str) -> None:
    good, bad = stored(cells)
    assert cell_text(good, "|")
    with pytest.raises(CellError) as caught:
        cell_text(bad, "|")
    assert reason in caught.value.reason


def test_times_of_old_files_and_odd_zones(tmp_path: Path) -> None:
    days = [datetime.datetime(9999, 12, 31), datetime.datetime(1, 1, 1), datetime.datetime(2026, 1, 2, 3, 4, 5, 6)]
    path = tmp_path / "c.parquet"
    times = pa.array(days, pa.timestamp("us"))
    pq.write_table(pa.table({"x": times}), path, use_deprecated_int96_timestamps=True)
    rows = [row.values or {} for row in read_piece(str(path), "parquet", RowRange(0, 0, 3, 3), ["x"])]
    assert [cell_text(row["x"], "") for row in rows] == [day.isoformat() for day in days]
    for zone, hour in (
        ("+05:30", "15:30:00+05:30"),
        ("US/Pacific", "02:00:00-08:00"),
        ("Mars/Phobos", "10:00:00+00:00"),
    ):
        cells = pa.array([datetime.datetime(2026, 1, 2, 10, tzinfo=datetime.UTC)], pa.timestamp("us", zone))
        assert texts(cells) == [f"2026-01-02T{hour}"]


def test_numbers_that_are_exact_are_ids() -> None:
    assert [cell_id(cell) for cell in stored(pa.array([1.0, 2.0**40, None], pa.float64()))] == ["1", str(2**40), ""]
    prices = pa.array([decimal.Decimal("7.00"), decimal.Decimal(10**30)], pa.decimal128(38, 2))
    assert [cell_id(cell) for cell in stored(prices)] == ["7", str(10**30)]


def test_a_row_keeps_all_its_cells() -> None:
    columns = [pa.array([1]), pa.array([2]), pa.array([0.1], pa.float32()), pa.array([b"M\xfcsli"]).view(pa.string())]
    batch = pa.RecordBatch.from_arrays(columns, names=["a", "a", "a (2)", "b"])
    (row,) = to_rows(batch, None)
    assert json.loads(row_json(row)) == {
        "a": 1,
        "a (3)": 2,
        "a (2)": 0.1,
        "b": "not UTF-8: invalid start byte at byte 1; it looks like Windows-1252 or Latin-1: "
        "iconv -f WINDOWS-1252 -t UTF-8",
    }
    (row,) = to_rows(batch, ["a", "b"])
    assert isinstance(row["a"], CellError)
    assert row["a"].code == "doubled_column"
    assert to_rows(pa.RecordBatch.from_arrays([], names=[]), None) == []
    assert to_rows(pa.table({"a": [1, 2]}).select([]).to_batches()[0], []) == [{}, {}]


def test_nested_cells_of_other_columns_do_not_hinder(tmp_path: Path) -> None:
    doubled = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["k", "k"])
    others = {
        "map": pa.array([[("k", 0.1)]], pa.map_(pa.string(), pa.float32())),
        "struct": pa.array(
            [{"w": 0.1, "deep": [{"h": 0.2}]}],
            pa.struct({"w": pa.float32(), "deep": pa.list_(pa.struct({"h": pa.float32()}))}),
        ),
        "doubled": doubled,
        "span": pa.array([datetime.timedelta(hours=1)]),
        "picture": pa.array([b"\x89PNG"]),
    }
    batch = pa.RecordBatch.from_pydict(others)
    (row,) = to_rows(batch, None)
    found = json.loads(row_json(row))
    assert found["map"] == [["k", 0.1]]
    assert found["struct"] == {"w": 0.1, "deep": [{"h": 0.2}]}
    assert "duplicate field names" in found["doubled"]
    assert found["picture"] == "\\x89PNG"
    assert isinstance(to_record(row | {"id": "1", "category": "Shoes", "name": "t"}, "", CONFIG, SCHEMAS), Record)


@table(
    ("column", "kind", "is_fine"),
    [
        ("id", pa.int32(), True),
        ("id", pa.large_string(), True),
        ("id", pa.float64(), True),
        ("id", pa.decimal128(20, 0), True),
        ("id", pa.binary(), True),
        ("id", pa.uuid(), True),
        ("id", pa.float32(), False),
        ("id", pa.bool_(), False),
        ("id", pa.timestamp("us"), False),
        ("id", pa.list_(pa.string()), False),
        ("category", pa.dictionary(pa.int32(), pa.string()), True),
        ("category", pa.dictionary(pa.int32(), pa.binary()), True),
        ("category", pa.null(), True),
        ("category", pa.int64(), False),
        ("category", pa.uuid(), False),
        ("category", pa.list_(pa.string()), False),
        ("name", pa.list_(pa.string()), True),
        ("name", pa.list_view(pa.string()), True),
        ("name", pa.list_(pa.dictionary(pa.int32(), pa.string())), True),
        ("name", pa.run_end_encoded(pa.int32(), pa.string()), True),
        ("name", pa.date32(), True),
        ("name", pa.binary(), True),
        ("name", pa.json_(), True),
        ("name", pa.bool8(), True),
        ("name", pa.list_(pa.list_(pa.string())), False),
        ("name", pa.struct([("en", pa.string())]), False),
        ("name", pa.map_(pa.string(), pa.string()), False),
        ("name", pa.list_(pa.struct([("en", pa.string())])), False),
        ("name", pa.duration("ms"), False),
        ("name", pa.list_(pa.duration("ms")), False),
        ("name", pa.month_day_nano_interval(), False),
        ("name", pa.dense_union([pa.field("a", pa.string())]), False),
        ("name", pa.fixed_shape_tensor(pa.float32(), [2]), False),
    ],
)
def test_columns_that_cannot_hold_what_they_are_mapped_to(column: str, kind: pa.DataType, is_fine: bool) -> None:
    schema = pa.schema(list((KINDS | {column: kind}).items()))
    if is_fine:
        check_column_types(CONFIG, schema, "f.parquet")
        return
    told = rf"column '{column}' \(input\..*\) of f\.parquet has the type .* are needed\. Write it as .*, in DuckDB"
    with pytest.raises(UsageError, match=told):
        check_column_types(CONFIG, schema, "f.parquet")


def test_the_way_out_is_one_that_keeps_ids_whole() -> None:
    schema = pa.schema(list((KINDS | {"id": pa.float32()}).items()))
    with pytest.raises(UsageError, match=r'Write it as whole numbers, in DuckDB .*CAST\("id" AS BIGINT\) AS "id"'):
        check_column_types(CONFIG, schema, "f.parquet")
    schema = pa.schema(list((KINDS | {"name": pa.duration("s")}).items()))
    with pytest.raises(UsageError, match=r'Write it as text, in DuckDB .*CAST\("name" AS VARCHAR\) AS "name"'):
        check_column_types(CONFIG, schema, "f.parquet")


@table(("stored", "is_fine"), [(pa.string(), True), (pa.binary(), False), (pa.int64(), False)])
def test_an_unknown_extension_is_read_where_it_is_text(stored: pa.DataType, is_fine: bool) -> None:
    field = pa.field("name", stored, metadata={"ARROW:extension:name": "geoarrow.shape"})
    schema = pa.schema([pa.field(name, kind) for name, kind in KINDS.items() if name != "name"] + [field])
    if is_fine:
        check_column_types(CONFIG, schema, "f.parquet")
        return
    with pytest.raises(UsageError, match=r"has the type geoarrow\.shape"):
        check_column_types(CONFIG, schema, "f.parquet")


def test_a_mapped_column_that_stands_twice_is_refused() -> None:
    schema = pa.schema([*KINDS.items(), ("name", pa.string())])
    with pytest.raises(
        UsageError, match=r"column 'name' \(input.fields\) stands 2 times in f\.parquet.*rename or drop"
    ):
        check_column_types(CONFIG, schema, "f.parquet")
    config = InputConfig(path=("x",), id="id", fields={"bullets": "bullets"})
    check_column_types(config, schema, "f.parquet")


def test_bytes_that_are_taken_for_text_are_told_before_a_run(tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    pq.write_table(pa.table({"category": [b"Shoes"], "name": pa.array([[b"a"]]), "title": ["t"], "z": [b"z"]}), path)
    sources = scan_sources(InputConfig(path=(str(path),), fields={"title": "title", "name": "name"}))
    told = f" holds bytes in {path}: they are read as UTF-8 text, and where they are none the row will be a dead letter"
    assert sources.warnings() == [f"column 'category'{told}", f"column 'name'{told}"]
