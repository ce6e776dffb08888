"""Columns that are known by name: those of shops' exports and feeds, and of published catalogs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownFeed:
    """What the columns of a published form are for, the first that is filled of several.

    Attributes:
        id, category: columns; a category may be a path.
        fields: name in the prompt -> columns.
        signs: columns by which it is known.
        answers: columns that say outright what is to be extracted: nothing of them belongs in the prompt.
        tagged: columns that are lists of values, each with its language under this key.
        id_within: a column without which the id is of several rows.
    """

    name: str
    id: tuple[str, ...]
    category: tuple[str, ...]
    fields: dict[str, tuple[str, ...]]
    signs: tuple[str, ...]
    answers: tuple[str, ...] = ()
    tagged: str | None = None
    id_within: str | None = None

    def is_no_text(self, column: str) -> bool:
        """Whether a column, or a path into one, holds answers, or languages."""
        if self.tagged is not None and column.endswith(f".{self.tagged}"):
            return True
        return any(column == name or column.startswith((f"{name}.", f"{name}[")) for name in self.answers)


_FEEDS = (
    KnownFeed(
        "Shopify's product CSV",
        ("Handle", "URL handle"),
        ("Product Category", "Product category", "Type", "Custom Product Type"),
        {
            "title": ("Title",),
            "brand": ("Vendor",),  # as the model has learned it
            "type": ("Type",),
            "option": ("Option1 Name", "Option1 name"),
            "option values": ("Option1 Value", "Option1 value"),
            "tags": ("Tags",),
            "description": ("Body (HTML)", "Description"),
        },
        ("Title", "Option1 Name"),
    ),
    KnownFeed(
        "a Google Merchant feed",
        ("id",),
        ("product_type", "google_product_category"),
        {
            "title": ("title",),
            "brand": ("brand",),
            "color": ("color",),
            "size": ("size",),
            "material": ("material",),
            "highlights": ("product_highlight",),
            "details": ("product_detail.attribute_value", "product_detail"),
            "description": ("description",),
        },
        ("id", "title", "description", "link", "price"),
    ),
    KnownFeed(
        "the metadata of Amazon Reviews 2023",
        ("parent_asin",),
        ("main_category", "categories"),
        {"title": ("title",), "features": ("features",), "description": ("description",)},
        ("parent_asin", "main_category", "features", "details"),
        answers=("details",),
    ),
    KnownFeed(
        "the listings of Amazon Berkeley Objects",
        ("item_id",),
        ("product_type.value",),
        {
            "title": ("item_name.value",),
            "bullet points": ("bullet_point.value",),
            "description": ("product_description.value",),
        },
        ("item_id", "item_name.language_tag", "item_name.value", "product_type.value", "marketplace"),
        answers=(
            *("brand", "color", "color_code", "fabric_type", "finish_type", "item_dimensions", "item_shape"),
            *("item_weight", "material", "model_name", "model_number", "model_year", "pattern", "style"),
        ),
        tagged="language_tag",
        id_within="domain_name",  # one item is listed in several shops
    ),
    KnownFeed(
        "the exports of Open Food Facts",
        ("code",),
        ("main_category_en", "categories_tags", "pnns_groups_2"),
        {
            "name": ("product_name",),
            "generic name": ("generic_name",),
            "brands": ("brands",),
            "quantity": ("quantity",),
            "packaging": ("packaging",),
            "labels": ("labels",),
            "ingredients": ("ingredients_text",),
        },
        ("code", "product_name", "categories_tags"),
    ),
)


def known_feed(columns: Collection[str]) -> KnownFeed | None:
    """The published form that a file with these columns has."""
    folded = {name.casefold() for name in columns}
    return next((feed for feed in _FEEDS if {sign.casefold() for sign in feed.signs} <= folded), None)
