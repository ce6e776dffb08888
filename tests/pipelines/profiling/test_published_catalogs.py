"""Published catalogs are known by their columns: `hpd init`, and then `hpd extract`, without a hand on the files."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
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
    amazon_reviews,
    berkeley_objects,
    food_facts,
    write_food_csv,
    write_lines,
)
from tests.tables import table


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


@table("suffix", ["jsonl", "parquet"])
def test_amazon_reviews_without_the_details_that_hold_the_answers(tmp_path: Path, suffix: str) -> None:
    rows = amazon_reviews()
    if suffix == "jsonl":
        path = write_lines(tmp_path / "meta_All_Beauty.jsonl", rows)
    else:  # as others pass it on: what differs from row to row as text
        path = tmp_path / "meta.parquet"
        texts = [{**row, "details": json.dumps(row["details"]), "price": str(row["price"])} for row in rows]
        pq.write_table(pa.Table.from_pylist(texts), path)
    config, text, printed = init(path)
    assert (str(config.input.id), str(config.input.category)) == ("parent_asin", "main_category")
    assert {name: str(each) for name, each in config.input.fields.items()} == {
        "title": "title",
        "features": "features",
        "description": "description",
    }
    assert "# Left out, as they hold the answers: details" in text
    assert "so called in the metadata of Amazon Reviews 2023" in text
    assert not any("details" in line for line in text.splitlines() if "Left out" not in line)
    assert "2 categories: All Beauty 12, Toys & Games 12" in printed
    assert record(config, rows[0]) == Record(
        "B0FAKE0000",
        "All Beauty",
        {
            "title": rows[0]["title"],
            "features": "Gentle on the skin\nBottle of 100 ml",
            "description": "A light lotion for every day.\nMade in small lots.",
        },
    )


def test_berkeley_objects_in_one_language(tmp_path: Path) -> None:
    rows = berkeley_objects()
    lines = write_lines(tmp_path / "listings_0.json", rows)
    path = tmp_path / "listings_0.json.gz"  # as they are published
    path.write_bytes(gzip.compress(lines.read_bytes()))
    config, text, printed = init(path)
    assert (str(config.input.id), str(config.input.category)) == ("item_id + domain_name", "product_type[0].value")
    assert len({record(config, row).id for row in rows}) == len(rows)
    assert {name: str(each) for name, each in config.input.fields.items()} == {
        "title": "item_name[language_tag=en*|*].value",
        "bullet points": "bullet_point[language_tag=en*|*].value",
        "description": "product_description[language_tag=en*|*].value",
    }
    assert str(config.input.language) == "item_name[language_tag=en*|*].language_tag"
    assert "3 categories: PILLOW 8, LAMP 8, CELLULAR_PHONE_CASE 8" in printed
    left_out = next(line for line in text.splitlines() if "Left out" in line)
    assert all(name in left_out for name in ("brand", "color", "material", "item_weight"))
    others = next((line for line in text.splitlines() if "Could be read as well" in line), "")
    assert "item_keywords.value" in others
    assert not any(name in others for name in ("brand", "color", "material"))
    english, german = record(config, rows[0]), record(config, rows[5])
    assert english.fields == {
        "language": "en_US",
        "title": "Pillow cover number 0, soft",
        "bullet points": "Pure cotton\nMachine washable",
        "description": "Soft cover for every sofa.",
    }
    assert german.fields == {
        "language": "de_DE",
        "title": "Kissenbezug Nummer 5, weich",
        "bullet points": "Reine Baumwolle",
        "description": "",
    }
    # A shop without any English.
    other = tmp_path / "german"
    other.mkdir()
    germans = [row | {"bullet_point": row["bullet_point"][:1]} for row in rows[5::6]]
    config, _, _ = init(write_lines(other / "listings_1.json", germans * 4))
    assert str(config.input.fields["title"]) == "item_name[language_tag=de*|*].value"


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
        pytest.param(
            "meta.jsonl", write_lines, amazon_reviews(), {"All Beauty": 12, "Toys & Games": 12}, marks=pytest.mark.full
        ),
        ("listings_0.json", write_lines, berkeley_objects(), {"PILLOW": 8, "LAMP": 8, "CELLULAR_PHONE_CASE": 8}),
        pytest.param(
            "food.jsonl", write_lines, food_facts(), {"en:butter-biscuits": 12, "en:rusks": 12}, marks=pytest.mark.full
        ),
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
