"""Schemas of training, varied; nothing here needs a model."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hpd_core import Attribute, CategorySchema, Unit
from pipelines.training.schema_variants import draw_variant

SCHEMA = CategorySchema(
    category="Coffee",
    attributes=(Attribute(name="Roast"), Attribute(name="Weight"), Attribute(name="Flavour"), Attribute(name="Brand")),
)
LABELS: dict[str, Any] = {"Roast": ["dark"], "Weight": ["12 oz"], "Flavour": ["Mocha/Vanilla"], "Brand": None}
VALUES = {
    "Roast": Counter({"dark": 9, "light": 5, "medium": 4}),
    "Weight": Counter({"12 oz": 5, "2.5 oz": 3, "1 kg": 1}),
    "Flavour": Counter({"Mocha/Vanilla": 3}),
}


@given(st.integers(0, 2000))
def test_variants_ask_what_the_labels_answer(seed: int) -> None:
    variant = draw_variant(SCHEMA, VALUES, random.Random(seed))
    answers = variant.answers(LABELS)
    attributes = {attribute.name: attribute for attribute in variant.schema.attributes}
    asked = [item.attribute for item in (*variant.questions, *variant.specifications)]
    assert attributes.keys() == {attribute.name for attribute in asked}
    for attribute in asked:
        undescribed = attribute.model_copy(update={"description": None})
        assert attributes[attribute.name] in (attribute, undescribed)
    assert len(attributes) == len(asked)
    assert not attributes.keys() & {item.attribute.name for item in variant.unasked}
    for question in variant.questions:
        attribute, source = question.attribute, LABELS[question.source]
        answer = answers.get(attribute.name, "missing")
        if source is None:
            assert answer is None, "absent stays absent, however it is asked"
        elif attribute.type == "number":
            assert (attribute.unit, answer) == (Unit(want="oz"), ["12"])
        elif attribute.type == "boolean":
            assert answer == ["true"] if attribute.name == source[0] else answer in (["false"], "missing")
        elif attribute.type == "enum":
            assert answer == (source if source[0] in attribute.labels else "missing")
        elif attribute.multiple and question.source == "Flavour":
            assert answer == ["Mocha", "Vanilla"]
        else:
            assert answer == source


def test_a_variant_may_ask_for_what_an_object_is_called() -> None:
    inside = Attribute(name="lid.kind", path=("lid", "kind"))
    schema = CategorySchema(category="Cups", attributes=(Attribute(name="Extra"), inside))
    values = {"Extra": Counter({"lid": 9}), "lid.kind": Counter({"screwed": 9})}
    asked = [
        each for seed in range(200) for each in draw_variant(schema, values, random.Random(seed)).schema.attributes
    ]
    assert {"lid", "lid.kind"} <= {each.name for each in asked}
    assert not any(each.path for each in asked)


def test_what_is_copied_from_the_text_is_asked_as_a_list_in_words() -> None:
    copied = (
        Attribute(name="Flavour", verbatim=True),
        Attribute(name="Line", verbatim="exclusive"),
        Attribute(name="Brand", verbatim="exclusive", shares_text_with=("Line",)),
    )
    schema = CategorySchema(category="Coffee", attributes=copied)
    values = {each.name: Counter({"Mocha/Vanilla": 3}) for each in copied}
    asked = [
        each for seed in range(200) for each in draw_variant(schema, values, random.Random(seed)).schema.attributes
    ]
    lists = {each.name: each for each in asked if each.multiple}
    assert lists.keys() >= {"Flavour", "Line", "Brand"}
    assert not any(each.verbatim or each.shares_text_with for each in lists.values())


def test_every_kind_of_variant_occurs() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(200):
        for attribute in draw_variant(SCHEMA, VALUES, random.Random(seed)).schema.attributes:
            kind = "list" if attribute.multiple else attribute.type
            text = attribute.description
            kinds[f"{kind}, {'examples' if text.startswith('for example') else 'in words'}" if text else kind] += 1
    plain = {"string", "number", "enum", "boolean", "list"}
    assert set(kinds) == {*plain, *(f"{kind}, in words" for kind in plain), "string, examples", "list, examples"}
