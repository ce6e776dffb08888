"""Packed JSON Lines: the same rows as of the lines themselves, kept once."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.catalog.cells import CellError
from pipelines.catalog.input_files import SourceFile, scan_sources
from pipelines.catalog.readers import read_piece
from pipelines.catalog.rows import SourceRow
from pipelines.catalog.sharding import RowRange, plan_shards
from pipelines.config.catalog_input import InputConfig
from pipelines.config.operation import ShardConfig
from tests.examples import examples

pytestmark = pytest.mark.usefixtures("own_cache")


def scan(path: Path, *fields: str, **more: Any) -> SourceFile:
    config = {"path": str(path), "id": "id", "category": {"text": "Shoes"}, "fields": list(fields or ("title",))}
    (file,) = scan_sources(InputConfig.model_validate(config | more)).files
    return file


def rows_of(file: SourceFile, start: int = 0, stop: int | None = None) -> list[SourceRow]:
    stop = file.stop if stop is None else stop
    count = sum(file.row_counts[start:stop]) if file.is_in_lines else stop - start
    return list(read_piece(*file.rows, RowRange(0, start, stop, count, 0, file.size), ["id"]))


def seen(row: SourceRow) -> tuple[Any, ...]:
    cells = {name: "error" if isinstance(cell, CellError) else cell for name, cell in (row.values or {}).items()}
    return row.number, cells, row.problem


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.one_of(
            st.just(""),
            st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=9),
            st.dictionaries(st.text(max_size=4), st.text(max_size=9) | st.floats() | st.integers(), max_size=4).map(
                lambda row: json.dumps(row | {"id": "x", "title": "y"})
            ),
        ),
        max_size=20,
    )
)
def test_any_lines(tmp_path: Path, rows: list[str]) -> None:
    data = "\n".join(['{"id": "1", "title": "a"}', *rows]).encode()
    (tmp_path / "a.jsonl").write_bytes(data)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(data))
    plain, packed = scan(tmp_path / "a.jsonl"), scan(tmp_path / "b.jsonl.gz")
    assert [*map(repr, map(seen, rows_of(packed)))] == [*map(repr, map(seen, rows_of(plain)))]
    shards = plan_shards([packed], ShardConfig(max_rows=3), 10, 1)
    assert sum(piece.num_rows for shard in shards for piece in shard.pieces) == plain.num_rows
