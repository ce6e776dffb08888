"""What lint says of schemas: exactly this, and that what it calls unanswerable cannot be answered."""

from __future__ import annotations

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import Attribute, CategorySchema
from hpd_core.text.template import render_answer_line
from hpd_core.text.values import parse_value
from pipelines.schemas.lint import lint
from tests.examples import examples
from tests.tables import table


def remarks(*attributes: Attribute, category: str = "Mugs") -> list[str]:
    """Without the category."""
    schema = CategorySchema(category=category, attributes=attributes)
    return [str(remark).removeprefix(category).removeprefix(" > ") for remark in lint({category: schema})]


def enum(*values: object, **options: object) -> Attribute:
    return Attribute.model_validate({"name": "x", "type": "enum", "values": values, **options})


@table(
    ("attribute", "expected"),
    [
        (enum("\u200b", "one"), ["'\\u200b' shows nothing"]),
        (enum("one ", "two"), ["'one ' begins or ends with white space"]),
        (
            enum("Red", "red"),
            ["the value 'red' is almost the same as 'Red' (they differ in capitals): an answer may mean either"],
        ),
        (
            enum("1 l", "1  l"),
            ["the value '1  l' is almost the same as '1 l' (they differ in spaces): an answer may mean either"],
        ),
        (
            enum("Café", unicodedata.normalize("NFD", "Café")),
            [
                "'Cafe\u0301' is not in Unicode's form NFC, which most catalogs have",
                "the value 'Cafe\u0301' is almost the same as 'Café' (they differ in Unicode form): an answer may mean "
                "either",
            ],
        ),
        (enum("C", "C++", "C#", "+5", "-5", "1,5", "15"), []),
        (enum("a\u200bb", "c"), ["'a\\u200bb' holds characters that nobody sees: U+200B"]),
        (enum("👩\u200d🚀", "☕\ufe0f"), []),
        (enum("a &amp; b", "c"), ["'a &amp; b' holds an HTML entity: 'a & b'?"]),
        (enum("R&D", "c"), []),
        (enum("a\nb", "c"), ["'a\\nb' holds a line break or a control character"]),
        (enum("a\x85b", "c"), ["'a\\x85b' holds a line break or a control character"]),
        (enum('5"', "c"), ["the value '5\"' holds a quote or a backslash, which models often write wrongly"]),
        (enum("S\\M", "c"), ["the value 'S\\\\M' holds a quote or a backslash, which models often write wrongly"]),
        (
            enum("a", "None"),
            ["'None' is a value here, though it says nothing elsewhere: what is absent is null, always allowed"],
        ),
        (enum("Yes", "No"), ["the values are 'Yes' and 'No': a boolean?"]),
        (enum("one"), ["only one value is allowed, 'one': a boolean?"]),
        (
            enum("x" * 13, "y", max_value_tokens=3),
            ["the value 'xxxxxxxxxxxxx'… of 13 letters may have more than 3 tokens and be cut"],
        ),
        (enum("x" * 12, "y", max_value_tokens=3), []),
        (
            enum("x" * 121, "y"),
            [f"the value '{'x' * 40}'… of 121 letters may have more than 30 tokens and be cut"],
        ),
        (enum(*(f"v{n}" for n in range(3000))), []),
        (
            enum(*(f"v{n} " for n in range(8))),
            [*(f"'v{n} ' begins or ends with white space" for n in range(5)), "and 3 more of its values like this"],
        ),
        (enum({"label": "a", "id": "1", "synonyms": ["A1", "A2"], "description": "first"}, "c"), []),
        (
            enum({"label": "a", "synonyms": ["x", "b"]}, {"label": "b", "synonyms": ["x", "b"]}),
            [
                "'b' is a synonym of 'a' and a value itself: it means the value 'b'",
                "'x' is a synonym of 'a' and 'b': it means none of them",
            ],
        ),
        (enum({"label": "a", "synonyms": [" "]}, "b"), ["a synonym of 'a' is empty"]),
        (enum({"label": "a", "synonyms": ["x "]}, "b"), ["'x ' begins or ends with white space"]),
        (enum({"label": "a", "description": "x\ny"}, "b"), ["'x\\ny' holds a line break or a control character"]),
        (
            enum({"label": "a", "id": "1"}, {"label": "b", "id": "1"}, {"label": "c", "id": "2"}),
            ["the id '1' is of several values, 'a' and 'b': by it they cannot be told apart"],
        ),
        (Attribute(name="x", type="number", unit={"want": "cm", "accept": ["in", "mm", '"', "ft"]}), []),
        (
            Attribute(name="x", type="number", unit={"want": "cm", "accept": ["kg", "in"]}),
            ["accepts 'kg', which does not measure what 'cm' does: it can never be converted"],
        ),
        (
            Attribute(name="x", type="number", unit={"want": "cm", "accept": ["blorps"]}),
            ["accepts 'blorps', but nothing is known of the unit 'blorps': it is not converted"],
        ),
        (
            Attribute(name="x", type="number", unit={"want": "blorps", "accept": ["cm"]}),
            ["accepts 'cm', but nothing is known of the unit 'blorps': it is not converted"],
        ),
        (Attribute(name="x", aliases=("y ",)), ["'y ' begins or ends with white space"]),
        (Attribute(name="x", description=" "), ["its description is empty"]),
        (Attribute(name="x", unit="", type="number"), ["its unit is empty"]),
        (
            Attribute(name="x", unit="Gb", type="number"),
            [
                "its unit 'Gb' may be Gbit or GB: nothing is converted to or from it; name the one that is meant",
            ],
        ),
        (
            Attribute(name="x", unit={"want": "kg", "accept": ["Pfund", "g"]}, type="number"),
            [
                "its unit 'Pfund' may be metric pound or lb: nothing is converted to or from it; name the one that is "
                "meant",
            ],
        ),
        (Attribute(name="x", unit="cm"), ["has the unit 'cm' but is of type string"]),
        (Attribute(name="x", unit="cm", type="boolean"), ["has the unit 'cm' but is of type boolean"]),
        (Attribute(name="x", type="boolean", multiple=True), ["a list of truth values: without multiple?"]),
        (Attribute(name="x", max_value_tokens=1), ["max_value_tokens is 1: most values have more tokens, and are cut"]),
        (Attribute(name="x", description="d" * 501), ["a description of 501 letters makes every prompt long"]),
        (Attribute(name="x", description="a\nb"), ["'a\\nb' holds a line break or a control character"]),
        (
            Attribute(name="x", description="half \ud83d"),
            ["'half \\ud83d' holds half a surrogate pair, which is no text"],
        ),
        (Attribute(name="x", description="of one package", type="number", unit="g"), []),
    ],
)
def test_an_attribute(attribute: Attribute, expected: list[str]) -> None:
    assert remarks(attribute) == [f"x: {message}" for message in expected]


def test_names_that_are_almost_the_same() -> None:
    assert remarks(Attribute(name="Net weight"), Attribute(name="net-weight")) == [
        "net-weight: almost the same name as attribute 'Net weight' (they differ in capitals and punctuation or signs)"
    ]
    one = CategorySchema(category="Coffee & Tea", attributes=(Attribute(name="x"),))
    other = one.model_copy(update={"category": "Coffee and Tea"})
    assert [str(remark) for remark in lint({one.category: one, other.category: other})] == [
        "Coffee and Tea: almost the same name as category 'Coffee & Tea' (they differ in 'and' or '&')"
    ]


def test_aliases_that_mean_two_categories() -> None:
    brand = (Attribute(name="Brand"),)
    schemas = {
        "Bags": CategorySchema(category="Bags", attributes=brand, aliases=("Luggage", "Bags", "Cups")),
        "Cups": CategorySchema(category="Cups", attributes=brand, aliases=("Luggage", "Mugs ")),
    }
    assert [str(remark) for remark in lint(schemas)] == [
        "Bags: its alias 'Cups' is also the name of a category",
        "Cups: its alias 'Luggage' is also an alias of category 'Bags'",
        "Cups: 'Mugs ' begins or ends with white space",
    ]


def test_what_listed_values_cost_is_told_of_the_largest() -> None:
    schemas = {
        f"c{count}": CategorySchema(category=f"c{count}", attributes=(enum(*(f"value {n}" for n in range(count))),))
        for count in range(160, 200)
    }
    told = [str(remark) for remark in lint(schemas, lambda text: 10 * text.count("value"))]
    assert [line.split(":")[0] for line in told] == [f"c{count}" for count in range(199, 189, -1)]
    assert told[-1].endswith(" all the same (30 more categories have at least 500)")


@settings(max_examples=examples(200))
@given(
    values=st.lists(
        st.text(st.characters(codec="utf-8"), max_size=6).filter(str.strip), min_size=2, max_size=4, unique_by=str.strip
    )
)
def test_what_is_not_doubted_can_be_answered(values: list[str]) -> None:
    attribute = enum(*values)
    for value in values:
        answer = parse_value(attribute, render_answer_line(attribute, [value]), closed=True)
        of_value = [remark for remark in remarks(attribute) if repr(value) in remark]
        told = any("may mean either" in remark for remark in of_value)
        assert told or answer.items == (value,)
