"""A catalog that nobody has to read: products made of a few words, columns at a time, as many as are wanted.

The same seed gives the same files. Every product has 8 attributes to look for and a text of about 90 tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

ROW_GROUP_ROWS = 10_000
FILE_ROWS = 250_000
COLUMNS = ("title", "description")

_KINDS = (
    *("Boots", "Jackets", "Tents", "Backpacks", "Lamps", "Kettles", "Bottles", "Desks"),
    *("Chairs", "Blankets", "Gloves", "Speakers"),
)
_BRANDS = (
    "Velor",
    "Northfold",
    "Ashgrove",
    "Lumeo",
    "Petra & Sons",
    "Kestrel",
    "Öland",
    "Marlowe",
    "Brightwell",
    "Tavo",
)
_COLOURS = ("black", "white", "red", "navy blue", "olive", "sand", "grey", "dark green")
_MATERIALS = ("leather", "cotton", "stainless steel", "oak", "recycled polyester", "wool", "aluminium", "bamboo")
_COUNTRIES = ("Portugal", "Vietnam", "Germany", "Turkey", "Sweden", "India", "Poland", "Japan")
_STYLES = ("classic", "lightweight", "compact", "folding", "heavy duty", "slim", "insulated", "two-tone")
_FEATURES = (
    "a reinforced base",
    "double stitching",
    "a carrying loop",
    "a quiet hinge",
    "non-slip feet",
    "a spare part",
)
_PRAISE = (
    "Made for people who use their things every day and want them to last.",
    "Our customers tell us that they would buy it again, and many of them have.",
    "It comes in a box without plastic, with a short guide in five languages.",
    "Wipe it with a damp cloth; do not use bleach, and let it dry in the shade.",
    "Tested in our own workshop for ten thousand cycles before it leaves the house.",
)


def category_names(count: int = len(_KINDS)) -> list[str]:
    """Boots, Jackets, ..., Boots 2, Jackets 2, ..."""
    rounds = (divmod(number, len(_KINDS)) for number in range(count))
    return [_KINDS[kind] if turn == 0 else f"{_KINDS[kind]} {turn + 1}" for turn, kind in rounds]


def schema_document(categories: Sequence[str]) -> dict[str, Any]:
    """The schema file: every category with 8 attributes of all types, and a prompt of its own."""
    return {"categories": {name: _attributes(name) for name in categories}}


def _attributes(category: str) -> list[dict[str, Any]]:
    return [
        {"name": "Brand", "description": f"who makes the {category.lower()}"},
        {"name": "Colour", "type": "enum", "values": list(_COLOURS)},
        {"name": "Material"},
        {"name": "Weight", "type": "number", "unit": "g"},
        {"name": "Country of origin"},
        {"name": "Features", "multiple": True},
        {"name": "Machine washable", "type": "boolean"},
        {"name": "Warranty", "description": "as stated, with its unit"},
    ]


def write_catalog(folder: Path, num_rows: int, seed: int = 0, num_categories: int = len(_KINDS)) -> Path:
    """Writes `schemas.yaml` and `catalog/*.parquet` into the folder and returns the catalog's folder."""
    categories = category_names(num_categories)
    catalog = folder / "catalog"
    catalog.mkdir(parents=True)
    (folder / "schemas.yaml").write_text(yaml.safe_dump(schema_document(categories), sort_keys=False), encoding="utf-8")
    for number, first in enumerate(range(0, num_rows, FILE_ROWS)):
        stop = min(num_rows, first + FILE_ROWS)
        groups = _row_groups(first, stop, seed, categories)
        table = next(groups)
        with pq.ParquetWriter(catalog / f"products-{number:04d}.parquet", table.schema, compression="zstd") as writer:
            writer.write_table(table)
            for table in groups:
                writer.write_table(table)
    return catalog


def _row_groups(first: int, stop: int, seed: int, categories: Sequence[str]) -> Iterator[pa.Table]:
    for start in range(first, stop, ROW_GROUP_ROWS):
        yield make_rows(start, min(stop, start + ROW_GROUP_ROWS), seed, categories)


def make_rows(start: int, stop: int, seed: int = 0, categories: Sequence[str] = _KINDS) -> pa.Table:
    """Rows [start, stop) of the catalog, categories in no order; they depend on the seed and the stretch's start."""
    count, random = stop - start, np.random.default_rng([seed, start])

    def some(words: Sequence[str]) -> pa.Array:
        return pa.array(words).take(pa.array(random.integers(len(words), size=count)))

    def numbers(low: int, high: int) -> pa.Array:
        return pa.array(random.integers(low, high, size=count)).cast(pa.string())

    category, brand, colour, style = some(categories), some(_BRANDS), some(_COLOURS), some(_STYLES)
    ids = pa.array(np.arange(start, stop)).cast(pa.string())
    title = _text(brand, style, pc.utf8_lower(category), "no.", numbers(100, 9999), ",", colour)
    description = _text(
        *("Made of", some(_MATERIALS), "in", some(_COUNTRIES), "with", some(_FEATURES), "and", some(_FEATURES), "."),
        *("Weighs", numbers(80, 4000), "g, warranty", numbers(1, 11), "years, item", ids, "."),
        *(some(_PRAISE[:2]), some(_PRAISE[2:])),
    )
    columns = {"id": pc.binary_join_element_wise("p", ids, ""), "category": category}
    return pa.table(columns | dict(zip(COLUMNS, (title, description), strict=True)))


def _text(*parts: Any) -> pa.Array:
    joined = pc.binary_join_element_wise(*parts, " ")
    return pc.replace_substring_regex(joined, r" ([.,])", r"\1")
