"""Magento's attributes and attribute sets: answers of its REST interface, and CSV with the same names."""

from __future__ import annotations

from pathlib import Path

from hpd_core import Member
from tests.pipelines.config.imports import done, write


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
