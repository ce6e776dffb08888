"""Shopify's product taxonomy, in both of its forms: categories by path, attributes shared, values with their ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpd_core import Member, Unit
from tests.pipelines.config.imports import done, write

GID = "gid://shopify/Taxonomy"


def published() -> dict[str, Any]:
    """The same, as `dist/en/taxonomy.json` has it."""

    def named(number: int | None, name: str, handle: str, *, extended: bool = False) -> dict[str, Any]:
        gid = f"{GID}Attribute/{number}"
        return {"id": gid, "name": name, "handle": handle, "description": f"About {name}", "extended": extended}

    color, sail = named(1, "Color", "color"), named(9, "Kite/sail shape", "kite-sail-shape", extended=True)
    height = named(12429, "Height", "height")

    def category(number: str, name: str, parent: str | None, *attributes: dict[str, Any]) -> dict[str, Any]:
        above = f"{GID}Category/{parent}" if parent else None
        return {
            "id": f"{GID}Category/{number}",
            "level": number.count("-"),
            "name": name,
            "full_name": name,
            "parent_id": above,
            "attributes": list(attributes),
            "children": [],
            "ancestors": [],
        }

    def value(number: int, name: str, handle: str) -> dict[str, Any]:
        return {"id": f"{GID}Value/{number}", "name": name, "handle": handle}

    base = {"description": "In general", "extended_attributes": []}
    return {
        "version": "2026-08",
        "verticals": [
            {
                "name": "Toys & Games",
                "prefix": "xx",
                "categories": [
                    category("xx", "Toys & Games", None, color),
                    category("xx-1", "Kites", "xx", color, sail, height),
                    category("xx-1-1", "Parts", "xx-1", color),
                    category("xx-2", "Balls", "xx", color),
                    category("xx-2-1", "Parts", "xx-2", color),
                ],
            }
        ],
        "attributes": [
            {
                **base,
                "id": f"{GID}Attribute/1",
                "name": "Color",
                "handle": "color",
                "values": [value(1, "Black", "color__black"), value(21, "Off-white", "color__off-white")],
            },
            {
                **base,
                "id": f"{GID}Attribute/9",
                "name": "Shape",
                "handle": "shape",
                "extended_attributes": [{"name": "Kite/sail shape", "handle": "kite-sail-shape"}],
                "values": [value(31, "Delta", "shape__delta"), value(32, "Box", "shape__box")],
            },
            {
                **base,
                "id": f"{GID}Attribute/12429",
                "name": "Height",
                "handle": "height",
                "type": "measurement",
                "measurement_type": "dimension",
                "supported_units": ["cm", "in"],
            },
        ],
    }


def test_the_published_json(tmp_path: Path) -> None:
    taxonomy = done(tmp_path, write(tmp_path, "taxonomy.json", published()))
    assert "from Shopify's product taxonomy 2026-08" in taxonomy.printed
    assert taxonomy.schemas["Kites"].id == f"{GID}Category/xx-1"
    assert taxonomy.schemas["Toys & Games > Balls > Parts"].aliases == ()
    sail = taxonomy.attribute("Kites", "Kite/sail shape")
    assert sail.values == (Member(label="Delta", id=f"{GID}Value/31"), Member(label="Box", id=f"{GID}Value/32"))
    assert sail.description == "About Kite/sail shape"
    assert taxonomy.attribute("Kites", "Height").unit == Unit(want="cm")
    assert not taxonomy.remarks()
