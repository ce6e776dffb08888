"""JSON Schema and pydantic models: types, enums, units, lists; what is no attribute is named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpd_core import Attribute, Member, Unit
from tests.pipelines.config.imports import done, refused, write

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Suitcase",
    "type": "object",
    "properties": {
        "brand": {"type": "string", "title": "Brand", "description": "the  maker's\nname", "x-hpd-verbatim": True},
        "line": {"type": "string", "x-hpd-verbatim": "exclusive"},
        "shell": {"enum": ["hard", "soft", None]},
        "wheels": {"enum": [2, 4]},
        "width": {"type": ["number", "null"], "x-unit": "cm"},
        "weight": {"type": "integer", "x-units": ["kg", "lb"]},
        "locked": {"type": "boolean"},
        "since": {"type": "string", "format": "date"},
        "colours": {"type": "array", "items": {"$ref": "#/$defs/Colour"}},
        "closure": {
            "oneOf": [
                {"const": "zip", "title": "Zip fastener", "description": "with teeth"},
                {"const": "clip", "title": "Clip"},
                {"type": "null"},
            ]
        },
        "size": {
            "type": "object",
            "properties": {"outer": {"type": "object", "properties": {"depth": {"type": "number"}}}},
        },
        "kind": {"const": "suitcase"},
        "parts": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
        "inside": {"$ref": "#"},
    },
    "$defs": {"Colour": {"title": "Colour", "enum": ["red", "blue"], "x-enumNames": ["Red", "Blue"]}},
}


def test_every_form(tmp_path: Path) -> None:
    model = done(tmp_path, write(tmp_path, "suitcase.json", SCHEMA))
    assert list(model.schemas) == ["Suitcase"]
    found = {each.name: each for each in model.schemas["Suitcase"].attributes}
    assert found["Brand"] == Attribute(name="Brand", id="brand", description="the maker's name", verbatim=True)
    assert found["line"] == Attribute(name="line", verbatim="exclusive")
    assert found["shell"].labels == ("hard", "soft")
    assert found["wheels"].labels == ("2", "4")
    assert found["width"].unit == Unit(want="cm")
    assert (found["weight"].type, found["weight"].unit) == ("number", Unit(want="kg", accept=("lb",)))
    assert (found["locked"].type, found["since"].type) == ("boolean", "date")
    assert found["colours"].multiple
    assert found["colours"].values == (Member(label="Red", id="red"), Member(label="Blue", id="blue"))
    assert found["closure"].values == (
        Member(label="Zip fastener", id="zip", description="with teeth"),
        Member(label="Clip", id="clip"),
    )
    assert found["size.outer.depth"].type == "number"
    assert not {"kind", "parts"} & found.keys()
    assert "left out, a constant: kind" in model.printed
    assert "lists of objects or of lists, and objects without properties: parts" in model.printed
    assert not model.remarks()


def test_what_is_too_large_is_refused(tmp_path: Path) -> None:
    many = {f"p{number}": {"type": "string"} for number in range(100)}
    levels = {f"L{number}": {"properties": {**many, "in": {"$ref": f"#/$defs/L{number + 1}"}}} for number in range(15)}
    schema = {"$ref": "#/$defs/L0", "$defs": {**levels, "L15": {"properties": many}}}
    assert "more than 1,000 properties; give a part of it" in refused(tmp_path, write(tmp_path, "big.json", schema))


MODELS = """
    from datetime import date, datetime
    from decimal import Decimal
    from enum import Enum
    from typing import Annotated, Literal, Optional
    from uuid import UUID

    from pydantic import BaseModel, Field, HttpUrl, conlist


    class Shell(str, Enum):
        hard = "hard"
        soft = "soft"


    class Size(BaseModel):
        width: Annotated[float, Field(json_schema_extra={"x-unit": "cm"})]


    class Suitcase(BaseModel):
        brand: str = Field(description="the maker")
        outer_shell: Optional[Shell] = None
        wheels: Literal["2", "4"] | None = None
        colours: list[str] = []
        size: Size


    class Grade(Enum):
        LOW = 1
        HIGH = 2


    class Types(BaseModel):
        price: Decimal
        weight: Annotated[Decimal, Field(gt=0, decimal_places=2)] | None = None
        sizes: list[Decimal] | None = None
        span: tuple[float, float]
        count: Annotated[int, Field(ge=1, le=9)]
        litres: float | int
        made: date | datetime
        seen: list[date]
        key: UUID
        page: HttpUrl
        tags: conlist(str, min_length=1)
        grade: Grade
        grades: set[Shell] | None = None
        mixed: float | str
        picture: bytes = b""


    Anything = Suitcase | Size
    number = 7
"""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the working folder."""
    write(tmp_path, "shop_models.py", MODELS)
    write(tmp_path, "broken_models.py", "raise RuntimeError('no database')")
    write(tmp_path, "ending_models.py", "import sys\nsys.exit(0)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "shop_models", raising=False)
    return "shop_models"
