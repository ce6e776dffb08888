"""A teacher that answers with objects means the attributes in them; where it contradicts itself it says nothing."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core.plain_data import nested
from pipelines.config.schema_file import parse_schemas
from pipelines.labelling.final_answer import read_answer
from tests.examples import examples
from tests.tables import table

SIZE = {
    "name": "size",
    "type": "object",
    "attributes": [{"name": "width", "type": "number"}, {"name": "lid", "type": "object", "attributes": ["closure"]}],
}
SCHEMA = parse_schemas({"categories": {"Bags": ["Brand", SIZE]}}, "made")["Bags"]
PLACES = {attribute.name: attribute.place for attribute in SCHEMA.attributes}
FIELDS = {"title": "Acme bag with a zip, 12 wide"}
RIGHT = {"Brand": "Acme", "size.width": "12", "size.lid.closure": "zip"}
ANSWER = {**RIGHT, "size.width": 12}
OBJECTS = '{"Brand": "Acme", "size": {"width": 12, "lid": {"closure": "zip"}}}'
ABSENT = dict.fromkeys(("size.width", "size.lid.closure"))


@table(
    ("text", "expected", "problems"),
    [
        (OBJECTS, RIGHT, {}),
        (f"Here it is:\n```json\n{OBJECTS}\n```", RIGHT, {}),
        ('{"answer": {"size": {"width": 12}}}', {"size.width": "12"}, {"missing_key": 2}),
        ('{"Size": {"Width": 12}}', {"size.width": "12"}, {"misspelled_key": 1, "missing_key": 2}),
        ('{"Brand": "Acme", "size": null}', {"Brand": "Acme", **ABSENT}, {}),
        (
            '{"size": {"width": 12}, "size.lid.closure": "zip"}',
            {"size.width": "12", "size.lid.closure": "zip"},
            {"missing_key": 1},
        ),
        ('{"Brand": "Acme", "size": {"depth": 3}}', {"Brand": "Acme"}, {"unknown_key": 1, "missing_key": 2}),
        (
            '{"Brand": "Acme", "size": {"width": 12}, "size.width": 13}',
            {"Brand": "Acme"},
            {"doubled_key": 1, "missing_key": 1},
        ),
        (
            '{"Brand": "Acme", "size": {"width": 12, "width": 13}}',
            {"Brand": "Acme"},
            {"doubled_key": 1, "missing_key": 1},
        ),
        (
            '{"Brand": "Acme", "size": {"width": 12}, "size": {"width": 13}}',
            {"Brand": "Acme"},
            {"doubled_key": 2},
        ),
    ],
)
def test_answers_in_objects(text: str, expected: dict[str, Any], problems: dict[str, int]) -> None:
    found = read_answer(SCHEMA, text, FIELDS)
    assert not isinstance(found, str)
    assert {name: value.text for name, value in found.values.items()} == expected
    assert dict(found.problems) == problems


@settings(max_examples=examples(60))
@given(st.sets(st.sampled_from(sorted(PLACES)), min_size=1), st.sets(st.sampled_from(sorted(PLACES))))
def test_it_does_not_matter_which_are_in_objects(named: set[str], inside: set[str]) -> None:
    places = {name: PLACES[name] if name in inside else (name,) for name in named}
    answer = nested((place, ANSWER[name]) for name, place in places.items())
    found = read_answer(SCHEMA, json.dumps(answer), FIELDS)
    assert not isinstance(found, str)
    assert {name: value.text for name, value in found.values.items()} == {name: RIGHT[name] for name in named}
