"""What is asked in which wave, and what each question sees of other answers: no model is needed."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpd_core import Completion
from hpd_core.errors import PromptError
from hpd_core.json_schema.answers import checker
from hpd_core.json_schema.form import FormGroup, _lines
from hpd_core.json_schema.questions import Assembly, FormQuestion, Questions
from hpd_core.json_schema.schema_reader import read_schema
from hpd_core.text.value_kinds import Boolean, Integer, JsonString, ListOf, Number, OneOf, Pattern, ValueKind
from tests.examples import examples
from tests.tables import table

from .schemas import SCHEMAS, Schema

TEXT: Schema = {"type": "string"}


def an_object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


ORDER = an_object(
    buyer=an_object(name=TEXT, city=TEXT),
    total={"type": "number"},
    lines={
        "type": "array",
        "items": an_object(
            name=TEXT,
            size=TEXT,
            price={"type": "number"},
            parts={"type": "array", "items": an_object(weight={"type": "number"})},
        ),
    },
)


def wave(questions: Questions) -> dict[str, FormQuestion]:
    """What is asked now, by the text of its branch."""
    return {question.branch.text: question for question in questions.next_wave()}


def say(questions: Questions, asked: dict[str, FormQuestion], **values: Any) -> None:
    """Answers all of a wave: by the path's last part, or null."""
    for question in asked.values():
        value = values.get("_".join(map(str, question.path)))
        questions.take(question, Completion(value, "absent" if value is None else "value", "written", 3))


def test_each_wave_sees_what_it_waited_for_and_nothing_else() -> None:
    questions = Questions(read_schema(ORDER))
    first = wave(questions)
    assert list(first) == ['"buyer.name":', '"buyer.city":', '"total":', '"lines":'], "of equals none sees another"
    say(questions, first, buyer_name="Ann", total=5, lines=["Shoe", "Hat"])
    second = wave(questions)
    assert list(second) == [
        '"lines[1].name": "Shoe",\n"lines[1].size":',
        '"lines[1].name": "Shoe",\n"lines[1].price":',
        '"lines[1].name": "Shoe",\n"lines[1].parts.length":',
        '"lines[2].name": "Hat",\n"lines[2].size":',
        '"lines[2].name": "Hat",\n"lines[2].price":',
        '"lines[2].name": "Hat",\n"lines[2].parts.length":',
    ], "an item's fields see its own key"
    say(questions, second, lines_0_parts=2, lines_1_parts=0)
    third = wave(questions)
    assert list(third) == [
        '"lines[1].name": "Shoe",\n"lines[1].parts.length": 2,\n"lines[1].parts[1].weight":',
        '"lines[1].name": "Shoe",\n"lines[1].parts.length": 2,\n"lines[1].parts[2].weight":',
    ]
    say(questions, third, lines_0_parts_1_weight=7)
    assert not questions.next_wave()
    data = Assembly(questions.answers, questions.lengths).of(read_schema(ORDER))
    assert data["lines"][0]["parts"] == [{}, {"weight": 7}]
    assert data["lines"][1] == {"name": "Hat", "parts": []}
    assert questions.answers[("lines", 1, "name")].value == "Hat"


def test_a_shape_of_many_values_is_read_once_however_deep_it_stands() -> None:
    """Not once for each of its values, and of those of the shapes around it."""

    def variants(depth: int) -> dict[str, Any]:
        inside = variants(depth - 1) if depth else TEXT
        one = an_object(kind={"enum": list(range(1000))}, inside=inside)
        return {"anyOf": [one, an_object(kind={"const": "none"})]}

    lines = list(_lines(read_schema(an_object(a=variants(5))), ""))
    assert len(lines) == 7
    some = " or ".join(map(str, range(50)))
    assert lines[1].endswith(f"and 951 more; only if a.kind is {some} and 950 more")


@table("most", [2, None])
def test_objects_beyond_maxitems_are_left_out_and_those_beyond_ours_named(most: int | None) -> None:
    lines = {"type": "array", "items": an_object(pages={"type": "integer"})}
    schema = an_object(lines=lines if most is None else {**lines, "maxItems": most})
    questions = Questions(read_schema(schema))
    say(questions, wave(questions), lines=100)
    count = most or 64
    assert [question.path for question in wave(questions).values()] == [("lines", n, "pages") for n in range(count)]
    assert [problem.path for problem in questions.problems] == ["/lines"] * (most is None)
    assert all("maxItems" in problem.message for problem in questions.problems)


def test_a_check_fetches_nothing_and_fails_on_no_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("fetched"))
    far = an_object(a={"const": {"b": 1}, "properties": {"b": {"$ref": "http://127.0.0.1:9/x"}}})
    (problem,) = checker(far)({"a": {"b": 1}})
    assert "refers to what is not in it: http://127.0.0.1:9/x" in problem.message
    (problem,) = checker(an_object(a={"enum": ["x"], "pattern": "("}))({"a": "x"})
    assert (problem.path, "missing )" in problem.message) == ("/a", True)


def value_of(kind: ValueKind) -> st.SearchStrategy[Any]:
    """Values that a kind allows; of patterns those of the schemas here."""
    match kind:
        case ListOf():
            return st.lists(value_of(kind.item), max_size=4 if kind.most is None else kind.most)
        case OneOf():
            return st.sampled_from(kind.values)
        case Boolean():
            return st.booleans()
        case Integer():
            return st.integers(-3, 7)
        case Number():
            return st.floats(-10, 200, allow_nan=False).map(lambda number: round(number, 2))
        case JsonString():
            return st.text(st.characters(categories=["L", "N", "P"]), max_size=30)
        case Pattern():
            return st.from_regex(kind.regex, fullmatch=True).filter(lambda text: "\n" not in text)
    raise AssertionError(kind)


CHECKED = ("less than", "greater than", "too long", "required property", "is not a '", "does not match", "expected")
"""In the messages of what is not constrained but checked: ranges, lengths, days that no month has."""


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=SCHEMAS, data=st.data())
def test_whatever_the_model_says_the_answer_fits_or_is_named(schema: Schema, data: st.DataObject) -> None:
    """Only limits that are checked afterwards, and what is missing in an object that may be, can fail."""
    form: FormGroup = read_schema(schema)
    questions = Questions(form)
    asked_paths = set()
    while asked := questions.next_wave():
        for question in asked:
            assert question.path not in asked_paths, "nothing is asked twice"
            asked_paths.add(question.path)
            kind = question.leaf.kind
            value = data.draw(st.none() if kind.nullable and data.draw(st.booleans()) else value_of(kind))
            questions.take(question, Completion(value, "absent" if value is None else "value"))
    found = Assembly(questions.answers, questions.lengths).of(form)
    problems = checker(schema)(found)
    assert all(any(text in problem.message for text in CHECKED) for problem in problems), problems


def test_lists_in_lists_end_before_they_fill_the_memory() -> None:
    """Whatever a model says that there are."""
    inner = {"type": "array", "maxItems": 1000, "items": an_object(x={"type": "number"})}
    questions = Questions(read_schema(an_object(rows={"type": "array", "maxItems": 1000, "items": an_object(a=inner)})))
    for _ in range(2):
        asked = questions.next_wave()
        assert len(asked) in (1, 1000)
        with pytest.raises(PromptError, match="more than 10,000 fields") if len(asked) > 1 else nullcontext():
            for question in asked:
                questions.take(question, Completion(10**9, "value"))
    assert len(questions._waiting) == 10_001
