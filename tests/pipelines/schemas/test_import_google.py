"""Google's product taxonomy, with what a feed may say of a product."""

from __future__ import annotations

from pathlib import Path

from tests.pipelines.schemas.imports import done, refused, write
from tests.tables import table

WITH_IDS = """
    # Google_Product_Taxonomy_Version: 2021-09-21
    166 - Apparel & Accessories
    1604 - Apparel & Accessories > Clothing
    212 - Apparel & Accessories > Clothing > Shirts
    536 - Home & Garden
    604 - Home & Garden > Household Appliances
"""
WITHOUT_IDS = """
    # Google_Product_Taxonomy_Version: 2021-09-21
    Apparel & Accessories
    Apparel & Accessories > Clothing
    Home & Garden
    Home & Garden > Household Appliances
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


def test_a_part_of_it_keeps_what_it_had(tmp_path: Path) -> None:
    path = write(tmp_path, "taxonomy.txt", WITH_IDS)
    whole, part = done(tmp_path, path), done(tmp_path, path, "--category", "1604")
    assert list(part.schemas) == ["Clothing", "Shirts"]
    assert part.schemas["Shirts"] == whole.schemas["Shirts"]


@table("text", [WITHOUT_IDS, WITHOUT_IDS.split("\n", 2)[2]])
def test_the_taxonomy_without_ids(tmp_path: Path, text: str) -> None:
    google = done(tmp_path, write(tmp_path, "taxonomy.en-US.txt", text))
    clothing = google.schemas["Clothing"]
    assert (clothing.id, clothing.aliases) == (None, ("Apparel & Accessories > Clothing",))
    assert "size_type" in google.names("Clothing")


@table(
    ("line", "message"),
    [("Home >  > Kitchen", "line 3: 'Home >  > Kitchen' is no path"), ("1 - Home", "line 3: 'Home' is there twice")],
)
def test_a_line_that_is_no_category(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path, "t.txt", f"# Google_Product_Taxonomy_Version: 1\n1 - Home\n{line}\n")
    assert message in refused(tmp_path, path)
