"""One text for an attribute that is a list: taken apart where every part is surely one, else a counted problem."""

from __future__ import annotations

import json
from typing import Any

from hpd_core import Attribute, CategorySchema, Value
from hpd_core.text.values import parse_value
from pipelines.labelling.teacher_answers import split_lists
from tests.tables import table

SCHEMA = CategorySchema(
    category="Shirts",
    attributes=(
        Attribute(name="Tags", multiple=True),
        Attribute(name="Fit", type="enum", values=("slim", "wide", "S, M"), multiple=True),
        Attribute(name="Widths", type="number", multiple=True),
        Attribute(name="Brand"),
    ),
)


def split(name: str, answer: Any, text: str) -> tuple[Value | None, dict[str, int]]:
    fields = {"title": text}
    attribute = next(attribute for attribute in SCHEMA.attributes if attribute.name == name)
    value = parse_value(attribute, json.dumps(answer), closed=True, fields=fields)
    values, problems = split_lists(SCHEMA, {name: value}, fields)
    return values.get(name), dict(problems)


@table(
    ("name", "answer", "text", "items"),
    [
        ("Tags", "S, M, L", "Shirt in L, M and S", ("S", "M", "L")),
        ("Tags", "Peru; Brazil", "beans of Brazil, with some of Peru", ("Peru", "Brazil")),
        ("Tags", "red | dark blue", "Dark Blue or red", ("red", "dark blue")),
        ("Tags", "S、M، L", "Shirt in S, M, L", ("S", "M", "L")),
        ("Tags", "S/M/L", "Shirt in S, M, L", ("S", "M", "L")),
        ("Tags", "S, M and L", "Shirt in S, M, L", ("S", "M", "L")),
        ("Tags", "S M L", "Shirt in S, M, L", ("S", "M", "L")),
        ("Fit", "slim, wide", "a shirt", ("slim", "wide")),
        ("Fit", "S, M", "a shirt", ("S, M",)),
        ("Widths", "10, 12", "10 cm or 12 cm", ("10", "12")),
        # one value, whatever it looks like
        ("Tags", "cotton", "cotton", ("cotton",)),
        ("Tags", ["Black & Decker"], "Black & Decker", ("Black & Decker",)),
        ("Tags", "Vitamin E oil", "Vitamin E oil", ("Vitamin E oil",)),
        ("Tags", "dark blue", "dark blue, not dark, not blue", ("dark blue",)),
        ("Tags", "1,5", "1,5 mm", ("1,5",)),
        ("Tags", "Apple, Inc.", "by Apple, Inc.", ("Apple, Inc.",)),
        ("Tags", ["Salt, Pepper and more"], "Salt, Pepper and more", ("Salt, Pepper and more",)),
        ("Tags", ["a, b", "c"], "a, b, c", ("a, b", "c")),
        ("Brand", "Fruit, Loom", "Fruit, Loom", ("Fruit, Loom",)),
    ],
)
def test_the_values_of_a_text(name: str, answer: Any, text: str, items: tuple[str, ...]) -> None:
    value, problems = split(name, answer, text)
    assert value is not None
    assert (value.status, value.items, problems) == ("value", items, {})


@table(
    ("answer", "text"),
    [
        ("Salt, Pepper and more", "Salt, Pepper and more"),
        # one name, or two values: nothing in the text tells
        ("Black & Decker", "Black & Decker"),
        ("AC/DC", "AC/DC shirt"),
        ("S M L", "Shirt in S M L"),
        ("S、M、L", "a small shirt"),
        ("S, M, XXL", "Shirt in S and M"),
        ("Levi Strauss & Co, Wrangler", "Levi Strauss & Co, Wrangler"),
        ("cotton, elastane, etc", "cotton, elastane, etc"),
    ],
)
def test_what_cannot_be_told_is_no_label_but_a_problem(answer: str, text: str) -> None:
    assert split("Tags", answer, text) == (None, {"list_as_text": 1})
