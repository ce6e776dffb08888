"""Columns that are known by name: those of Shopify's product CSV and of Google Merchant feeds."""

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
    """

    name: str
    id: tuple[str, ...]
    category: tuple[str, ...]
    fields: dict[str, tuple[str, ...]]
    signs: tuple[str, ...]


_FEEDS = (
    KnownFeed(
        "Shopify's product CSV",
        ("Handle", "URL handle"),
        ("Product Category", "Product category", "Type", "Custom Product Type"),
        {
            "title": ("Title",),
            "vendor": ("Vendor",),
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
)


def known_feed(columns: Collection[str]) -> KnownFeed | None:
    """The published form that a file with these columns has."""
    folded = {name.casefold() for name in columns}
    return next((feed for feed in _FEEDS if {sign.casefold() for sign in feed.signs} <= folded), None)
