"""Magento's attributes and attribute sets: answers of its REST interface, and CSV with the same names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpd_core import Member
from tests.pipelines.schemas.imports import done, refused, write

EMPTY = {"label": " ", "value": ""}
COLOR = {
    "attribute_id": 93,
    "attribute_code": "color",
    "frontend_input": "select",
    "is_user_defined": True,
    "default_frontend_label": "Color",
    "options": [EMPTY, {"label": "Red", "value": "13"}, {"label": "Blue", "value": "14"}],
}
ATTRIBUTES: list[dict[str, Any]] = [
    COLOR,
    {
        "attribute_code": "features",
        "frontend_input": "multiselect",
        "is_user_defined": True,
        "options": [EMPTY, {"label": "Zip", "value": "1"}, {"label": "Wheels", "value": "2"}],
    },
    {"attribute_code": "organic", "frontend_input": "boolean", "is_user_defined": True, "options": []},
    {"attribute_code": "made_on", "frontend_input": "date", "is_user_defined": True},
    {"attribute_code": "rrp", "frontend_input": "price", "is_user_defined": True, "default_frontend_label": "RRP"},
    {"attribute_code": "weight", "frontend_input": "weight", "is_user_defined": False},
    {"attribute_code": "tax_class_id", "frontend_input": "select", "is_user_defined": False, "options": [EMPTY]},
    {"attribute_code": "image", "frontend_input": "media_image", "is_user_defined": False},
]


def test_the_attributes_alone_are_one_category(tmp_path: Path) -> None:
    path = write(tmp_path, "attributes.json", {"items": ATTRIBUTES, "search_criteria": {}, "total_count": 8})
    shop = done(tmp_path, path, "--name", "Bags")
    assert {each.name: (each.type, each.multiple) for each in shop.schemas["Bags"].attributes} == {
        "Color": ("enum", False),
        "Features": ("enum", True),
        "Organic": ("boolean", False),
        "Made on": ("date", False),
        "RRP": ("number", False),
        "Weight": ("number", False),
    }
    color = shop.attribute("Bags", "Color")
    assert color.id == "color"
    assert color.values == (Member(label="Red", id="13"), Member(label="Blue", id="14"))
    assert "left out: 1 of the shop's own machinery, 1 pictures, files and long texts" in shop.printed
    assert (
        "2 of 6 attributes are numbers, whose units Magento does not say; write your shop's: rrp, weight"
        in shop.printed
    )
    assert list(done(tmp_path, path).schemas) == ["products"]
    assert not shop.remarks()


def test_csv(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "attributes.csv",
        """
        attribute_code,frontend_label,frontend_input,attribute_set_name,options
        color,Color,select,Bag|Shoe,13=Red|14=Blue
        closure,Closure,select,Bag,"[{""label"": ""Zip"", ""value"": ""5""}]"
        lining,Lining,select,Bag,Silk|Wool
        comment,Comment,text,Shoe,
        """,
    )
    shop = done(tmp_path, path)
    assert {name: shop.names(name) for name in shop.schemas} == {
        "Bag": ["Color", "Closure", "Lining"],
        "Shoe": ["Color", "Comment"],
    }
    assert shop.attribute("Shoe", "Color").values == (Member(label="Red", id="13"), Member(label="Blue", id="14"))
    assert shop.attribute("Bag", "Closure").values == (Member(label="Zip", id="5"),)
    assert shop.attribute("Bag", "Lining").labels == ("Silk", "Wool")


def test_what_cannot_be_read(tmp_path: Path) -> None:
    broken = write(tmp_path, "a.csv", "attribute_code,frontend_input,options\ncolor,select,[not JSON\n")
    assert "attribute 'color': its options are no JSON" in refused(tmp_path, broken)
    machinery = write(tmp_path, "m.json", ATTRIBUTES[-1:])
    assert "no attribute that texts could answer" in refused(tmp_path, machinery)
