"""The text of a stream: in order, as soon as it is known, and in the end the whole answer."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpd_core import FieldAnswer, JsonResult, SchemaLimits
from hpd_core.json_schema.questions import Assembly, Questions, found_by
from hpd_core.json_schema.schema_reader import read_schema
from hpd_core.requests.calls import Completion
from pipelines.serving.ordered_json import OrderedJson
from tests.core.json.schemas import SCHEMAS, Schema
from tests.core.json.test_questions import value_of
from tests.examples import examples

LIMITS = SchemaLimits()


def ordered(schema: Schema) -> OrderedJson:
    return OrderedJson(schema, LIMITS)


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
