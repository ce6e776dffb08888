"""Schema files with more than names: members with ids, units, a library, categories that extend each other."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import Attribute, CategorySchema, Member, Unit
from hpd_core.text.near_names import fold_name
from pipelines.config.importing.imported import Imported, SourceCategory, schema_text
from pipelines.config.schema_file import load_schemas, parse_schemas
from pipelines.errors import UsageError
from tests.examples import examples
from tests.tables import table

EVERYTHING = """
attributes:
  color: {name: Color, id: "gid:1", type: enum, values: [{id: "1", label: Black, synonyms: [noir]}, White]}
  width: {name: Width, type: number, unit: {want: cm, accept: [in, mm]}}
  Volume: {type: number, unit: l}
categories:
  Backpacks:
    extends: Bags
    id: lb-1
    aliases: ["Luggage > Backpacks"]
    attributes: [{use: width, description: of the back}, {name: Brand, description: the maker}, use: Volume]
  Bags:
    - Brand
    - use: color
  Coolers: {extends: [Bags, Cans]}
  Cans: [{use: color, name: Colour, multiple: true}, Lid, {use: Volume, unit: null}]
"""


def load(folder: Path, text: str) -> dict[str, CategorySchema]:
    path = folder / "schemas.yaml"
    path.write_text(text, encoding="utf-8")
    return load_schemas(str(path))


def test_every_form(tmp_path: Path) -> None:
    schemas = load(tmp_path, EVERYTHING)
    assert list(schemas) == ["Backpacks", "Bags", "Coolers", "Cans"], "in the file's order"
    members = (Member(label="Black", id="1", synonyms=("noir",)), Member(label="White"))
    color = Attribute(name="Color", id="gid:1", type="enum", values=members)
    brand, volume = Attribute(name="Brand"), Attribute(name="Volume", type="number", unit=Unit(want="l"))
    bags = CategorySchema(category="Bags", attributes=(brand, color))
    width = Attribute(name="Width", type="number", unit=Unit(want="cm", accept=("in", "mm")), description="of the back")
    assert schemas["Bags"] == bags
    assert schemas["Backpacks"] == CategorySchema(
        category="Backpacks",
        id="lb-1",
        aliases=("Luggage > Backpacks",),
        attributes=(Attribute(name="Brand", description="the maker"), color, width, volume),
    )
    cans = (
        Attribute(name="Colour", id="gid:1", type="enum", values=members, multiple=True),
        Attribute(name="Lid"),
        Attribute(name="Volume", type="number"),
    )
    assert schemas["Cans"].attributes == cans
    assert schemas["Coolers"].attributes == (brand, color, *cans)


def library(entry: str) -> str:
    return f"attributes:\n  color:\n    {entry}\ncategories:\n  A: [x]\n"


def member(entry: str) -> str:
    return f"categories:\n  A:\n    - name: x\n      type: enum\n      values:\n        - a\n        - {entry}\n"


def unit(entry: str) -> str:
    return f"categories:\n  A:\n    - name: x\n      type: number\n      unit: {entry}\n"


@table(
    ("text", "message"),
    [
        (member("{id: '1'}"), ", line 7: category 'A', attribute 'x', value 2: has no label; the label is what is"),
        (member("{label: b, id: 12}"), "line 7: category 'A', attribute 'x', value 'b': id 12 is read by YAML as the"),
        (member('""'), "line 7: category 'A', attribute 'x': value '' is empty; an empty answer is none; leave it out"),
        (member('{label: b, id: ""}'), "line 7: category 'A', attribute 'x', value 'b': id '' is empty; leave it out"),
        (member("{label: on}"), "line 7: category 'A', attribute 'x', value 2: label on is read by YAML as a truth"),
        (member("{label: b, synonyms: c}"), "attribute 'x', value 'b': synonyms must be a list, not a text"),
        (member("{label: a, id: '2'}"), "line 3: category 'A', attribute 'x': attribute 'x' lists a value twice: 'a'"),
        (unit("5"), "line 5: category 'A', attribute 'x': unit 5 is read by YAML as the number 5"),
        (unit("{accept: [in]}"), "attribute 'x', unit: does not say which one is wanted: {want: cm, accept: [in, mm]}"),
        (unit("{want: cm, acept: [in]}"), "attribute 'x', unit: unknown key 'acept'; did you mean 'accept'?"),
        ("attributes: [x]\ncategories:\n  A: [x]\n", "'attributes' must be a mapping of handles to attributes, for"),
        (library("Color"), "line 2: library attribute 'color': a mapping is needed, such as {name: color}, not a text"),
        (library("{use: color}"), "library attribute 'color': unknown key 'use'; known keys: name, id,"),
        (library("{type: enum}"), "library attribute 'color': attribute 'color' is an enum and needs a non-empty list"),
        (library("{}") + "  B: [use: colour]\n", "library 'colour'; did you mean 'color'"),
        (library("{}") + "  B: [use: color, use: color]\n", "category 'B': attribute 'color' is listed twice"),
        (
            "categories:\n  A: {extends: B}\n  C: [x]\n",
            "line 2: category 'A': there is no category 'B'; known are: A, C",
        ),
        ("categories:\n  A: {extends: A}\n", "line 2: category 'A': extends itself: 'A' extends 'A'"),
        (
            "categories:\n  A: [x]\n  B: {extends: A}\n  C:\n    extends: [A, B]\n",
            "line 5: category 'C': extends 'A' and 'B', which leave open whose attributes count first: one of them is",
        ),
        (
            "categories:\n  A: [x]\n  B: [x]\n  C: {extends: [A, B]}\n  D: {extends: [B, A]}\n  E: {extends: [C, D]}\n",
            "line 6: category 'E': extends 'C' and 'D', which leave open whose attributes count first",
        ),
        (
            "categories:\n  A: {id: x}\n",
            "category 'A': a non-empty list of attributes is needed, its own or those of a",
        ),
        (
            "categories:\n  A:\n    attributes:\n      - x\n      - x\n",
            "line 5: category 'A': attribute 'x' is listed twice",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    told = str(caught.value)
    assert told.startswith(f"{tmp_path}/schemas.yaml")
    assert message in told
    assert "\n" not in told


words = st.text("aAbB 1é", min_size=1, max_size=4).filter(lambda text: text.strip() == text)
tuples = st.lists(words, max_size=2).map(tuple)
members = st.builds(Member, label=words, id=st.none() | words, synonyms=tuples, description=st.none() | words)
vocabularies = st.lists(members, min_size=1, max_size=12, unique_by=lambda each: each.label).map(tuple)
described = {"id": st.none() | words, "description": st.none() | words, "multiple": st.booleans(), "aliases": tuples}
attributes = st.one_of(
    st.builds(Attribute, name=words, type=st.sampled_from(["string", "date", "boolean"]), **described),
    st.builds(Attribute, name=words, type=st.just("enum"), values=vocabularies, **described),
    st.builds(
        Attribute, name=words, type=st.just("number"), unit=st.none() | st.builds(Unit, want=words, accept=tuples)
    ),
)


pools = st.lists(attributes, min_size=1, max_size=5, unique_by=lambda each: fold_name(each.name)).map(tuple)


@settings(max_examples=examples(60))
@given(pools, pools)
def test_what_is_written_is_read_again(shared: tuple[Attribute, ...], own: tuple[Attribute, ...]) -> None:
    library = {f"{kind}{n}": each for kind, pool in (("s", shared), ("o", own)) for n, each in enumerate(pool)}
    handles = {kind: tuple(handle for handle in library if handle.startswith(kind)) for kind in "so"}
    categories = [SourceCategory(name, (name,), handles[kind]) for name, kind in (("A", "s"), ("B", "s"), ("C", "o"))]
    again = parse_schemas(yaml.safe_load(schema_text(Imported("drawn", library, categories), "p")), "again")
    assert {name: schema.attributes for name, schema in again.items()} == {"A": shared, "B": shared, "C": own}
