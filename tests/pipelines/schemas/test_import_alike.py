"""What a source calls alike: told apart by its codes, ids and paths, in every kind of source; or refused by name."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpd_core import Member
from hpd_core.text.near_names import fold_name
from pipelines.quality.gold import read_gold
from pipelines.schemas.importing.imported import named_member, told_apart, unique_members
from pipelines.schemas.schema_file import load_schemas
from tests.pipelines.commands import ROOT
from tests.pipelines.schemas.imports import call, done, refused, write
from tests.tables import table

AKENEO = """
    code;attributes;type;label-en_US
    color;;pim_catalog_text;Color
    size;;pim_catalog_text;Size
    f1;color;;Fam
    f2;size;;Fam
    f3;color,size;;fam
    f4;size;;Fam (f1)
"""


def test_families_with_one_label(tmp_path: Path) -> None:
    shop = done(tmp_path, write(tmp_path, "a.csv", AKENEO))
    assert {name: (each.id, shop.names(name)) for name, each in shop.schemas.items()} == {
        "Fam (f1 2)": ("f1", ["Color"]),
        "Fam (f2)": ("f2", ["Size"]),
        "fam (f3)": ("f3", ["Color", "Size"]),
        "Fam (f1)": ("f4", ["Size"]),
    }
    assert not shop.remarks()


def test_one_of_several_called_alike_is_chosen_by_its_id(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", AKENEO)
    assert list(done(tmp_path, path, "--category", "f2").schemas) == ["Fam"]
    assert "called so, name one by its id: 'f1', 'f2', 'f3'" in refused(tmp_path, path, "--category", "Fam")


def test_sets_with_one_name(tmp_path: Path) -> None:
    sets = [{"attribute_set_id": number, "attribute_set_name": "Bags"} for number in (4, 5)]
    write(tmp_path, "shop/sets.json", {"items": sets})
    for number, code in ((4, "color"), (5, "size")):
        write(tmp_path, f"shop/attributes-{number}.json", [{"attribute_code": code, "frontend_input": "text"}])
    shop = done(tmp_path, tmp_path / "shop")
    assert {name: (each.id, shop.names(name)) for name, each in shop.schemas.items()} == {
        "Bags (4)": ("4", ["Color"]),
        "Bags (5)": ("5", ["Size"]),
    }
    assert done(tmp_path, tmp_path / "shop", "--category", "4").schemas["Bags"].id == "4"
    held = [{**each, "attributes": [{"attribute_code": f"a{each['attribute_set_id']}"}]} for each in sets]
    inside = done(tmp_path, write(tmp_path, "held.json", held))
    assert {name: inside.names(name) for name in inside.schemas} == {"Bags (4)": ["A4"], "Bags (5)": ["A5"]}


def test_a_set_that_its_name_alone_does_not_tell_has_no_id(tmp_path: Path) -> None:
    sets = write(tmp_path, "sets.json", [{"attribute_set_id": i, "attribute_set_name": "Bags"} for i in (4, 5)])
    rows = write(tmp_path, "a.csv", "attribute_code,frontend_input,attribute_set_name\ncolor,text,Bags\n")
    shop = done(tmp_path, sets, rows)
    assert shop.schemas["Bags"].id is None
    assert "sets that are called alike and not told apart by an id: Bags" in shop.printed


def test_objects_with_one_title(tmp_path: Path) -> None:
    shapes = {key: {"title": "Hat", "properties": {prop: {}}} for key, prop in (("a", "brand"), ("b", "size"))}
    model = done(tmp_path, write(tmp_path, "d.json", {"$defs": shapes}))
    assert {name: model.names(name) for name in model.schemas} == {"Hat (a)": ["brand"], "Hat (b)": ["size"]}
    files = [write(tmp_path, f"{prop}/hat.json", {"properties": {prop: {}}}) for prop in ("brand", "size")]
    found = done(tmp_path, *files)
    assert sorted(found.names(name) for name in found.schemas) == [["brand"], ["size"]]


def test_two_categories_of_one_id_are_refused(tmp_path: Path) -> None:
    files = [
        write(tmp_path, f"{name}.txt", f"# Google_Product_Taxonomy_Version: 1\n1 - {name}\n")
        for name in ("Bags", "Taschen")
    ]
    assert "two categories have the id '1', 'Bags' with" in refused(tmp_path, *files)


def test_constants_keep_their_own_spelling(tmp_path: Path) -> None:
    constants = {
        "enum": ["a\nb", "a b", " c ", 1, "1", True, None, "d"],
        "x-enumNames": [None, None, None, None, None, None, "None", "Dee"],
    }
    model = done(tmp_path, write(tmp_path, "p.json", {"title": "P", "properties": {"x": constants}}))
    assert model.attribute("P", "x").values == (
        Member(label="a b (a b)", id="a\nb"),
        Member(label="a b"),
        Member(label="c", id=" c "),
        Member(label="1"),
        Member(label="true"),
        Member(label="Dee", id="d"),
    )


@table(
    "node",
    [
        {"enum": ["a", {"x": 1}]},
        {"enum": [["a"]]},
        {"type": "array", "items": {"enum": [{"x": 1}]}},
        {"oneOf": [{"const": {"x": 1}, "title": "X"}, {"const": "y"}]},
        {"anyOf": [{"enum": [{}]}, {"enum": ["y"]}]},
    ],
)
def test_objects_as_constants_are_left_out_by_name(tmp_path: Path, node: dict[str, Any]) -> None:
    model = done(tmp_path, write(tmp_path, "p.json", {"title": "P", "properties": {"x": node, "y": {}}}))
    assert model.names("P") == ["y"]
    assert "left out, one of several objects or lists: x" in model.printed


@given(st.lists(st.tuples(st.sampled_from(["a", "A", "a (1)", "a (1 2)", "b"]), st.sampled_from(["", "1", "2"]))))
def test_no_two_names_are_alike(named: list[tuple[str, str]]) -> None:
    names = told_apart(named, fold_name)
    assert len(set(map(fold_name, names))) == len(named)
    assert all(name.startswith(each) for name, (each, _) in zip(names, named, strict=True))


def test_no_member_is_lost_to_another_ones_label() -> None:
    members = [named_member("Red", "10"), named_member("Red (10)", "12"), named_member("Red", "11")]
    found = unique_members([*members, *members])
    assert [each.id for each in found] == ["10", "12", "11"]
    assert len({each.label for each in found}) == 3


def no_file_takes_a_byte() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def test_what_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    """A process of its own: what this one prints may be going to a file."""
    path, out = write(tmp_path, "hat.json", {"properties": {"brand": {}}}), tmp_path / "out.yaml"
    command = [sys.executable, "pipelines/schema.py", "import", str(path), "--out", str(out)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, preexec_fn=no_file_takes_a_byte)
    assert (result.returncode, "cannot write" in result.stderr) == (2, True), result.stderr
    assert not out.exists()


def test_what_does_not_load_leaves_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = write(tmp_path, "hat.json", {"properties": {"brand": {}}}), tmp_path / "out.yaml"
    assert call(path, "--out", out).exit_code == 0
    monkeypatch.setattr("pipelines.schema.schema_text", lambda *_: "categories: {a: [x], a: [y]}")
    result = call(path, "--out", out, "--force")
    assert (result.exit_code, "written twice" in result.stderr) == (2, True)
    assert list(load_schemas(str(out))) == ["hat"]
    assert "written twice" in refused(tmp_path, path)


def test_gold_names_those_that_got_a_number(tmp_path: Path) -> None:
    line = {"product_id": "1", "category": "Kites", "values": {"Color": ["red"], "color": ["blue"], "Maker": None}}
    write(tmp_path, "gold.jsonl", json.dumps(line))
    shop = done(tmp_path, tmp_path / "gold.jsonl")
    assert {*shop.names("Kites")} == {"Color", "color (2)", "Maker"}
    (product,) = read_gold(str(tmp_path / "gold.jsonl"), shop.schemas)
    values = {name: str(value) for name, value in product.values.items()}
    assert values == {"Color": "red", "color (2)": "blue", "Maker": "(absent)"}
