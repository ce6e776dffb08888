"""Texts told in other ways, and invented statements in them: nothing here needs a model."""

from __future__ import annotations

import random
import re
from decimal import Decimal
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import Attribute, CategorySchema, Record, Unit
from hpd_core.text.template import render_answer_line
from hpd_core.text.values import parse_value
from pipelines.quality.scoring import fold
from pipelines.schemas.schema_file import load_schemas
from pipelines.training import invented_texts
from pipelines.training.invented_texts import (
    continue_text,
    draw_asked,
    draw_language,
    may_hold_anything,
    stated_in,
    suitable,
)
from pipelines.training.retold_texts import retell
from pipelines.training.schema_variants import DESCRIPTIONS
from pipelines.training.specifications import LANGUAGES, SPECIFICATIONS, Specification
from tests.examples import examples
from tests.pipelines.commands import ROOT
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


def test_statements_in_other_languages_are_those_of_the_language() -> None:
    told = {item.attribute.name: item for item in SPECIFICATIONS if item.languages}
    assert {language for item in told.values() for language in item.languages} == set(LANGUAGES)
    drawn = [told["Cable length"].draw(random.Random(seed), "de") for seed in range(50)]
    assert all("abel" in text and answer[0].replace(".", ",") in text for answer, text in drawn)
    assert any("." in answer[0] for answer, _ in drawn)
    animals = [told["Animals"].draw(random.Random(seed), "ja") for seed in range(50)]
    assert all("、" in text for answer, text in animals if len(answer) > 1)
    english = told["Cable length"].draw(random.Random(0), "xx")
    assert english == told["Cable length"].draw(random.Random(0)), "English where there is no other"
    language, german = stated_in("de", SPECIFICATIONS)
    assert language == "de"
    assert len(german) > 50
    assert all("de" in item.languages for item in german)
    assert stated_in(None, SPECIFICATIONS) == (None, SPECIFICATIONS)
    few = [item for item in SPECIFICATIONS if "de" not in item.languages] + list(german[:3])
    assert stated_in("de", few) == (None, few), "too few to draw from: English"


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
        read = parse_value(item.attribute, render_answer_line(item.attribute, items), closed=True, num_tokens=1)
        assert (read.status, read.items) == ("value", tuple(items)), "an answer that can be given"
        if item.attribute.type == "string":
            assert all(value in text for value in items)
        if item.attribute.type == "number" and name not in CONVERTIBLE:
            assert items[0] in text.replace(",", "") or items[0].replace(".", ",") in text
        if item.attribute.type in ("boolean", "enum"):
            assert any(statement in fold(text) for statement in statements_for(name, items[0]))


def test_invented_statements_do_not_contradict_each_other() -> None:
    by_name = {item.attribute.name: item for item in SPECIFICATIONS}
    asked = [
        by_name[name] for name in ("Gluten free", "Allergens", "Charging time", "Rechargeable", "Batteries included")
    ]
    seen: set[str] = set()
    for seed in range(500):
        record, answers = continue_text(THING, asked, [], NOTHING, random.Random(seed))
        text = fold(" ".join(record.fields.values()))
        seen |= set(answers)
        if "Allergens" in answers and "Gluten free" in answers:
            assert "gluten" not in text
            assert "wheat" not in text
        if answers.get("Rechargeable", "untaught") is None:
            assert not re.search("charg|batter", text)
    assert seen == {item.attribute.name for item in asked}


def test_what_the_catalog_may_mean_is_not_invented() -> None:
    names = ["Country", "Model Number", "Age", "Frame Color", "Pack size", "Pattern", "Material"]
    schema = CategorySchema(category="Shoes", attributes=tuple(Attribute(name=name) for name in names))
    free = {item.attribute.name for item in suitable(schema)}
    clashes = {"Made in", "Part number", "Article code", "Target user", "Colour of the lid", "Colour of the frame"}
    assert not free & (clashes | {"Number of pieces", "Pattern", "Theme", "Frame material", "Handle material"})
    assert len(free) > 50
    everything = CategorySchema(
        category="All",
        attributes=tuple(
            Attribute(name=topics) for topics in sorted({" ".join(sorted(item.topics)) for item in SPECIFICATIONS})
        ),
    )
    assert suitable(everything) == []
    assert draw_asked([], random.Random(0)) == []
    assert continue_text(THING, [], [], NOTHING, random.Random(0)) == (THING, {})


def test_a_catch_all_is_not_taught_as_absent_where_something_is_added() -> None:
    assert may_hold_anything("Specialty")
    assert may_hold_anything("Special features")
    assert not may_hold_anything("Brand")


@table("fields", [{}, {"title": "a", "color": "Red"}, dict.fromkeys(invented_texts._FIELD_NAMES, "x")])
def test_any_fields_can_be_continued(fields: dict[str, str]) -> None:
    for seed in range(100):
        generator = random.Random(seed)
        asked = draw_asked(SPECIFICATIONS, generator)
        unasked = [item for item in SPECIFICATIONS if item not in asked]
        record, _ = continue_text(Record("1", "Coffee", fields), asked, unasked, NOTHING, generator)
        assert all(record.fields[name] == text for name, text in fields.items() if name == "color"), "never a column"
        assert set(fields) <= set(record.fields)


@table("item", SPECIFICATIONS)
def test_every_specification_has_answers_and_ways_to_state_them(item: Specification) -> None:
    drawn = [item.draw(random.Random(seed), language) for seed in range(200) for language in (None, *item.languages)]
    texts: dict[str, set[str]] = {}
    for answer, text in drawn:
        texts.setdefault(text, set()).add(str(answer))
        assert text.strip() == text
        assert "{" not in text
    assert all(len(answers) == 1 for answers in texts.values()), "a text that says two things"
    expected = {"boolean": 2, "enum": len(item.attribute.labels)}.get(item.attribute.type, 5)
    assert len({str(answer) for answer, _ in drawn}) >= expected
    assert any(item.attribute.name in text for text in texts)
    assert not all(text.startswith(item.attribute.name) for text in texts)


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


def test_what_comes_near_the_sample_catalog_is_known() -> None:
    """Its scores are to say what a model makes of what it has not seen; more than this would make them worth less.

    Invented attributes whose names are made of words in the sample's names, and descriptions with four words in a row
    from one of the sample's. The adapter's card says what else was learned from it.
    """

    def words(text: str) -> list[str]:
        return re.findall(r"[a-z0-9]+", text.casefold())

    def runs(text: str) -> set[tuple[str, ...]]:
        return set(zip(*(words(text)[start:] for start in range(4)), strict=False))

    sample = [item for schema in load_schemas(str(ROOT / "sample/schemas.yaml")).values() for item in schema.attributes]
    known = {word.rstrip("s") for item in sample for word in words(item.name)}
    names = {item.attribute.name for item in SPECIFICATIONS}
    assert {name for name in names if {word.rstrip("s") for word in words(name)} <= known} == {
        *("Lid material", "Case material", "Charging time", "Screen size", "Tool free", "Season", "Use", "Heel"),
        *("Grain", "Noise", "Surfaces"),
    }
    described = set().union(*(runs(item.description or "") for item in sample))
    descriptions = {text for texts in DESCRIPTIONS.values() for text in texts}
    descriptions |= {item.attribute.description or "" for item in SPECIFICATIONS}
    assert {text for text in descriptions if runs(text) & described} == {"Batch printed on the package."}


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


def test_products_are_retold_in_every_way() -> None:
    record = Record("1", "Coffee", {"title": "Velor dark roast coffee 12 oz"})
    labels = {"Roast": ["dark roast"], "Weight": ["12 oz"]}
    seen = [retell(record, COFFEES, labels, random.Random(seed)) for seed in range(300)]
    assert {len(told.fields) for told, _ in seen} == {1, 2}
    assert len({answers["Weight"][0] for _, answers in seen if answers["Weight"]}) > 20
    titles = [next(iter(told.fields.values())) for told, _ in seen]
    assert any("dark roast" not in title and "Velor" in title and "coffee" in title for title in titles)
    assert record.fields == {"title": "Velor dark roast coffee 12 oz"}
    assert labels == {"Roast": ["dark roast"], "Weight": ["12 oz"]}


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


def test_what_is_no_string_is_listed_under_its_name_and_stays_in_the_title() -> None:
    labels = {"Bags": ["30"], "Organic": ["true"], "Brand": ["Velor"]}
    record = Record("1", "Coffee", {"title": "Velor organic coffee, 30 bags"})
    for seed in range(300):
        fields = list(retell(record, COFFEES, labels, random.Random(seed))[0].fields.values())
        assert "30 bags" in " ".join(fields[:2])
        if "true" in fields[-1]:
            assert re.search(r"Organic\W+true", fields[-1])


def test_a_product_of_several_fields_is_left_as_it_is() -> None:
    record = Record("1", "Coffee", {"title": "Velor 12 oz", "text": "ground"})
    for seed in range(50):
        assert retell(record, COFFEES, {"Weight": ["12 oz"]}, random.Random(seed)) == (record, {"Weight": ["12 oz"]})
