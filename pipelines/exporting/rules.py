"""Rules that shops publish about the values that they take, as one table.

Their sources stand below. Rules with a date were read there, in copies that may be older than the page. If the two
differ, the page is right, and the shop's own import reports what it refuses.

- Google: the product data specification (support.google.com/merchants/answer/7052112) and the page of each attribute,
  support.google.com/merchants/answer/ and the number after the attribute.
- Shopify: metafields in a product CSV (help.shopify.com/en/manual/products/import-export/using-csv; the largest file
  and how lists are joined could not be read there), and their limits (11/2026: 64 KB a value, 128 values of a list,
  256 references: shopify.dev/docs/apps/build/metafields/metafield-limits).
  Lists are written as Shopify's own exports write them, with "; " between the handles of entries; measurements as the
  JSON of .../build/metafields/list-of-data-types. Which types of measurement there are grows (.../api/liquid/objects/
  measurement): any unit is written.
- Akeneo: the product data structure (docs.akeneo.com, import_and_export_data/formats/product.html), and attribute codes
  (.../formats/attribute.html).
"""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.exporting.value_forms import Rule

_COLOR = r"[^#,]*[^\W\d_][^#,]*[^\W\d_][^#,]*|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
_NO_COLORS = ("n/a", "see image", "various", "variety", "men", "men's", "women", "women's")
_LENGTH = Rule("measure", choices=("cm", "in"), least=1, most=3000)
GOOGLE: Mapping[str, Rule] = {
    "title": Rule(max_length=150),  # 6324415
    "description": Rule(max_length=5000),  # 6324468
    "brand": Rule(max_length=70, refused=("n/a", "generic", "no brand", "does not exist")),  # 6324351, 7052112; 11/2026
    "mpn": Rule(max_length=70),  # 6324482, 11/2026
    "gtin": Rule("gtin"),  # 6324461, 11/2026
    "condition": Rule("choice", choices=("new", "refurbished", "used")),  # 6324469
    "adult": Rule("yes_no"),  # 6324508
    "multipack": Rule("number", least=2, most=1e9, pattern=r"\d+"),  # 6324488
    "is_bundle": Rule("yes_no"),  # 6324449
    "age_group": Rule("choice", choices=("newborn", "infant", "toddler", "kids", "adult")),  # 6324463, 11/2026
    "gender": Rule("choice", choices=("male", "female", "unisex")),  # 6324479
    # 6324487, 11/2026: no commas between colors, no codes (#fff000), not digits alone, nor one letter but of CJK.
    "color": Rule(max_length=100, max_item=40, max_items=3, joint="/", pattern=_COLOR, refused=_NO_COLORS),
    "material": Rule(max_length=200, max_items=3, joint="/"),  # 6324410, 11/2026
    "pattern": Rule(max_length=100),  # 6324483
    "size": Rule(max_length=100),  # 6324492, 11/2026
    "size_type": Rule(  # 6324497, 11/2026
        "choice", max_items=2, joint=",", choices=("regular", "petite", "plus", "tall", "big", "maternity")
    ),
    "size_system": Rule(  # 6324502, 11/2026
        "choice", choices=("US", "UK", "EU", "DE", "FR", "JP", "CN", "IT", "BR", "MEX", "AU")
    ),
    "product_length": _LENGTH,  # 11018531, 11/2026; shown where all three are in one unit
    "product_width": _LENGTH,
    "product_height": _LENGTH,
    "product_weight": Rule("measure", choices=("lb", "oz", "g", "kg"), least=0, most=2000),
    # 7562785, 11/2026: with the scale's best and worst class beside it. In the EU `certification` has taken its place.
    "energy_efficiency_class": Rule("choice", choices=("A+++", "A++", "A+", "A", "B", "C", "D", "E", "F", "G")),
}
"""Rules by the attribute's name; after each the number of its page."""

GOOGLE_DETAILS: Mapping[str, Rule] = {  # 9218260, 11/2026
    "text": Rule(max_length=1000, max_items=1000, joint="; "),
    "number": Rule("quantity", max_length=1000, max_items=1000, joint="; "),
}
"""Rules for values in `product_detail`, by the attribute's type."""

GOOGLE_NAMES = {
    "colour": "color",
    "target_gender": "gender",
    "length": "product_length",
    "width": "product_width",
    "height": "product_height",
    "weight": "product_weight",
}
"""Other names of Google's attributes."""

_SHOPIFY_BYTES = 65_536
SHOPIFY: Mapping[str, Rule] = {
    "reference": Rule("handle", max_items=256, joint="; "),
    "text": Rule(max_bytes=_SHOPIFY_BYTES),
    "texts": Rule(max_bytes=_SHOPIFY_BYTES, max_items=128, joint="; "),
    "number": Rule("number", max_items=128, joint="; ", least=-9_999_999_999_999, most=9_999_999_999_999),
    "measure": Rule("shopify_measure", max_items=1, least=-9_999_999_999_999, most=9_999_999_999_999),
    "boolean": Rule("true_false"),
}
"""Rules by the content of the metafield."""
SHOPIFY_FILE_BYTES = 15_000_000
"""Size of the largest product CSV that Shopify imports."""

AKENEO_CODE = r"[A-Za-z0-9_]{1,255}"
AKENEO: Mapping[str, Rule] = {
    "text": Rule(max_length=255),
    "number": Rule("number", least=-1e15, most=1e15),
    "boolean": Rule("one_zero"),
    "select": Rule("option", pattern=AKENEO_CODE),
    "multiselect": Rule("option", max_items=10_000, joint=",", pattern=AKENEO_CODE),
    "date": Rule(pattern=r"\d{4}-\d\d-\d\d"),
}
"""Rules by the type of the attribute."""
AKENEO_FILE_BYTES = 512 * 1024 * 1024
"""Size of the largest file that Akeneo imports."""
AKENEO_RESERVED = frozenset(
    (
        *("id", "associationtypes", "categories", "categoryid", "completeness", "enabled", "family", "groups"),
        *("associations", "products", "scope", "treeid", "values", "category", "parent", "label", "entity_type"),
    )
)
"""Names that an attribute in Akeneo cannot have."""
