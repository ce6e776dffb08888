"""Schema files that are written: whatever a text of a source holds, it is read back as it was."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from hpd_core import Attribute
from pipelines.config.importing.imported import Imported, SourceCategory, schema_text
from pipelines.config.schema_file import parse_schemas
from pipelines.config.yaml_files import parse_yaml

BREAKS = {"a line break": "\n", "U+0085": "\x85", "U+2028": "\u2028", "U+2029": "\u2029", "a return": "\r"}
ANY = st.text(st.characters(exclude_categories=("Cs",)))
TEXTS = ANY.filter(str.strip) | st.builds("{}{}{}".format, st.just("a"), st.sampled_from(list(BREAKS.values())), ANY)


def imported(category: str, attributes: list[Attribute]) -> Imported:
    """Two categories that have the same attributes: these are shared where there is something to share."""
    handles = [f"h{number}" for number in range(len(attributes))]
    categories = [SourceCategory(each, (each,), tuple(handles)) for each in (category, f"other {category}")]
    comments = {handle: each.name for handle, each in zip(handles, attributes, strict=True)}
    return Imported("s", dict(zip(handles, attributes, strict=True)), categories, [category], comments=comments)


def by_import(category: str, attribute: Attribute) -> str:
    return schema_text(imported(category, [attribute, Attribute(name=f"{attribute.name} 2")]), "p")


@given(category=TEXTS, name=TEXTS, description=TEXTS, label=TEXTS)
@example("a\nb", "a\u2028b", "a\x85b", "a\n\n b")
@example("\U0001f600\n" * 150, "x" * 200, "---", "? :")
@example("a" * 130, "\u2028" * 200, " a", "null")
def test_any_text_is_read_back_as_it_was(category: str, name: str, description: str, label: str) -> None:
    category = category.strip()
    attribute = Attribute(name=name, description=description, type="enum", values=(label, f"{label} 2"))
    text = by_import(category, attribute)
    schema = parse_schemas(parse_yaml(text, "F"), "F")[category]
    assert [each.name for each in schema.attributes] == [name, f"{name} 2"]
    assert schema.attributes[0] == attribute
