"""Magento's attributes and attribute sets: answers of its REST interface, and CSV with the same names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpd_core import Member
from tests.pipelines.schemas.imports import done, write

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
