"""docs/schemas.md: its examples are schemas, and mean what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from hpd_core import CategorySchema
from pipelines.schemas.lint import lint
from pipelines.schemas.schema_file import parse_schemas

PAGE = Path(__file__).parents[3] / "docs" / "schemas.md"


def test_its_examples_are_schemas() -> None:
    read: dict[str, CategorySchema] = {}
    for block in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        document = yaml.safe_load(block)
        read |= parse_schemas(document if isinstance(document, dict) else {"categories": {"part": document}}, "page")
    assert list(read) == ["Coffee", "part", "Bags", "Backpacks"]
    assert [attribute.name for attribute in read["Backpacks"].attributes] == [
        "Brand",
        "Colour",
        "Width of the base",
        "Volume",
    ]
    assert read["part"].attributes[0].vocabulary.label("Noir") == "Black"
    assert not list(lint(read))
