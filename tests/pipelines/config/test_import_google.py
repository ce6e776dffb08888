"""Google's product taxonomy, with what a feed may say of a product."""

from __future__ import annotations

from pathlib import Path

from tests.pipelines.config.imports import done, write

WITH_IDS = """
    # Google_Product_Taxonomy_Version: 2021-09-21
    166 - Apparel & Accessories
    1604 - Apparel & Accessories > Clothing
    212 - Apparel & Accessories > Clothing > Shirts
    536 - Home & Garden
    604 - Home & Garden > Household Appliances
"""


def test_the_taxonomy_with_ids(tmp_path: Path) -> None:
    google = done(tmp_path, write(tmp_path, "taxonomy-with-ids.en-US.txt", WITH_IDS))
    assert "from Google's product taxonomy 2021-09-21" in google.printed
    assert list(google.schemas) == [
        "Apparel & Accessories",
        "Clothing",
        "Shirts",
        "Home & Garden",
        "Household Appliances",
    ]
    shirts = google.schemas["Shirts"]
    assert (shirts.id, shirts.aliases) == ("212", ("Apparel & Accessories > Clothing > Shirts", "212"))
    assert shirts.attributes == google.schemas["Apparel & Accessories"].attributes
    assert {"size_type", "size_system"} <= set(google.names("Shirts"))
    assert not {"size_type", "size_system"} & set(google.names("Household Appliances"))
    assert "extends: Clothing" in google.text
    assert not google.remarks()
