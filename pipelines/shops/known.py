"""The shops that HPD knows. A new one is a file beside this, and its lines here (docs/contribute/add-a-shop.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipelines.config.importing.kinds import SchemaSource
from pipelines.exporting.targets import Shop
from pipelines.shops import akeneo, google, shopify

SHOPS: Mapping[str, Shop] = {shop.name: shop for shop in (shopify.SHOP, google.SHOP, akeneo.SHOP)}
"""Whose files are filled in."""

SOURCES: Sequence[SchemaSource] = (shopify.SOURCE, akeneo.SOURCE, google.SOURCE)
"""Whose schemas are imported; the first that recognises a file reads it."""
