"""Made-up products in the shape of published catalogs: every key that a reader meets there, and none of their rows."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def amazon_reviews(count: int = 24) -> list[Row]:
    """Item metadata of Amazon Reviews 2023: `details` says what is to be extracted, as an object or as its JSON."""
    rows = []
    for number in range(count):
        details = {"Brand": "Fernhill", "Item Form": "Lotion", "Color": ("Rose", "Sand")[number % 2]}
        rows.append(
            {
                "main_category": ("All Beauty", "Toys & Games")[number % 2],
                "title": f"Fernhill calming lotion number {number}, 250 ml",
                "average_rating": 4.5,
                "rating_number": 10 + number,
                "features": ["Gentle on the skin", f"Bottle of {100 + number} ml"],
                "description": [] if number % 3 else ["A light lotion for every day.", "Made in small lots."],
                "price": (None, "None", 12.5, "from 12.99")[number % 4],
                "images": [{"thumb": "https://x/t.jpg", "large": "https://x/l.jpg", "variant": "MAIN", "hi_res": None}],
                "videos": [],
                "store": "Fernhill",
                "categories": [] if number % 2 else ["Beauty & Personal Care", "Skin Care", "Body"],
                "details": json.dumps(details) if number % 5 == 4 else details,
                "parent_asin": f"B0FAKE{number:04}",
                "bought_together": None,
                "subtitle": None,
                "author": None,
            }
        )
    return rows


def _tagged(*values: tuple[str, str]) -> list[Row]:
    return [{"language_tag": tag, "value": value} for tag, value in values]


def berkeley_objects(count: int = 24) -> list[Row]:
    """Listings of Amazon Berkeley Objects: lists of values, each with its language; some products have no English."""
    rows: list[Row] = []
    for number in range(count):
        is_german = number % 6 == 5
        german = ("de_DE", f"Kissenbezug Nummer {number}, weich")
        english = [("en_US", f"Pillow cover number {number}, soft"), ("en_GB", f"Cushion cover {number}, soft")]
        row: Row = {
            "brand": _tagged(("de_DE" if is_german else "en_US", "Ravenna Home")),
            "bullet_point": _tagged(
                ("de_DE", "Reine Baumwolle"),
                *([] if is_german else [("en_US", "Pure cotton"), ("en_US", "Machine washable")]),
            ),
            "color": [{"language_tag": "en_US", "standardized_values": ["Blue"], "value": "Deep blue"}],
            "color_code": ["#21304F"],
            "item_dimensions": {
                "height": {"normalized_value": {"unit": "inches", "value": 1.5}, "unit": "inches", "value": 1.5}
            },
            "item_id": f"B0MADE{number // 2:04}",  # listed in two shops
            "item_name": _tagged(german, *([] if is_german else english)),
            "item_weight": [{"normalized_value": {"unit": "pounds", "value": 1.2}, "unit": "pounds", "value": 1.2}],
            "material": _tagged(("en_US", "Cotton")),
            "model_number": [{"value": f"RH-{number}"}],
            "model_year": [{"value": 2019}],
            "product_type": [{"value": ("PILLOW", "LAMP", "CELLULAR_PHONE_CASE")[number % 3]}],
            "main_image_id": "71abcDEFghL",
            "other_image_id": ["81abcDEFghL", "91abcDEFghL"],
            "item_keywords": _tagged(("en_US", "cushion"), ("en_US", "bedroom")),
            "country": "DE" if is_german else "US",
            "marketplace": "Amazon",
            "domain_name": ("amazon.nl", "amazon.de" if is_german else "amazon.com")[number % 2],
            "node": [{"node_id": 12345 + number, "node_name": "/Categories/Bedding/Pillow Covers"}],
        }
        if number % 4 == 0:
            row["product_description"] = _tagged(("en_US", "<p>Soft cover for <b>every</b> sofa.</p>"))
        rows.append(row)
    return rows


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
