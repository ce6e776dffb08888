"""A catalog that nobody has to read: made-up titles and a few sentences each, as many as are wanted.

The same seed gives the same files. Every product has 8 attributes to look for and a text of about 80 tokens.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from bench.workloads.listings import LISTING_ATTRIBUTES, WORDS, category_names, make_title

ROW_GROUP_ROWS = 10_000
FILE_ROWS = 250_000
COLUMNS = ("title", "description")
_ASKED = ("Brand", "Colour", "Material", "Country of origin", "Weight", "Features", "Age group", "Indoor use only")
_SCHEMA = pa.schema([(name, pa.string()) for name in ("id", "category", *COLUMNS)])


def write_catalog(folder: Path, num_rows: int, seed: int, num_categories: int) -> Path:
    """Write `schemas.yaml` and `catalog/*.parquet` into the folder. Return the catalog's folder."""
    categories = category_names(num_categories)
    catalog = folder / "catalog"
    catalog.mkdir(parents=True)
    schemas = {"categories": {name: _attributes(name) for name in categories}}
    (folder / "schemas.yaml").write_text(yaml.safe_dump(schemas, sort_keys=False), encoding="utf-8")
    draw = random.Random(seed)
    for first in range(0, num_rows, FILE_ROWS):
        stop = min(num_rows, first + FILE_ROWS)
        path = catalog / f"products-{first // FILE_ROWS:04d}.parquet"
        with pq.ParquetWriter(path, _SCHEMA, compression="zstd") as writer:
            for start in range(first, stop, ROW_GROUP_ROWS):
                numbers = range(start, min(stop, start + ROW_GROUP_ROWS))
                rows = [_row(draw, number, categories) for number in numbers]
                writer.write_table(pa.Table.from_pylist(rows, _SCHEMA))
    return catalog


def _attributes(category: str) -> list[dict[str, Any]]:
    """Return attributes of all types; each category has a prompt of its own."""
    found = {each.name: each.model_dump(mode="json", exclude_defaults=True) for each in LISTING_ATTRIBUTES}
    found["Brand"]["description"] = f"who makes the {category.lower()}"
    return [found[name] for name in _ASKED]


def _row(draw: random.Random, number: int, categories: Sequence[str]) -> dict[str, str]:
    """Return a product of a random category."""
    title = make_title(draw, draw.choice(WORDS["products"])).fields["title"]
    text = " ".join(
        [f"Made in {draw.choice(WORDS['countries'])}, {draw.randint(80, 4000)} g.", *draw.sample(WORDS["sentences"], 3)]
    )
    return {"id": f"p{number}", "category": draw.choice(categories), "title": title, "description": text}
