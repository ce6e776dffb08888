"""Published catalogs are known by their columns: `hpd init`, and then `hpd extract`, without a hand on the files."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from hpd_core import Record
from pipelines.catalog.rows import to_record
from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from pipelines.config.schema_file import load_schemas
from pipelines.init import app
from pipelines.job.job_run import run_job
from pipelines.job.preflight import plan_job
from tests.pipelines.conftest import read_table
from tests.pipelines.profiling.published import (
    Row,
    food_facts,
    write_food_csv,
    write_lines,
)


def init(path: Path) -> tuple[JobConfig, str, str]:
    """The configuration that is written, its text, and what is printed."""
    result = CliRunner().invoke(app, [str(path), "--output", str(path.parent / "mine")])
    assert result.exit_code == 0, result.output
    written = path.parent / "mine" / "catalog.yaml"
    return load_config(JobConfig, str(written)), written.read_text(encoding="utf-8"), result.output


def record(config: JobConfig, row: Row) -> Record:
    """What the model reads of a row."""
    found = to_record(row, "default", config.input, load_schemas(config.schemas))
    assert isinstance(found, Record), found
    return found


def test_a_part_of_open_food_facts(tmp_path: Path) -> None:
    """As answers of its interface are, and files that were made of the export."""
    kept = ("code", "lang", "product_name", "quantity", "categories_tags")
    rows = [{name: row[name] for name in kept} for row in food_facts()]
    config, _, _ = init(write_lines(tmp_path / "some.jsonl", rows))
    assert (str(config.input.id), str(config.input.category)) == ("code", "categories_tags[-1]")
    assert [str(each) for each in config.input.fields.values()] == ["product_name", "quantity"]


def test_open_food_facts_in_both_exports(tmp_path: Path) -> None:
    rows = food_facts()
    names = ["name", "generic name", "brands", "quantity", "packaging", "labels", "ingredients"]
    config, _, printed = init(write_lines(tmp_path / "openfoodfacts-products.jsonl", rows))
    assert (str(config.input.id), str(config.input.category)) == ("code", "categories_tags[-1]")
    assert str(config.input.language) == "lang"
    assert list(config.input.fields) == names
    assert "2 categories: en:butter-biscuits 12, en:rusks 12" in printed
    found = record(config, rows[0])
    assert (found.id, found.category) == ("0000000000000", "en:butter-biscuits")
    assert found.fields["language"] == "fr"
    assert found.fields["ingredients"] == "Farine de blé, beurre 24 %, sucre, sel"

    folder = tmp_path / "csv"
    folder.mkdir()
    config, text, printed = init(write_food_csv(folder / "en.openfoodfacts.org.products.csv", rows))
    assert (str(config.input.id), str(config.input.category)) == ("code", "main_category_en")
    assert (config.input.delimiter, config.input.language) == ("\t", None)
    assert list(config.input.fields) == names
    assert "2 categories: Butter biscuits 12, Rusks 12" in printed
    assert "so called in the exports of Open Food Facts" in text


@pytest.mark.parametrize(
    ("name", "write", "rows", "categories"),
    [
        ("food.jsonl", write_lines, food_facts(), {"en:butter-biscuits": 12, "en:rusks": 12}),
        pytest.param(
            "food.csv", write_food_csv, food_facts(), {"Butter biscuits": 12, "Rusks": 12}, marks=pytest.mark.full
        ),
    ],
)
def test_what_init_writes_runs_as_it_is(
    tmp_path: Path,
    tiny_model_dir: Path,
    name: str,
    write: Callable[[Path, list[Row]], Path],
    rows: list[Row],
    categories: dict[str, int],
) -> None:
    init(write(tmp_path / name, rows))
    # Nothing of the mapping is touched: only the model, which is to take no time.
    changes: dict[str, Any] = {
        "model": tiny_model_dir,
        "adapter": "null",
        "decoding": "made-up",
        "output": tmp_path / "out",
    }
    config = load_config(
        JobConfig,
        str(tmp_path / "mine" / "catalog.yaml"),
        [*(f"{key}={value}" for key, value in changes.items()), "engine.device=cpu", "engine.dtype=float32"],
    )
    outcome = run_job(plan_job(config, None), Console(file=io.StringIO()))
    assert (outcome.discrepancy, outcome.totals.products, outcome.totals.dead_letters) == (None, 24, 0)
    products = read_table(tmp_path / "out", "products")
    assert Counter(row["category"] for row in products) == categories
    assert len({row["product_id"] for row in products}) == 24
