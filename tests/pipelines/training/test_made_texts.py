"""Texts told in other ways, and invented statements in them: nothing here needs a model."""

from __future__ import annotations

import random
import re
from decimal import Decimal
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.recipe.invented_texts import (
    continue_text,
    draw_asked,
    draw_language,
)
from adapters.recipe.retold_texts import retell
from adapters.recipe.specifications import SPECIFICATIONS
from hpd_core import Attribute, CategorySchema, Record, Unit
from hpd_core.text.template import render_answer_line
from hpd_core.text.values import parse_value
from pipelines.quality.scoring import fold
from tests.examples import examples
from tests.tables import table

NOTHING = re.compile("(?!)")
THING = Record("1", "Coffee", {"title": "Velor thing"})


@cache
def statements_for(name: str, answer: str) -> set[str]:
    """All folded statements from which the answer follows, nearly."""
    (item,) = (item for item in SPECIFICATIONS if item.attribute.name == name)
    drawn = [item.draw(random.Random(seed), language) for seed in range(2000) for language in (None, *item.languages)]
    return {fold(text) for found, text in drawn if found == [answer]}


CONVERTIBLE = {
    "Bin volume": ("l", {"ml": "0.001"}),
    "Gross weight": ("kg", {"g": "0.001"}),
    "Range of the transmitter": ("m", {"km": "1000"}),
    "Rug length": ("cm", {"m": "100"}),
    "Seam allowance": ("mm", {"cm": "10"}),
    "Suction": ("Pa", {"kPa": "1000"}),
    "Tube diameter": ("mm", {"cm": "10"}),
    "Turning radius": ("m", {"cm": "0.01"}),
}


@table("name", sorted(CONVERTIBLE))
def test_a_number_stated_in_another_unit_is_answered_in_the_asked_one(name: str) -> None:
    (item,) = (item for item in SPECIFICATIONS if item.attribute.name == name)
    unit, factors = CONVERTIBLE[name]
    assert item.attribute.unit == Unit(want=unit)
    seen = set()
    for seed in range(300):
        (answer,), text = item.draw(random.Random(seed))
        for other, factor in factors.items():
            if match := re.search(rf"(\d+(?:\.\d+)?) ?{other}(?!\w)", text):
                assert Decimal(answer) == Decimal(match[1]) * Decimal(factor), text
                assert item.units.search(fold(text)), "a text that states it so is not told that it is absent"
                seen.add(other)
    assert seen == set(factors)


@given(st.integers(0, 100_000))
@settings(max_examples=examples(300), deadline=None)
def test_what_is_invented_is_taught_as_it_is_stated(seed: int) -> None:
    generator = random.Random(seed)
    asked = draw_asked(SPECIFICATIONS, generator)
    attributes = {item.attribute.name: item for item in asked}
    unasked = [item for item in SPECIFICATIONS if item not in asked]
    record, answers = continue_text(THING, asked, unasked, NOTHING, generator, draw_language(generator))
    assert set(answers) <= set(attributes)
    text = "\n".join(record.fields.values())
    assert "Velor thing" in text
    for name, items in answers.items():
        item = attributes[name]
        if items is None:
            assert not item.cues.search(fold(text)), "a null that something in the text may contradict"
            continue
        read = parse_value(item.attribute, render_answer_line(item.attribute, items), closed=True)
        assert (read.status, read.items) == ("value", tuple(items)), "an answer that can be given"
        if item.attribute.type == "string":
            assert all(value in text for value in items)
        if item.attribute.type == "number" and name not in CONVERTIBLE:
            assert items[0] in text.replace(",", "") or items[0].replace(".", ",") in text
        if item.attribute.type in ("boolean", "enum"):
            assert any(statement in fold(text) for statement in statements_for(name, items[0]))


def test_a_text_gets_no_statement_about_what_it_is_labelled_with_or_may_state_itself() -> None:
    by_name = {item.attribute.name: item for item in SPECIFICATIONS}
    asked = [by_name[name] for name in ("Season", "Side", "Foldable", "Storage", "Activities")]
    record = Record("1", "Coffee", {"title": "Velor folding thing for cold winters, 128GB, for yoga"})
    seen: set[str] = set()
    for seed in range(200):
        told, answers = continue_text(record, asked, [], re.compile("left"), random.Random(seed))
        seen.add(str(answers))
        assert "left" not in " ".join(told.fields.values()).casefold()
        assert record.fields == {"title": "Velor folding thing for cold winters, 128GB, for yoga"}
    assert seen == {"{}", "{'Side': None}", "{'Side': ['right']}"}


COFFEES = CategorySchema(
    category="Coffee",
    attributes=(
        *(Attribute(name=name) for name in ("Roast", "Weight", "Brand", "Grade", "Parcel", "Name")),
        Attribute(name="Size", type="enum", values=("12 oz", "16 oz")),
        Attribute(name="Bags", type="number"),
        Attribute(name="Organic", type="boolean"),
    ),
)


@given(st.integers(0, 2000))
def test_a_retold_product_still_says_what_its_labels_say(seed: int) -> None:
    record = Record("1", "Coffee", {"title": " Velor dark roast ground coffee 12 oz, dark roast, 2.50 kg"})
    labels = {"Roast": ["dark roast"], "Weight": ["12 oz"], "Brand": ["Velor"], "Grade": None, "Parcel": ["2.50 kg"]}
    told, answers = retell(record, COFFEES, labels, random.Random(seed))
    assert (told.id, told.category, list(answers)) == ("1", "Coffee", list(labels))
    for name, items in answers.items():
        if items is None:
            assert labels[name] is None
            continue
        assert any(re.search(rf"(?<![\w.]){re.escape(items[0])}(?!\w)", text) for text in told.fields.values())
        if name in ("Weight", "Parcel"):
            number, unit = items[0].split()
            assert unit == labels[name][0].split()[1]
            assert float(number) > 0
            assert len(number.partition(".")[2]) == (2 if name == "Parcel" else 0)
        else:
            assert items == labels[name]
    assert "".join(told.fields.values()).count("dark roast") >= 2, "what stands there twice is never taken away"
    assert all(text == text.strip() and text for text in told.fields.values())


@table(
    ("title", "labels"),
    [
        ("Velor Club 12 oz Blend", {"Name": ["Club 12 oz Blend"], "Weight": ["12 oz"]}),
        ("Velor coffee 12 oz", {"Size": ["12 oz"]}),
        ("7 For All Mankind coffee", {"Brand": ["7 For All Mankind"]}),
        ("3M coffee, 100% Arabica, 2nd Gen", {"Brand": ["3M"], "Grade": ["100% Arabica"], "Name": ["2nd Gen"]}),
        ("Velor 12 oz, 340 g", {"Weight": ["12 oz"], "Parcel": ["340 grams"]}),
    ],
)
def test_a_number_stays_if_it_is_no_amount_or_something_hangs_on_it(title: str, labels: dict[str, list[str]]) -> None:
    for seed in range(200):
        assert retell(Record("1", "Coffee", {"title": title}), COFFEES, labels, random.Random(seed))[1] == labels
