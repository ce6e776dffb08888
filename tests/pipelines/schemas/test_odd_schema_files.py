"""Schema files as people and programs write them: what YAML reads as something else, encodings, tabs, doubled keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hpd_core import Member
from pipelines.config.yaml_files import YamlPlaces
from pipelines.errors import UsageError
from pipelines.schemas.schema_file import load_schemas
from tests.examples import examples
from tests.tables import table


def load(folder: Path, content: str | bytes, name: str = "schemas.yaml") -> dict[str, list[tuple[str, ...]]]:
    """What is read: the attributes by category, each its name and its values."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return {
        category: [(each.name, *each.labels) for each in schema.attributes]
        for category, schema in load_schemas(str(path)).items()
    }


def refusal(folder: Path, content: str | bytes, name: str = "schemas.yaml") -> str:
    """Why it is refused, without the folder."""
    with pytest.raises(UsageError) as caught:
        load(folder, content, name)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{folder}/")


@table(
    ("scalar", "kind"),
    [
        ("1:30", "the number 90"),
        ("012", "the number 10"),
        ("0x1F", "the number 31"),
        ("1_000", "the number 1000"),
        ("3.50", "the number 3.5"),
        (".inf", "the number inf"),
        ("2024-01-01", "a date"),
        ("2024-01-01 10:00:00", "a date"),
        ("no", "a truth value"),
        ("On", "a truth value"),
        ("~", "null"),
        ("null", "null"),
        ("", "null"),
        ("[a]", "a list"),
        ("{a: b}", "a mapping"),
    ],
)
def test_what_yaml_reads_as_something_else_is_named_as_it_is_written(tmp_path: Path, scalar: str, kind: str) -> None:
    shown = {"": "an empty place", "[a]": "['a']", "{a: b}": "{'a': 'b'}"}.get(scalar, scalar)
    told = f"{shown} is read by YAML as {kind}, not as text; put it in quotes"
    values = f"categories:\n  A:\n    - name: x\n      type: enum\n      values:\n        - a\n        - {scalar}\n"
    value = (
        f", value 2: unknown key 'a'; known keys: {', '.join(Member.model_fields)}"
        if kind == "a mapping"
        else f": value {told}"
    )
    assert refusal(tmp_path, values) == f"schemas.yaml, line 7: category 'A', attribute 'x'{value}"
    name = f"categories:\n  A:\n    - y\n    - name: {scalar}\n"
    assert refusal(tmp_path, name) == f"schemas.yaml, line 4: category 'A', attribute 2: name {told}"
    if kind not in ("a list", "a mapping") and scalar:
        category = f"categories:\n  A: [x]\n  {scalar}: [x]\n"
        as_key = "a key must be a plain word; put it in quotes" if kind == "a date" else f"category {told}"
        assert refusal(tmp_path, category) == f"schemas.yaml, line 3: {as_key}"
        bare = f"categories:\n  A:\n    - y\n    - {scalar}\n"
        assert refusal(tmp_path, bare) == f"schemas.yaml, line 4: category 'A': attribute 2: {told}"


@table(
    ("text", "message"),
    [
        ("", "schemas.yaml is empty; a schema file holds one mapping"),
        ("# nothing yet\n", "schemas.yaml is empty; a schema file holds one mapping"),
        ("categories:\n\tA: [x]\n", "line 2: while scanning for the next token, found character"),
        ("categories:\n\tA: [x]\n", "YAML is indented with spaces, not with tabs"),
        (
            "categories:\n  A: [x]\n---\ncategories:\n  B: [x]\n",
            "line 3: expected a single document in the stream, but",
        ),
        ("categories:\n  A: [x]\n  B: [x]\n  A: [y]\n", "line 4: key 'A' is written twice (first in line 2)"),
        ("categories:\n  A: [x]\ncategories:\n  B: [y]\n", "line 3: key 'categories' is written twice"),
        (
            "categories:\n  A:\n  - name: x\n    type: enum\n    values: red\n",
            "line 5: category 'A', attribute 'x': values",
        ),
        ("categories:\n  A:\n  - x\n  - x\n", "line 4: category 'A': attribute 'x' is listed twice"),
        ("categories:\n  A: [x, 2024-13-45]\n", "line 2: '2024-13-45' looks like a value of the type 'timestamp' and"),
        (f"categories:\n  A: [x, {'1' * 5000}]\n", "line 2: the number 11111111111111111111... of 5,000 characters is"),
        (f"categories:\n  {'1' * 800}: [x]\n", "800 characters is too large; if it is a text, put it in quotes"),
        (
            f"categories:\n  A:\n  - name: x\n    max_value_tokens: {'9' * 5000}\n",
            "line 4: the number 99999999999999999999... of 5,000 characters is too large",
        ),
        (
            f"categories:\n  A:\n  - name: x\n    max_value_tokens: 0x{'f' * 5000}\n",
            "line 4: the number 0xffffffffffffffffff... of 5,002 characters is too large",
        ),
        ("categories:\n  A: [!!bool x]\n", "line 2: 'x' looks like a value of the type 'bool' and is none"),
        ("categories:\n  A: [!mine x]\n", "line 2: could not determine a constructor for the tag '!mine'"),
        ("categories:\n  A: [*x]\n", "line 2: found undefined alias 'x'"),
        ("categories:\n  A: &a [*a]\n", "line 2: category 'A': attribute 1 must be a name or a mapping, not a list"),
        ('categories:\n  A:\n  - "x\\ud83d"\n', "holds half a surrogate pair, which is no text"),
        ("categories:\n  A:\n  - x\x00\n", "line 3: holds the control character U+0000"),
        ("categories: " + "[" * 3000, "is nested too deeply"),
        (
            "categories:\n  A: 'x\n",
            "line 3: while scanning a quoted scalar from line 2 on, found unexpected end of stream",
        ),
    ],
)
def test_a_broken_file_is_told_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    assert message in refusal(tmp_path, text)


def test_encodings(tmp_path: Path) -> None:
    text = "categories:\n  Café-Zubehör:\n    - Größe\n"
    expected = {"Café-Zubehör": [("Größe",)]}
    assert load(tmp_path, text) == expected
    assert load(tmp_path, text.encode("utf-8-sig")) == expected, "a byte order mark"
    assert load(tmp_path, text.replace("\n", "\r\n")) == expected, "Windows' line ends"
    told = "schemas.yaml is not UTF-8 text: it is UTF-16. Save it as UTF-8"
    assert refusal(tmp_path, text.encode("utf-16")) == told
    assert refusal(tmp_path, text.encode("cp1252")) == (
        "schemas.yaml is not UTF-8 text: invalid continuation byte at byte 17, line 2. Save it as UTF-8"
    )


def test_json_is_read(tmp_path: Path) -> None:
    text = '{\n\t"categories": {\n\t\t"A \\/ B": [\n\t\t\t{"name": "x"}, "y"]}}'
    assert load(tmp_path, text, "schemas.json") == {"A / B": [("x",), ("y",)]}
    assert refusal(tmp_path, '{"categories": {"A": ["x"],\n"A": ["y"]}}', "s.json") == (
        "s.json: not JSON: key 'A' is written twice"
    )
    assert refusal(tmp_path, '{"categories":\n{"A": ["x",]}}', "s.json").startswith("s.json, line 2: not JSON: ")
    assert refusal(tmp_path, "[" * 100_000, "s.json").startswith("s.json: not JSON: ")
    assert "attribute 1: name 3 is a number" in refusal(tmp_path, '{"categories": {"A": [{"name": 3}]}}', "s.json")


def test_places_that_are_not_there_have_no_line() -> None:
    places = YamlPlaces("a: [x]\n")
    assert (places.line("a"), places.line("b"), places.line("a", 0, "c"), places.line(7)) == (", line 1", "", "", "")
    assert YamlPlaces("a: [").line("a") == ""


fragments = st.sampled_from(
    [
        *"{}[]:,&*!|>-?#'\"%@`\\=~",
        *("\n", "\n  ", "\n    - ", "\t", " ", "categories:", "A", "name: x", "values: [", "yes", "012", "1:30"),
        *("attributes:", "extends: ", "use: ", "unit: {", "want: ", "{label: ", "synonyms: [", "id: "),
        *("2024-13-45", "<<: ", "!!int ", "&a ", "*a", "---\n", "\x00", "\ufeff", "é", "\U0001f45f", "null"),
    ]
)


@settings(max_examples=examples(400))
@given(text=st.lists(fragments, max_size=25).map("".join))
@example(text="categories: {A: [{name: !!set {x}, type: !!binary 'aGk='}]}")
@example(text="categories:\n  ? [A]\n  : [x]")
def test_any_text_is_a_schema_or_is_refused_by_name(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    for content in (text, f"categories:\n  A:\n    - name: {text}", f"categories:\n  {text}: [x]"):
        path.write_text(content, encoding="utf-8")
        refusal = None
        try:
            assert load_schemas(str(path))
        except UsageError as error:
            refusal = str(error)
        assert refusal is None or refusal.startswith(str(path))


@table(
    ("entry", "message"),
    [
        (
            '{"name": "x", "type": "enum", "values": ["a",\n1]}',
            "attribute 'x': value 1 is a number, not a text; put it",
        ),
        ('{"name": "x", "type": "enum", "values": [1.50, "a"]}', "'x': value 1.50 is a number, not a text; put it in"),
        ("\ntrue", "line 2: category 'A': attribute 1: true is a truth value, not a text; put it in quotes"),
        ('{"name": null}', "line 1: category 'A', attribute 1: name null is null, not a text; put it in quotes"),
        (
            '{"name": "x",\n"max_value_tokens": ' + "9" * 5000 + "}",
            "line 2: the number 99999999999999999999... of 5,000 characters is too large; if it is a text, put it in",
        ),
    ],
)
def test_json_is_not_called_yaml(tmp_path: Path, entry: str, message: str) -> None:
    told = refusal(tmp_path, f'{{"categories": {{"A": [{entry}]}}}}', "schemas.json")
    assert message in told
    assert "YAML" not in told
    assert "sys." not in told
