"""JSON Schema and pydantic models: types, enums, units, lists; what is no attribute is named."""

from __future__ import annotations

from pathlib import Path

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
