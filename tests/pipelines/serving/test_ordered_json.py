"""The text of a stream: in order, as soon as it is known, and in the end the whole answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpd_core import FieldAnswer, JsonResult, SchemaLimits
from hpd_core.completion import Completion
from hpd_core.json_schema.assembly import Assembly
from hpd_core.json_schema.questions import Questions, found_by
from hpd_core.json_schema.schema_reader import read_schema
from pipelines.serving.ordered_json import OrderedJson
from tests.core.json.schemas import SCHEMAS, Schema
from tests.core.json.test_questions import value_of
from tests.examples import examples

LIMITS = SchemaLimits()


def ordered(schema: Schema) -> OrderedJson:
    return OrderedJson(schema, LIMITS)


def answer(path: str, value: Any, status: Any = None) -> FieldAnswer:
    return FieldAnswer(path, value, status=status or ("absent" if value is None else "value"))


def an_object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


TEXT: Schema = {"type": "string"}


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=SCHEMAS, data=st.data())
def test_fields_in_any_order_make_the_answer(schema: Schema, data: st.DataObject) -> None:
    """Whatever the values are, and whichever are cut or no values of their kind."""
    form = read_schema(schema)
    questions, text = Questions(form), ordered(schema)
    written = text.add([])
    while asked := questions.next_wave():
        ended: list[FieldAnswer] = []
        for question in asked:
            kind = question.leaf.kind
            status = data.draw(st.sampled_from(["value"] * 4 + ["absent"] * kind.nullable + ["invalid", "truncated"]))
            value = data.draw(value_of(kind)) if status == "value" else None
            completion = Completion(value, "absent" if status == "value" and value is None else status)
            questions.take(question, completion)
            ended += [field for _, field in found_by(question, completion)]
        for field in data.draw(st.permutations(ended)):
            written += text.add([field])
    result = JsonResult(Assembly(questions.answers, questions.lengths).of(form))
    assert written + text.rest(result) == json.dumps(result.data, ensure_ascii=False)


def test_text_comes_when_its_turn_has_come() -> None:
    text = ordered(an_object(a=TEXT, b=an_object(c=TEXT, d=TEXT), e=TEXT))
    assert text.add([answer("/b/d", "4")]) == "{"
    assert text.add([answer("/a", "1"), answer("/b/c", "é\n")]) == '"a": "1", "b": {"c": "é\\n", "d": "4"}'
    assert text.add([answer("/e", "5")]) == ', "e": "5"}'
    assert text.rest(JsonResult({"a": "1", "b": {"c": "é\n", "d": "4"}, "e": "5"})) == ""


def test_objects_of_a_list_come_one_by_one() -> None:
    text = ordered(an_object(lines={"type": "array", "items": an_object(sku=TEXT, pieces={"type": "integer"})}, z=TEXT))
    assert text.add([answer("/lines/0/sku", "A"), answer("/lines/1/sku", "B"), answer("/z", "z")]) == (
        '{"lines": [{"sku": "A"'
    )
    assert text.add([answer("/lines/1/pieces", 2)]) == ""
    assert text.add([answer("/lines/0/pieces", 1)]) == ', "pieces": 1}, {"sku": "B", "pieces": 2}'
    lines = [{"sku": "A", "pieces": 1}, {"sku": "B", "pieces": 2}]
    assert text.rest(JsonResult({"lines": lines, "z": "z"})) == '], "z": "z"}'


def test_an_empty_list_is_known_at_once() -> None:
    text = ordered(an_object(lines={"type": "array", "items": an_object(sku=TEXT)}, z=TEXT))
    assert text.add([answer("/lines", []), answer("/z", "z")]) == '{"lines": [], "z": "z"}'


def test_an_object_that_may_miss_is_opened_when_it_has_a_value() -> None:
    schema = {
        "type": "object",
        "properties": {"buyer": {**an_object(name=TEXT, town=TEXT), "type": ["object", "null"]}},
    }
    text = ordered(schema)
    assert text.add([answer("/buyer/name", None)]) == "{"
    assert text.add([answer("/buyer/town", None)]) == '"buyer": null}'
    text = ordered(schema)
    assert text.add([answer("/buyer/town", "Bath")]) == '{"buyer": {'


def test_a_field_that_is_told_is_not_paid_for_by_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is told by itself: the loop that serves all clients must not be held up."""
    looked_up: list[Any] = []
    look_up = OrderedJson._answer

    def counting(text: OrderedJson, path: Any) -> FieldAnswer:
        looked_up.append(path)
        return look_up(text, path)

    monkeypatch.setattr(OrderedJson, "_answer", counting)
    names = [f"f{number}" for number in range(500)]
    text = ordered(an_object(**dict.fromkeys(names, TEXT)))
    pieces = [text.add([answer(f"/{name}", "x")]) for name in names]
    assert "".join(pieces) == json.dumps(dict.fromkeys(names, "x"))
    assert len(looked_up) <= 3 * len(names)
