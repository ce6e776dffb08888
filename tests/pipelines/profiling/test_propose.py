"""`hpd schema propose` counts what texts name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hpd_core import Unit
from pipelines.schema import app
from tests.pipelines.config.imports import Done, loaded, write

COLOURS = ("Red", "Blue", "Green")


def product(number: int) -> dict[str, Any]:
    """Every second one is a kite; each says its colour, weight and whether it may be washed."""
    return {
        "id": f"p{number}",
        "category": "Kites" if number % 2 else "Balls",
        "title": f"A {COLOURS[number % 3].lower()} thing to play with, number {number}",
        "description": f"<ul><li>Colour: {COLOURS[number % 3]}</li><li>Net weight: {number * 5 + 5} g</li></ul>"
        f"<p>Washable: {'yes' if number % 4 else 'no'}</p>",
    }


def catalog(folder: Path, rows: list[dict[str, Any]]) -> Path:
    return write(folder, "catalog.jsonl", "\n".join(map(json.dumps, rows)))


def call(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["propose", *map(str, arguments)])


def done(folder: Path, *arguments: object) -> Done:
    return loaded(call(*arguments, "--out", folder / "out.yaml", "--force"), folder / "out.yaml")


def refused(folder: Path, *arguments: object) -> str:
    result = call(*arguments, "--out", folder / "refused.yaml")
    assert result.exit_code == 2, result.stdout
    assert not (folder / "refused.yaml").exists()
    return str(result.stderr)


@pytest.fixture
def toys(tmp_path: Path) -> Path:
    return catalog(tmp_path, [product(number) for number in range(40)])


def test_what_texts_name_is_counted(toys: Path, tmp_path: Path) -> None:
    proposed = done(tmp_path, toys)
    assert list(proposed.schemas) == ["Balls", "Kites"]
    assert proposed.names("Kites") == ["Colour", "Net weight", "Washable"]
    colour = proposed.attribute("Kites", "Colour")
    assert (colour.type, set(colour.labels)) == ("enum", set(COLOURS))
    assert proposed.attribute("Kites", "Net weight").unit == Unit(want="g")
    assert proposed.attribute("Kites", "Washable").type == "boolean"
    assert "# in 20 of 20 products (100%): yes 20" in proposed.text
    assert "read as texts: title, description; as category: category" in proposed.printed
    assert not proposed.remarks()


@pytest.mark.parametrize(
    "cell",
    [
        {"Colour": "red", "Sizes": ["S", "M"], "More": {"Maker": "Velor"}},
        [{"name": "Colour", "value": "red"}, {"name": "Sizes", "value": "S, M"}, {"name": "Maker", "value": "Velor"}],
        json.dumps({"Colour": "red", "Sizes": ["S", "M"], "Maker": "Velor"}),
        "- Colour: red\n- Sizes: S, M\n- Maker: Velor\n",
        "Colour: red; Sizes: S, M; Maker: Velor",
        "<p>Soft.</p><table><tr><td>Colour</td><td>red</td></tr><tr><td>Sizes</td><td>S, M</td></tr>"
        "<tr><td><b>Maker:</b></td><td> <span>Velor</span></td></tr></table>",
        "<table>\n<tr><th>Attribute</th><th>Value</th></tr>\n<tr><th>Colour</th><td>red</td>\n"
        "<TR class='x'><th>Sizes<td>S, M<tr><th>Maker</th><td>Velor</td></tr>"
        "<tr><td>A</td><td>row</td><td>of three</td></tr><tr><td colspan=2>and of one</td></tr></table>",
        "<dl><dt>Colour</dt><dd>red</dd><dt>Sizes:</dt><dd>S, M</dd><dt>Maker<dd>Velor</dl>",
        "|Attribute | Value|\n|---|:---:|\n| Colour | red |\n| Sizes | S, M |\n|Maker|Velor|\n",
        "Colour\tred\nSizes\tS, M\nMaker\tVelor",
        "<ul><li><strong>Colour</strong>: red</li><li>Sizes:&nbsp;S, M</li><li>Maker : Velor</li></ul>",
    ],
    ids=[
        *("a map", "a list of pairs", "JSON text", "bullets", "one line", "a table", "a table with heads"),
        *("definitions", "a table in Markdown", "tabs", "marked up"),
    ],
)
def test_the_forms_of_keys_and_values(tmp_path: Path, cell: Any) -> None:
    rows = [{"id": f"{number}", "category": "Hats", "title": f"a hat {number}", "details": cell} for number in range(5)]
    proposed = done(tmp_path, catalog(tmp_path, rows))
    assert proposed.names("Hats") == ["Colour", "Sizes", "Maker"]
    assert "# in 5 of 5 products (100%): S, M 5" in proposed.text


def test_the_configuration_of_a_job(toys: Path, tmp_path: Path) -> None:
    config = write(
        tmp_path,
        "job.yaml",
        f"""
        model: smollm2
        input:
          path: {toys}
          category: id
          fields: {{text: description}}
        schemas: not-there-yet.yaml
        output: runs/x
        """,
    )
    proposed = done(tmp_path, config, "--category", "p3")
    assert {name: proposed.names(name) for name in proposed.schemas} == {"p3": ["Colour", "Net weight", "Washable"]}
    other = write(tmp_path, "other.yaml", "categories: {}")
    assert "no section 'input' in it" in refused(tmp_path, other)
    wrong = write(tmp_path, "wrong.yaml", f"input: {{path: {toys}, field: [title]}}")
    assert "unknown key 'field'" in refused(tmp_path, wrong)


def test_what_cannot_be_done(toys: Path, tmp_path: Path) -> None:
    assert "nowhere.jsonl" in refused(tmp_path, "nowhere.jsonl")
    there = write(tmp_path, "there.yaml", "mine")
    result = call(toys, "--out", there)
    assert result.exit_code == 2
    assert "there.yaml exists already; --force writes over it" in result.stderr
    assert there.read_text() == "mine"
