"""Shopify's product CSV: a row a product, known by its first row, with what its variants and images have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.catalog.input_files import SourceFile, scan_sources
from pipelines.catalog.readers import original_rows, read_piece
from pipelines.catalog.rows import SourceRow
from pipelines.catalog.sharding import RowRange, plan_shards
from pipelines.config.catalog_input import InputConfig
from pipelines.config.operation import ShardConfig
from pipelines.errors import UsageError

OLD = (
    "Handle,Title,Body (HTML),Type,Option1 Name,Option1 Value,Variant SKU,Image Src\n"
    "bag,Bag,<p>Soft</p>,Bags,Color,red,B-1,1.jpg\nbag,,,,,blue,B-2,2.jpg\nbag,,,,,,,3.jpg\n"
    "cap,Cap,,Caps,Title,Default Title,C-1,\n"
    "broken,row,,,,,,,x\n"
    "tie,Tie,,Ties,Size,S,T-1,\ntie,,,,,M\ntie,,,,,L,T-3,\n"
    ",no handle,,,,,,\n"
    "bag,,,,,green,B-9,\n"
)
NEW = (
    "Title,URL handle,Description,Type,SKU,Option1 name,Option1 value,Price\n"
    "Bag,bag,Soft,Bags,B-1,Color,red,1\n,bag,,,B-2,,blue,1\n"
)


pytestmark = pytest.mark.usefixtures("own_cache")


def scan(path: Path, text: str, **settings: Any) -> SourceFile:
    path.write_text(text)
    given = {"path": str(path), "category": "Type", "fields": ["Title"]} | settings
    return scan_sources(InputConfig.model_validate(given)).files[0]


def rows(file: SourceFile, columns: Any = None) -> list[SourceRow]:
    return list(read_piece(*file.rows, RowRange(0, 0, file.stop, file.num_rows), columns))


def test_a_product_has_the_number_of_its_first_row(tmp_path: Path) -> None:
    file = scan(tmp_path / "products.csv", OLD)
    assert (file.format, file.num_rows, file.stop) == ("shopify", 6, 10)
    found = rows(file)
    assert [row.number for row in found] == [0, 3, 4, 5, 8, 9]
    assert found[0].values == {
        "Handle": "bag",
        "Title": "Bag",
        "Body (HTML)": "<p>Soft</p>",
        "Type": "Bags",
        "Option1 Name": "Color",
        "Option1 Value": ["red", "blue"],
        "Variant SKU": ["B-1", "B-2"],
        "Image Src": ["1.jpg", "2.jpg", "3.jpg"],
    }
    assert found[1].values is not None
    assert (found[1].values["Option1 Name"], found[1].values["Option1 Value"]) == ("", ""), "no option"
    assert found[3].values is not None
    assert found[3].values["Option1 Value"] == ["S", "M", "L"]
    assert {row.number: row.problem.message for row in found if row.problem} == {
        4: "line 6: 9 cells for 8 columns; behind the last column stands 'x'",
        8: "line 10: Handle is empty, so it belongs to no product",
        9: "line 11: Handle 'bag' is that of row 0, and others stand between; sort by it",
    }
    assert original_rows(*file.rows, RowRange(0, 3, 10, 5), [4])[4] == "broken,row,,,,,,,x"
    assert [row.number for row in read_piece(*file.rows, RowRange(0, 0, 10, 6), ["Title"], numbers=[5])] == [5]
    assert rows(file, ["Variant SKU", "Title"])[0].values == {"Title": "Bag", "Variant SKU": ["B-1", "B-2"]}


@pytest.mark.parametrize("first", ["bag,Bag,,,,,,,x\n", "Bag,Bag,,Bags,,,,\n", "bag ,Bag,,Bags,,,,\n"])
def test_variants_whose_product_is_elsewhere_are_no_product(tmp_path: Path, first: str) -> None:
    """The row that has the title is broken, or bears another handle."""
    head = OLD.splitlines(keepends=True)[0]
    file = scan(tmp_path / "products.csv", f"{head}cap,Cap,,Caps,,,,\n{first}bag,,,,,red,B-1,\nbag,,,,,blue,B-2,\n")
    last = rows(file)[-1]
    assert last.problem is not None
    assert last.problem.code == "broken_line"
    assert last.problem.message.startswith("Title is empty in all rows of Handle 'bag'")
    assert original_rows(*file.rows, RowRange(0, 0, 4, 3), [2])[2] == "bag,,,,,red,B-1,\nbag,,,,,blue,B-2,"


def test_any_cut_covers_every_product_once(tmp_path: Path) -> None:
    file = scan(tmp_path / "products.csv", OLD)
    for tokens in (1, 10, 30, 1000):
        for limit in (None, 1, 3):
            shards = plan_shards([file], ShardConfig(target_tokens=tokens), 3, 1, limit)
            pieces = [piece for shard in shards for piece in shard.pieces]
            found = [row.number for piece in pieces for row in read_piece(*file.rows, piece, None)]
            assert found == [0, 3, 4, 5, 8, 9][:limit]
    (shard,) = plan_shards([file], ShardConfig(), 3, 1, only={file.name: [4, 5]})
    assert [row.number for piece in shard.pieces for row in read_piece(*file.rows, piece, None)] == [4, 5]


def test_the_new_form_of_the_file_and_row_by_row(tmp_path: Path) -> None:
    file = scan(tmp_path / "products.csv", NEW)
    (row,) = rows(file)
    assert row.values is not None
    assert (row.values["SKU"], row.values["Option1 value"], row.values["Price"]) == (
        ["B-1", "B-2"],
        ["red", "blue"],
        "1",
    )
    by_row = scan(tmp_path / "products.csv", NEW, format="csv")
    assert (by_row.format, by_row.num_rows) == ("csv", 2)
    with pytest.raises(UsageError, match="is no product CSV of Shopify"):
        scan(tmp_path / "products.csv", "Title,Type\na,b\n", format="shopify")
