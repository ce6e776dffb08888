from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.catalog.input_files import scan_sources
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import UsageError
from tests.pipelines.conftest import Workplace, products


def scan(workplace: Workplace, path: str | None = None, **changes: object) -> list[tuple[str, int]]:
    data = {"path": path or str(workplace.catalog), "id": "id", "fields": ["title", "bullets"]} | changes
    files = scan_sources(InputConfig.model_validate(data)).files
    return [(Path(file.name).name, file.num_rows) for file in files]


def test_what_cannot_be_used_is_refused_by_name(workplace: Workplace) -> None:
    catalog = workplace.catalog
    with pytest.raises(UsageError, match="no such file or folder"):
        scan(workplace)
    catalog.mkdir()
    with pytest.raises(UsageError, match=r"no files that are read in \S+catalog$"):
        scan(workplace)
    workplace.write_parquet("a.parquet", products(2))
    workplace.write_parquet("c.parquet", products(2))
    (catalog / "b.parquet").write_bytes(b"PAR1 this is no parquet file PAR1")
    with pytest.raises(UsageError, match=r"b\.parquet is not a readable Parquet file"):
        scan(workplace)
    (catalog / "b.parquet").write_bytes(b"")
    with pytest.raises(UsageError, match=r"b\.parquet"):
        scan(workplace)
    (catalog / "b.parquet").unlink()
    with pytest.raises(
        UsageError, match=r"column 'name' \(input.fields\) is not in .*a\.parquet; its columns: id, cat"
    ):
        scan(workplace, fields=["name"])
    with pytest.raises(UsageError, match=r"column 'asin' \(input.id\) is not in"):
        scan(workplace, id="asin")
    with pytest.raises(UsageError, match=r"column 'kind' \(input.category\) is not in"):
        scan(workplace, category="kind")


def test_jsonl_that_cannot_be_used(workplace: Workplace) -> None:
    workplace.write_jsonl("c.jsonl", ["{'id': 1}", "{'id': 2}"])
    with pytest.raises(UsageError, match=r"c\.jsonl is not JSON Lines: of 2 lines looked at none .* line 1: not JSON"):
        scan(workplace)
    workplace.write_jsonl("c.jsonl", ['{"sku": 1, "category": "x"}'])
    with pytest.raises(UsageError, match=r"column 'id' .* is not in any line of .*; its columns: sku, category"):
        scan(workplace)
    workplace.write_jsonl("c.jsonl", ["plain text"]).rename(workplace.catalog / "c.txt")
    with pytest.raises(UsageError, match=r"only 1 text \(\S+c\.txt\)"):
        scan(workplace, path=str(workplace.catalog))


def test_an_empty_catalog_is_refused(workplace: Workplace) -> None:
    schema = pa.schema({"id": pa.string(), "category": pa.string(), "title": pa.string(), "bullets": pa.string()})
    workplace.write_parquet("a.parquet", [], schema=schema)
    (workplace.catalog / "b.jsonl").write_text("\n\n")
    with pytest.raises(UsageError, match=r"the catalog is empty: 2 file\(s\)"):
        scan(workplace)
