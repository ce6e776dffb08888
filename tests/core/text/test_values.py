"""Reading a value: the first complete JSON value of the line, checked against the attribute."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hpd_core.text import absence
from hpd_core.text.template import render_answer_line
from hpd_core.text.values import parse_value
from hpd_core.types import Attribute
from tests.tables import table

TEXT = Attribute(name="a")
NUMBER = Attribute(name="a", type="number")
WEIGHT = Attribute(name="a", type="number", unit="kg")
PRICE = Attribute(name="a", type="number", unit={"want": "$", "accept": ["USD"]})
BOOLEAN = Attribute(name="a", type="boolean")
ROAST = Attribute(name="a", type="enum", values=("light", "Dark", "extra dark"))
CASES = Attribute(name="a", type="enum", values=("XL", "xl", "M"))
LIST = Attribute(name="a", multiple=True)
NUMBERS = Attribute(name="a", type="number", unit="cm", multiple=True)
ROASTS = Attribute(name="a", type="enum", values=("light", "dark"), multiple=True)

VALUES: list[tuple[Attribute, str, tuple[str, ...]]] = [
    (TEXT, ' "Nike",\n', ("Nike",)),
    (TEXT, '   "Nike"  ,  \n', ("Nike",)),
    (TEXT, ' "  Nike Air  ",\n', ("Nike Air",)),
    (TEXT, " 42,\n", ("42",)),
    (TEXT, " true,\n", ("true",)),
    (TEXT, r' "5\" disc \\ 3\/4",' + "\n", ('5" disc \\ 3/4',)),
    (TEXT, r' "a\nb\tc",' + "\n", ("a\nb\tc",)),
    (TEXT, ' "a\tb",\n', ("a\tb",)),
    (TEXT, r' "Cr\u00e8me",' + "\n", ("Crème",)),
    (TEXT, r' "\ud83d\ude00",' + "\n", ("😀",)),
    (TEXT, ' "1e999",\n', ("1e999",)),
    (TEXT, ' "a; b",\n', ("a; b",)),
    (TEXT, r' "L\XL",' + "\n", ("L\\XL",)),
    (NUMBER, " 42,\n", ("42",)),
    (NUMBER, " 1e3,\n", ("1000",)),
    (NUMBER, ' "1,5",\n', ("1.5",)),
    (NUMBER, " 1/2,\n", ("0.5",)),
    (NUMBER, ' ".33",\n', ("0.33",)),
    (NUMBER, ' "1.500",\n', ("1.500",)),
    (NUMBER, " 20,000,\n", ("20,000",)),
    (WEIGHT, ' "1,250.5 kg",\n', ("1250.5",)),
    (NUMBER, ' "42",\n', ("42",)),
    (WEIGHT, ' "12 kg",\n', ("12",)),
    (WEIGHT, " 12,\n", ("12",)),
    (PRICE, ' "USD 1,299.00",\n', ("1299.00",)),
    (BOOLEAN, " true,\n", ("true",)),
    (BOOLEAN, ' "Yes",\n', ("true",)),
    (ROAST, ' "Dark",\n', ("Dark",)),
    (ROAST, ' "dark",\n', ("Dark",)),
    (CASES, ' "xl",\n', ("xl",)),
    (CASES, ' "XL",\n', ("XL",)),
    (LIST, ' ["red", "blue"],\n', ("red", "blue")),
    (LIST, ' ["red", "blue", "red"],\n', ("red", "blue")),
    (LIST, ' ["red", null],\n', ("red",)),
    (LIST, ' ["red", "n/a"],\n', ("red",)),
    (LIST, ' "red",\n', ("red",)),
    (LIST, r' ["a, \"b\"", "c]"],' + "\n", ('a, "b"', "c]")),
    (NUMBERS, ' [1, "2 cm", 3.0],\n', ("1", "2", "3.0")),
]


@table(("attribute", "raw", "items"), VALUES)
def test_values(attribute: Attribute, raw: str, items: tuple[str, ...]) -> None:
    value = parse_value(attribute, raw, closed=True)
    assert (value.status, value.items, value.text) == ("value", items, "; ".join(items))
    assert value.num_dropped == 0
    assert all(type(item) is str for item in value.items), "plain strings, or they do not survive Arrow"
    assert type(value.text) is str


INVALID: list[tuple[Attribute, str]] = [
    (TEXT, "\n"),
    (TEXT, " Nike,\n"),
    (TEXT, ' "Nike\n'),
    (TEXT, ' "",\n'),
    (TEXT, ' {"a": 1},\n'),
    (TEXT, ' ["Nike"],\n'),
    (TEXT, " NaN,\n"),
    (TEXT, " nul,\n"),
    (TEXT, ", null\n"),
    (TEXT, " " + "[" * 100_000 + "\n"),
    (LIST, " " + "[" * 300 + "]" * 300 + "\n"),
    (NUMBER, " 1e999,\n"),
    (NUMBER, ' "inf",\n'),
    (NUMBER, ' "12 kg",\n'),
    (NUMBER, ' "1_000",\n'),
    (NUMBER, ' "10-12",\n'),
    (NUMBER, " 10-12,\n"),
    (NUMBER, ' "E27",\n'),
    (NUMBER, ' "1e-999999999",\n'),
    (NUMBER, " true,\n"),
    (NUMBER, " " + "9" * 10_000 + ",\n"),
    (WEIGHT, ' "12 g",\n'),
    (PRICE, ' "€12.99",\n'),
    (BOOLEAN, ' "maybe",\n'),
    (ROAST, ' "medium",\n'),
    (CASES, ' "Xl",\n'),
    (LIST, ' ["red", "blue\n'),
    (LIST, ' [["red"]],\n'),
    (LIST, ' ["red", ""],\n'),
    (NUMBERS, ' [1, "wide"],\n'),
    (ROASTS, ' ["light", "medium"],\n'),
]


@table(("attribute", "raw"), INVALID)
def test_invalid(attribute: Attribute, raw: str) -> None:
    value = parse_value(attribute, raw, closed=True)
    assert (value.status, value.text, value.items) == ("invalid", None, ())
    assert value.raw == raw.split("\n")[0]


@table(
    ("raw", "text", "item"),
    [
        (" 1,500,\n", "flour, 1,500 g", "1500"),
        (" 1.500,\n", "flour, 1,500 g", "1500"),
        (' "1.500",\n', "Mehl, 1.500 g", "1500"),
        (" 20.000,\n", "20,000 mAh", "20000"),
        (" 1.500,\n", "the jug holds 1.5 l", "1.500"),
        (" 1,500,\n", "der Krug fasst 1,5 l", "1.500"),
        (" -1.500,\n", "offset: -1,500 g", "-1500"),
        # Ambiguous in the text, not in it, or in it both ways: as the model wrote it.
        (" 1.125,\n", "the pin is 1.125 inch", "1.125"),
        (" 1,125,\n", "two pins", "1,125"),
        (" 1.500,\n", "1.5 kg (1500 g)", "1.500"),
        (" 1500,\n", "flour, 1,500 g", "1500"),
    ],
)
def test_a_lone_separator_is_read_as_the_texts_have_it(raw: str, text: str, item: str) -> None:
    value = parse_value(NUMBER, raw, closed=True, fields={"title": "a thing", "text": text})
    assert (value.status, value.items, value.raw) == ("value", (item,), raw.rstrip("\n"))


@table(
    "raw",
    [' "Nike Air Zoom', ' "Nike\\', " nul", "", " 12", " 12.", " 12.5", " 1e", " 1E", " 1e+", " 1.5e-", " -", " ["],
)
def test_what_the_cut_may_have_shortened_is_never_passed_off_as_whole(raw: str) -> None:
    """A number might have had more digits, a fraction or an exponent."""
    value = parse_value(TEXT, raw, closed=False)
    assert (value.status, value.text, value.items, value.raw) == ("truncated", None, (), raw)


@table(
    ("attribute", "raw", "status", "items"),
    [
        (TEXT, ' "Nike"', "value", ("Nike",)),
        (TEXT, ' "Nike", "Size": ', "value", ("Nike",)),
        (TEXT, " 12,", "value", ("12",)),
        (NUMBER, " 12,", "truncated", ()),
        (NUMBER, " 12, ", "truncated", ()),
        (NUMBER, " 12, 1", "value", ("12",)),
        (NUMBERS, " [12],", "value", ("12",)),
        (TEXT, " null", "absent", ()),
        (BOOLEAN, " true", "value", ("true",)),
        (LIST, ' ["red", "blue"]', "value", ("red", "blue")),
        (LIST, ' ["red", "blue"', "truncated", ()),
        (LIST, ' ["red", 12', "truncated", ()),
        (ROAST, ' "medium"', "invalid", ()),
    ],
)
def test_what_was_complete_before_the_cut_is_whole(
    attribute: Attribute, raw: str, status: str, items: tuple[str, ...]
) -> None:
    value = parse_value(attribute, raw, closed=False)
    assert (value.status, value.items) == (status, items)


# Words for nothing and text that is only space are no items; surrogates are no text.
item_texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).filter(
    lambda text: text == text.strip() and absence.read(text, TEXT.name) is absence.Reading.VALUE
)
numbers = st.one_of(
    st.integers(-(10**12), 10**12), st.floats(-1e9, 1e9, allow_nan=False).map(lambda number: round(number, 4))
).map(json.dumps)


@st.composite
def answers(draw: st.DrawFn) -> tuple[Attribute, list[str]]:
    kind = draw(st.sampled_from(["string", "number", "boolean", "enum"]))
    multiple = draw(st.booleans())
    members = draw(st.lists(item_texts, min_size=1, max_size=5, unique=True))
    items = {"string": item_texts, "number": numbers, "boolean": st.sampled_from(["true", "false"])}.get(
        kind, st.sampled_from(members)
    )
    chosen = draw(st.lists(items, min_size=1, max_size=4 if multiple else 1, unique=True))
    options: dict[str, Any] = {"values": tuple(members)} if kind == "enum" else {}
    return Attribute(name="a", type=kind, multiple=multiple, **options), chosen


@given(answers())
def test_a_perfect_answer_reads_back(answer: tuple[Attribute, list[str]]) -> None:
    attribute, items = answer
    line = render_answer_line(attribute, items)
    assert line.count("\n") == 1
    assert line.endswith("\n")
    value = parse_value(attribute, line, closed=True)
    assert (value.status, value.items, value.num_dropped) == ("value", tuple(items), 0)


json_like = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
).map(json.dumps)


@given(
    attribute=st.sampled_from([TEXT, NUMBER, WEIGHT, BOOLEAN, ROAST, LIST, NUMBERS, ROASTS]),
    raw=st.one_of(st.text(), st.text(alphabet='"\\[]{}:,nul \t\n1.-e/u0d8'), json_like),
    closed=st.booleans(),
)
def test_any_text_gives_a_consistent_value(attribute: Attribute, raw: str, closed: bool) -> None:
    value = parse_value(attribute, raw, closed=closed)
    assert not (closed and value.status == "truncated")
    assert (value.text is not None) == (value.status == "value") == bool(value.items)
    assert attribute.multiple or len(value.items) <= 1
    assert "\n" not in value.raw
    assert value.num_dropped >= 0
    if attribute.labels:
        assert set(value.items) <= set(attribute.labels)
