"""Akeneo's families, attributes and options: from CSV exports and from the REST interface, in any language."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from hpd_core import Attribute, Member, Unit
from tests.pipelines.config.imports import done, refused, write

ATTRIBUTES = """
    type;code;label-en_US;label-de_DE;group;unique;metric_family;default_metric_unit;sort_order
    pim_catalog_identifier;sku;SKU;;info;1;;;0
    pim_catalog_text;name;Name;;info;0;;;1
    pim_catalog_textarea;description;Description;;info;0;;;2
    pim_catalog_simpleselect;color;Color;Farbe;info;0;;;3
    pim_catalog_multiselect;weather;"Weather; conditions";;info;0;;;4
    pim_catalog_simpleselect;size;Size;;info;0;;;5
    pim_catalog_metric;length;Length;Länge;info;0;Length;CENTIMETER;6
    pim_catalog_number;pockets;Pockets;;info;0;;;7
    pim_catalog_boolean;handmade;Handmade;;info;0;;;8
    pim_catalog_date;made_on;;;info;0;;;9
    pim_catalog_price_collection;price;Price;;info;0;;;10
"""
OPTIONS = """
    code;attribute;sort_order;label-en_US;label-de_DE
    grn;color;2;Green;Grün
    blk;color;1;Black;Schwarz
    dry;weather;1;Dry;
    wet;weather;2;Wet;Nass
    wet_2;weather;3;Wet;
"""
FAMILIES = """
    code;label-en_US;label-de_DE;attributes;attribute_as_label
    boots;Boots;Stiefel;sku,name,color,weather,size,length,price,side_view;name
    hats;;;sku,color,handmade,pockets,made_on;name
"""


@pytest.fixture
def export(tmp_path: Path) -> list[Path]:
    files = {"attributes": ATTRIBUTES, "options": OPTIONS, "families": FAMILIES}
    return [write(tmp_path, f"export/{name}.csv", text) for name, text in files.items()]


def test_csv_exports(export: list[Path], tmp_path: Path) -> None:
    shop = done(tmp_path, *export)
    assert list(shop.schemas) == ["Boots", "Hats"]
    boots = shop.schemas["Boots"]
    assert (boots.id, boots.aliases) == ("boots", ("boots", "Stiefel"))
    assert shop.names("Boots") == ["Name", "Color", "Weather; conditions", "Size", "Length"]
    assert shop.attribute("Boots", "Color") == Attribute(
        name="Color",
        id="color",
        aliases=("Farbe",),
        type="enum",
        values=(
            Member(label="Black", id="blk", synonyms=("Schwarz",)),
            Member(label="Green", id="grn", synonyms=("Grün",)),
        ),
    )
    weather = shop.attribute("Boots", "Weather; conditions")
    assert (weather.multiple, weather.labels) == (True, ("Dry", "Wet (wet)", "Wet (wet_2)"))
    length = shop.attribute("Boots", "Length")
    assert (length.type, length.unit, length.id) == ("number", Unit(want="cm"), "length")
    assert {each.name: each.type for each in shop.schemas["Hats"].attributes} == {
        "Color": "enum",
        "Handmade": "boolean",
        "Pockets": "number",
        "Made on": "date",
    }
    assert not shop.remarks()


def test_a_row_with_too_many_cells(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "type;code\npim_catalog_text;name\npim_catalog_text;name;more\n")
    assert "a.csv, line 3: more cells than the first line has names" in refused(tmp_path, path)


def test_a_quote_that_is_not_closed_swallows_no_attribute(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'type;code;label-en_US\npim_catalog_text;a;"A\npim_catalog_text;b;B\n')
    limit = csv.field_size_limit()
    assert "a.csv, behind line 1: not CSV: unexpected end of data; is a quote not closed?" in refused(tmp_path, path)
    assert csv.field_size_limit() == limit  # it is the process's: catalogs are read by it, too
