"""docs/schemas.md: its examples are schemas, and mean what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from hpd_core import CategorySchema
from pipelines.schemas.lint import lint
from pipelines.schemas.schema_file import parse_schemas

pytestmark = pytest.mark.docs

PAGE = Path(__file__).parents[3] / "docs" / "schemas.md"


def test_its_examples_are_schemas() -> None:
    read: dict[str, CategorySchema] = {}
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)):
        document = yaml.safe_load(block)
        named = document if isinstance(document, dict) else {"categories": {f"part {number}": document}}
        read |= parse_schemas(named, "page")
    assert list(read) == ["Coffee", "part 1", "part 2", "Bags", "Backpacks"]
    assert [attribute.name for attribute in read["Backpacks"].attributes] == [
        "Brand",
        "Colour",
        "Width of the base",
        "Volume",
    ]
    assert read["part 1"].attributes[0].vocabulary.label("Noir") == "Black"
    named = [attribute.name for attribute in read["part 2"].attributes]
    assert named == ["Brand", "dimensions.length", "dimensions.width", "dimensions.lid.closure"]
    assert read["part 2"].nested({"dimensions.length": 12}) == {"dimensions": {"length": 12}}
    assert not list(lint(read))
