"""Answers are read leniently and judged strictly, and every problem is counted."""

from __future__ import annotations

import json
from typing import Any

from hpd_core import Attribute, CategorySchema
from pipelines.labelling.final_answer import FinalAnswer, read_answer
from pipelines.labelling.teacher_answers import Labels, judge
from tests.tables import table

SCHEMA = CategorySchema(
    category="Coffee",
    attributes=(
        Attribute(name="Brand"),
        Attribute(name="Roast level", type="enum", values=("light", "dark")),
        Attribute(name="Weight", type="number", unit="g"),
        Attribute(name="Organic", type="boolean"),
        Attribute(name="Notes", multiple=True),
    ),
)
FIELDS = {"title": "Acme  Kaffee, 1.500 g", "text": "Notes of Plum and COCOA; 12,5 bar"}
ANSWER = {"Brand": "Acme", "Roast level": "dark", "Weight": 1500, "Organic": True, "Notes": ["plum", "Cocoa"]}
LABELS = {
    "Brand": ["Acme"],
    "Roast level": ["dark"],
    "Weight": ["1500"],
    "Organic": ["true"],
    "Notes": [["plum"], ["Cocoa"]],
}


def read(schema: CategorySchema, answer: Any, fields: dict[str, str]) -> FinalAnswer:
    found = read_answer(schema, answer if isinstance(answer, str) else json.dumps(answer), fields)
    assert not isinstance(found, str), found
    return found


def labels(answer: Any, *, require_evidence: bool = False) -> Labels:
    values, problems = read(SCHEMA, answer, FIELDS)
    judged = judge(SCHEMA, values, FIELDS, require_evidence=require_evidence)
    return Labels(judged.values, problems + judged.problems, judged.not_in_text)


@table(
    ("change", "problem"),
    [
        ({"Roast level": "medium"}, "not_in_enum"),
        ({"Roast level": 3}, "not_in_enum"),
        ({"Roast level": {"is": "dark"}}, "wrong_type"),
        ({"Weight": "heavy"}, "wrong_type"),
        ({"Weight": [1500, 2]}, "wrong_type"),
        ({"Organic": "perhaps"}, "wrong_type"),
        ({"Brand": ["Acme", "Kaffee"]}, "wrong_type"),
        ({"Brand": ""}, "wrong_type"),
        ({"Brand": "\ud83d"}, "wrong_type"),
        ({"Notes": [["plum"]]}, "wrong_type"),
    ],
)
def test_what_cannot_be_a_label_is_left_out_and_counted(change: dict[str, Any], problem: str) -> None:
    (name,) = change
    judged = labels(ANSWER | change)
    assert judged.values == {key: value for key, value in LABELS.items() if key != name}
    assert judged.problems == {problem: 1}


def test_absent_is_a_label_and_missing_is_none() -> None:
    judged = labels({"Brand": None, "Notes": [], "Weight": "n/a"})
    assert judged.values == {"Brand": None, "Weight": None, "Notes": None}
    assert judged.problems == {"missing_key": 2, "placeholder": 1}


@table(
    ("change", "in_text"),
    [
        ({"Brand": "acme kaffee"}, True),
        ({"Brand": "Acne"}, False),
        ({"Weight": 1500}, True),
        ({"Weight": 1.5}, False),
        ({"Weight": -1500}, False),
        ({"Weight": 12.5}, True),
        ({"Weight": 15}, False),
        ({"Notes": ["plum", "fig"]}, False),
        ({"Roast level": "light"}, True),
        ({"Organic": False}, True),
        ({"Brand": None}, True),
    ],
)
def test_evidence(change: dict[str, Any], in_text: bool) -> None:
    (name,) = change
    kept = labels(ANSWER | change)
    assert name in kept.values
    assert kept.not_in_text == (() if in_text else (name,))
    assert kept.problems == ({} if in_text else {"not_in_text": 1})
    assert (name in labels(ANSWER | change, require_evidence=True).values) is in_text


PART = CategorySchema(
    category="Parts",
    attributes=tuple(Attribute(name=name, type="number") for name in ("Weight", "Width", "Rate", "Length", "Size")),
)
PART_FIELDS = {"title": "Bolt, 1,500 g, 1/2 inch, 2.5e6 Hz", "text": "the pin is 3.125 inch, sizes 10-12"}


@table(
    ("name", "written", "label", "problem"),
    [
        ("Weight", 1500, "1500", None),
        ("Weight", "1,500", "1500", None),
        ("Weight", 1.5, "1.5", "not_in_text"),
        ("Width", 0.5, "0.5", None),
        ("Width", "1/2", "0.5", None),
        ("Width", 1, "1", "not_in_text"),
        ("Width", 2, "2", "not_in_text"),
        ("Rate", 2500000, "2500000", None),
        ("Rate", "2.5e6", "2500000", None),
        ("Rate", 2.5, "2.5", "not_in_text"),
        ("Size", 10, "10", "not_in_text"),
        ("Length", 3125, "3125", "ambiguous_number"),
        ("Length", "3.125", "3.125", "ambiguous_number"),
    ],
)
def test_a_number_is_in_the_text_by_its_worth(name: str, written: Any, label: str, problem: str | None) -> None:
    values, _ = read(PART, {name: written}, PART_FIELDS)
    kept = judge(PART, values, PART_FIELDS, require_evidence=False)
    assert kept.values == {name: [label]}
    assert kept.problems == ({problem: 1} if problem else {})
    assert kept.not_in_text == ((name,) if problem == "not_in_text" else ())
    strict = judge(PART, values, PART_FIELDS, require_evidence=True)
    assert (strict.values, strict.problems) == ({} if problem else kept.values, kept.problems)


def test_a_number_that_nobody_can_tell_is_no_label() -> None:
    values, _ = read(PART, {"Length": "3,125"}, PART_FIELDS)
    judged = judge(PART, values, PART_FIELDS, require_evidence=False)
    assert (judged.values, judged.problems) == ({}, {"ambiguous_number": 1})
