"""Made-up products in the shape of published catalogs: every key that a reader meets there, and none of their rows."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def food_facts(count: int = 24) -> list[Row]:
    """Lines of the JSON Lines export of Open Food Facts, of some hundred keys those that matter here."""
    return [
        {
            "_id": f"00{number:011}",
            "code": f"00{number:011}",
            "lang": ("fr", "en", "de")[number % 3],
            "lc": ("fr", "en", "de")[number % 3],
            "product_name": f"Petit biscuit au beurre numéro {number}",
            "product_name_fr": f"Petit biscuit au beurre numéro {number}",
            "generic_name": "" if number % 2 else "Biscuits au beurre frais",
            "brands": "Maison Verte",
            "brands_tags": ["maison-verte"],
            "quantity": f"{100 + number} g",
            "packaging": "Carton, sachet",
            "labels": "Bio, AB",
            "categories": "Snacks, Biscuits, Biscuits au beurre",
            "categories_tags": ["en:snacks", "en:biscuits", ("en:butter-biscuits", "en:rusks")[number % 2]],
            "categories_hierarchy": ["en:snacks", "en:biscuits"],
            "pnns_groups_1": "Sugary snacks",
            "pnns_groups_2": "Biscuits and cakes",
            "ingredients_text": "Farine de blé, beurre 24 %, sucre, sel",
            "ingredients": [{"id": "en:wheat-flour", "text": "Farine de blé", "rank": 1}],
            "nutriments": {"energy_100g": 2000 + number, "sugars_100g": 22.5, "energy-kcal_unit": "kcal"},
            "nutriscore_grade": "e",
            "states_tags": ["en:to-be-checked"],
            "countries_tags": ["en:france"],
            "last_modified_t": 1700000000 + number,
        }
        for number in range(count)
    ]


_FOOD_COLUMNS = (
    *("code", "url", "creator", "created_t", "created_datetime", "product_name", "abbreviated_product_name"),
    *("generic_name", "quantity", "packaging", "packaging_tags", "packaging_en", "brands", "brands_tags", "categories"),
    *("categories_tags", "categories_en", "origins", "labels", "labels_tags", "labels_en", "countries_en"),
    *("ingredients_text", "ingredients_tags", "allergens", "traces_en", "serving_size", "nutriscore_grade"),
    *("pnns_groups_1", "pnns_groups_2", "states", "states_tags", "states_en", "main_category", "main_category_en"),
    *("image_url", "energy-kcal_100g", "sugars_100g"),
)


def write_food_csv(path: Path, rows: Sequence[Row]) -> Path:
    """The export that is called CSV: parted by tabs, unquoted, lists joined by commas."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None, lineterminator="\n")
        writer.writerow(_FOOD_COLUMNS)
        for row in rows:
            leaf = row["categories_tags"][-1]
            cells = row | {
                "url": f"https://world.openfoodfacts.org/product/{row['code']}",
                "main_category": leaf,
                "main_category_en": leaf.removeprefix("en:").replace("-", " ").capitalize(),
                "categories_en": "Snacks,Biscuits",
                "states_tags": "en:to-be-checked,en:complete",
                "energy-kcal_100g": "480",
            }
            written = (cells.get(name, "") for name in _FOOD_COLUMNS)
            writer.writerow([",".join(cell) if isinstance(cell, list) else cell for cell in written])
    return path


def write_lines(path: Path, rows: Sequence[Row]) -> Path:
    """JSON Lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
