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
