"""Fixtures of the pipeline tests: one local Ray for all in-process runs, and small catalogs to run on."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from rich.console import Console

from pipelines.config.extraction import JobConfig
from pipelines.config.loading import parse_config
from pipelines.job.job_run import RunOutcome, run_job
from pipelines.job.preflight import plan_job
from tests.pipelines.browser import NoBrowserError, Page, missing, open_browser

SCHEMAS = {
    "categories": {
        "Shoes": [
            {"name": "Brand"},
            {"name": "Colour", "type": "enum", "values": ["red", "blue"]},
            {"name": "Sizes", "multiple": True},
        ],
        "Coffee": [{"name": "Brand"}, {"name": "Weight", "type": "number", "unit": "g"}],
    }
}


def product(number: int, **changes: Any) -> dict[str, Any]:
    """Row `number` of a catalog; categories alternate."""
    row = {
        "id": f"p{number}",
        "category": ("Shoes", "Coffee")[number % 2],
        "title": f"Velor item {number} red {number * 7 % 50}",
        "bullets": [f"size {number}", "light"],
    }
    return row | changes


def products(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [product(number) for number in range(start, start + count)]


@dataclass
class Workplace:
    """A folder with a catalog, schemas and a place for runs, and the job that ties them together."""

    folder: Path
    model: Path
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def catalog(self) -> Path:
        return self.folder / "catalog"

    def write_parquet(
        self, name: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema | None = None, row_group_size: int = 1000
    ) -> Path:
        path = self.catalog / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path, row_group_size=row_group_size)
        return path

    def write_jsonl(self, name: str, rows: Sequence[Any]) -> Path:
        """Rows that are text are written as they stand."""
        path = self.catalog / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def document(self, **changes: Any) -> dict[str, Any]:
        """The job as a YAML document."""
        schemas = self.folder / "schemas.yaml"
        if not schemas.exists():
            schemas.write_text(yaml.safe_dump(SCHEMAS, sort_keys=False), encoding="utf-8")
        document = {
            "model": str(self.model),
            "input": {"path": str(self.catalog), "id": "id", "fields": ["title", "bullets"]},
            "schemas": str(schemas),
            "output": str(self.folder / "out"),
            "engine": {"dtype": "float32", "device": "cpu", "max_value_tokens": 6},
            "shards": {"target_tokens": 400, "ramp": []},
        }
        document = document | self.changes | changes
        # The models are tiny: a second thread would mostly be waited for.
        document["actors"] = {"num_threads": 1} | document.get("actors", {})
        return document

    def config(self, **changes: Any) -> JobConfig:
        return parse_config(JobConfig, self.document(**changes), "job.yaml")

    def write_config(self, **changes: Any) -> Path:
        path = self.folder / "job.yaml"
        path.write_text(yaml.safe_dump(self.document(**changes), sort_keys=False), encoding="utf-8")
        return path

    def run(self, limit: int | None = None, **changes: Any) -> RunOutcome:
        """Plan and run in this process."""
        return run_job(plan_job(self.config(**changes), limit), Console(file=io.StringIO()))


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where rows of files that are read from their beginning on are kept; empty."""
    monkeypatch.setenv("HPD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rows"


@pytest.fixture
def workplace(tmp_path: Path, tiny_model_dir: Path) -> Workplace:
    return Workplace(tmp_path, tiny_model_dir)


@pytest.fixture
def on_ray(workplace: Workplace, shared_ray: None) -> Workplace:
    """The same, whose runs are on Ray."""
    workplace.changes["executor"] = "ray"
    return workplace


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    """A Chromium with one page; a test that needs one is skipped where none is installed or starts."""
    if reason := missing():
        pytest.skip(reason)
    try:
        with open_browser() as page:
            yield page
    except NoBrowserError as error:
        pytest.skip(str(error))


def read_table(output: Path | str, table: str) -> list[dict[str, Any]]:
    """All published rows of a table, in the catalog's order."""
    rows = pq.ParquetDataset(sorted(Path(output, table).glob("*.parquet"))).read().to_pylist()
    return sorted(rows, key=lambda row: (row.get("source_file", ""), row.get("source_row", 0)))
