"""`hpd schema propose`: by counting what texts name, and by asking a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hpd_core import Unit
from pipelines.schema import app
from tests.pipelines.config.imports import Done, loaded, write
from tests.pipelines.labelling.served_teacher import Reply, TroubleMaker

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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.jsonl"], "nowhere.jsonl"),
        (["{toys}", "--model", "m"], "--endpoint and --model belong together"),
        (["{toys}", "--endpoint", "ftp://x", "--model", "m"], "Error: --endpoint must start with http:// or https://"),
        (["{toys}", "--endpoint", "http://u:p@x", "--model", "m"], "environment variable in --api-key-env"),
        (["{toys}", "--endpoint", "http://x", "--model", ""], "Error: --model: String should have"),
        (
            ["{toys}", "--endpoint", "http://x", "--model", "m", "--api-key-env", "NOT_SET_HERE"],
            "Error: --api-key-env: the environment variable NOT_SET_HERE is not set",
        ),
        (["{toys}", "--endpoint", "http://localhost:9/v1", "--model", "m"], "cannot reach http://localhost:9/v1"),
        (
            ["{toys}", "--endpoint", "http://localhost:9/v1", "--model", "m", "--api-key-env", "sk 1"],
            "Error: --api-key-env is the name of an environment variable",
        ),
    ],
)
def test_what_cannot_be_done(toys: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    told = refused(tmp_path, *(each.format(toys=toys) for each in arguments))
    assert message in told
    assert not any(key in told for key in ("teacher.", "base_url", "api_key_env", "'configuration'"))


# By a model

ANSWER = """
<attribute id="1"><name>Colour</name><description>red, blue or green</description><datatype>categorical</datatype>
<values>red|teal</values></attribute>
<attribute id="2"><name>Play style</name><description>how it is played with</description>
<datatype>categorical</datatype><values>thing to play with|solo</values></attribute>
<attribute id="3"><name>Line length</name><description>of the line</description><datatype>numerical</datatype>
<unit>m</unit></attribute>
"""


def ask(server: TroubleMaker, folder: Path, *arguments: object) -> Done:
    return done(folder, *arguments, "--endpoint", server.url, "--model", "m")


def test_a_model_is_asked_about_each_category(toys: Path, tmp_path: Path) -> None:
    with TroubleMaker(lambda *_: Reply(ANSWER)) as server:
        proposed = ask(server, tmp_path, toys)
    assert len(server.requests) == 2
    question = server.texts()[0]
    assert "list of price-sensitive attributes that experienced customers" in question
    assert question.count("<product>") == 12 + 1  # and in the instruction
    assert "\nNet weight: " in question
    assert "<li>" not in question
    assert "response_format" not in server.requests[0]

    assert proposed.names("Kites") == ["Colour", "Play style", "Line length", "Net weight", "Washable"]
    colour = proposed.attribute("Kites", "Colour")
    assert (colour.type, colour.description) == ("enum", "red, blue or green")
    style = proposed.attribute("Kites", "Play style")
    assert (style.type, style.description) == ("string", "how it is played with")
    assert "# in at least 20 of 20 products (100%): thing to play with 20" in proposed.text
    assert proposed.attribute("Kites", "Line length").unit == Unit(want="m")
    assert "m was asked about 2 categories: 200 tokens in, 20 out" in proposed.printed
    assert not proposed.remarks()


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (
            Reply({"error": {"message": "no such model"}}, 404),
            "answers HTTP 404: no such model; check --endpoint and --model ('m')",
        ),
        (Reply({"error": {"message": "bad key"}}, 401), "name the variable with the key in --api-key-env"),
        (Reply({"error": {"message": "too long"}}, 400), "refused: HTTP 400: too long"),
    ],
)
def test_an_endpoint_that_refuses(toys: Path, tmp_path: Path, reply: Reply, message: str) -> None:
    with TroubleMaker(lambda *_: reply) as server:
        told = refused(tmp_path, toys, "--endpoint", server.url, "--model", "m")
    assert message in told


def test_one_category_without_an_answer_costs_no_other_its_own(toys: Path, tmp_path: Path) -> None:
    def behaviour(request: dict[str, Any], _: int) -> Reply:
        is_kites = "category Kites" in request["messages"][0]["content"]
        return Reply(ANSWER) if is_kites else Reply({"error": {"message": "too long"}}, 400)

    with TroubleMaker(behaviour) as server:
        proposed = ask(server, tmp_path, toys)
    assert "no answer about Balls" in proposed.printed
    assert "refused: HTTP 400: too long" in proposed.printed
    assert proposed.names("Balls") == ["Colour", "Net weight", "Washable"]
    assert "Play style" in proposed.names("Kites")


def test_a_dead_endpoint_is_not_asked_about_every_category(tmp_path: Path) -> None:
    rows = [product(number) | {"category": f"c{number}"} for number in range(40)]
    with TroubleMaker(lambda *_: Reply({"error": {"message": "too long"}}, 400)) as server:
        told = refused(tmp_path, catalog(tmp_path, rows), "--endpoint", server.url, "--model", "m")
    assert "too long" in told
    assert len(server.requests) < 40


def test_nobody_is_asked_where_the_file_is_there_already(toys: Path, tmp_path: Path) -> None:
    there = write(tmp_path, "there.yaml", "mine")
    with TroubleMaker(lambda *_: Reply(ANSWER)) as server:
        result = call(toys, "--out", there, "--endpoint", server.url, "--model", "m")
    assert (result.exit_code, server.requests) == (2, [])
    assert "there.yaml exists already; --force writes over it" in result.stderr
    assert there.read_text() == "mine"
