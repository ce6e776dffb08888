"""Paths into nested columns: in a row, in the type of a Parquet file, and in what is read of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.catalog.cells import CellError
from pipelines.catalog.input_files import scan_sources
from pipelines.catalog.paths import value_at
from pipelines.catalog.readers import read_piece
from pipelines.catalog.sharding import RowRange
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import UsageError
from tests.tables import table

ROW: dict[str, Any] = {
    "title": "Bag",
    "a.b": "literal",
    "a": {"b": "nested", "c.d": 1, "c": {"d": 2}},
    "a.x": {"y": 3},
    "images": [{"alt": "front", "size": [1, 2]}, {"alt": None}, {"alt": "back"}],
    "sizes": ["S", "M"],
    "json": '{"Brand": "Acme", "Tags": ["x", "y"]}',
    "map": [("Brand", "Acme"), ("Color", None)],
    "none": None,
    "name": [
        {"tag": "de_DE", "text": "Tasche"},
        {"tag": "en_GB", "text": "bag"},
        {"tag": "en_US", "text": "purse"},
        {"tag": "en_GB", "text": "tote"},
        {"tag": None, "text": "?"},
        "loose",
    ],
}


@table(
    ("path", "value"),
    [
        ("title", "Bag"),
        ("a.b", "literal"),
        ("a.c.d", 2),
        ("a.x.y", 3),
        ("z.b", None),
        ("images[0].alt", "front"),
        ("images[-1].alt", "back"),
        ("images[7].alt", None),
        ("images.alt", ["front", "back"]),
        ("images[0].size[1]", 2),
        ("title[0]", "Bag"),
        ("json.Brand", "Acme"),
        ("map.Brand", "Acme"),
        ("none.x", None),
        ("name[tag=en_US].text", ["purse"]),
        ("name[tag=en*].text", ["bag", "tote"]),
        ("name[tag=en*][-1].text", "tote"),
        ("name[tag=fr*|de*|*].text", ["Tasche"]),
        ("name[tag=fr].text", []),
        ("name[lang=en].text", []),
        ("images[alt=back].alt", ["back"]),
        ("a[b=nested].b", ["nested"]),
        ("images[", None),
        ("", None),
    ],
)
def test_where_paths_lead(path: str, value: Any) -> None:
    assert value_at(ROW, path) == value


@table("path", ["title.x", "title[1]", "a[0]", "a.c.d.e", "title[a=b]", "a.c.d[e=f]"])
def test_a_path_through_something_else_is_told(path: str) -> None:
    found = value_at(ROW, path)
    assert isinstance(found, CellError)
    assert found.code == "wrong_type"


@given(st.text(st.sampled_from("ab.[]0-=*|"), max_size=8), st.dictionaries(st.text("ab.[]0", max_size=4), st.just("x")))
def test_any_text_is_a_path(path: str, row: dict[str, str]) -> None:
    found = value_at(row, path)
    assert found == row[path] if path in row else found in (None, "x") or isinstance(found, CellError)


_STRUCT = pa.struct([("Brand", pa.string()), ("Size", pa.struct([("w", pa.int64()), ("h", pa.int64())]))])
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("details", _STRUCT),
        ("details.Brand", pa.string()),
        ("images", pa.list_(pa.struct([("alt", pa.string()), ("url", pa.string())]))),
        ("tags", pa.map_(pa.string(), pa.string())),
        ("json", pa.string()),
    ]
)


def config(path: Path, *fields: str, **settings: Any) -> InputConfig:
    given = {"path": str(path), "id": "id", "category": {"text": "Bags"}, "fields": list(fields)}
    return InputConfig.model_validate(given | settings)


def test_of_a_parquet_file_only_the_wanted_part_is_read(tmp_path: Path) -> None:
    schema = pa.schema([each for each in SCHEMA if each.name != "details.Brand"])
    row = {
        "id": "1",
        "details": {"Brand": "Acme", "Size": {"w": 1, "h": 2}},
        "images": [{"alt": "front", "url": "x" * 10_000}],
        "tags": [("x", "y")],
        "json": '{"a": 5}',
    }
    path = tmp_path / "c.parquet"
    pq.write_table(pa.Table.from_pylist([row], schema=schema), path)
    (file,) = scan_sources(config(path, "details.Size.w", "images[0].alt", "tags.x", "json.a")).files
    assert file.num_rows == 1
    (small,) = scan_sources(config(path, "details.Size.w")).files
    assert small.byte_counts[0] < 200 < file.byte_counts[0]
    read: list[int] = []
    (found,) = read_piece(*file.rows, RowRange(0, 0, 1, 1), ["id", "details.Size.w"], on_read=read.append)
    assert found.values == {"id": "1", "details": {"Size": {"w": 1}}}
    for wrong, message in {
        "details.Brnad": "has no 'Brnad'; there are Brand, Size",
        "details.Size": "has the type struct",
        "id.x.y": None,
        "detail.x": "is not in .*its columns: id, details",
    }.items():
        if message is not None:
            with pytest.raises(UsageError, match=f"column '{wrong}' \\(input.fields\\).*{message}"):
                scan_sources(config(path, wrong))


def test_json_lines_say_what_a_path_misses(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text('{"id": "1", "details": {"Brand": "Acme"}}\n' * 1500 + '{"id": "2", "details": {"Late": "x"}}\n')
    assert scan_sources(config(path, "details.Brand", "details.Late")).files[0].num_rows == 1501
    with pytest.raises(
        UsageError, match=r"column 'details.Brnad' \(input.fields\) is not in any line of .*: 'details' is"
    ):
        scan_sources(config(path, "details.Brnad"))
