"""Schema files as people and programs write them: what YAML reads as something else, encodings, tabs, doubled keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.config.schema_file import load_schemas
from pipelines.errors import UsageError
from tests.examples import examples


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
