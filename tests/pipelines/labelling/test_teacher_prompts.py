"""What a teacher is asked."""

from __future__ import annotations

from typing import Any

from hpd_core import CategorySchema
from hpd_core.text.template import render_attribute, render_document
from pipelines.schemas.schema_file import parse_schemas
from tests.pipelines.conftest import SCHEMAS
from tests.pipelines.labelling.labellings import Labelling
from tests.pipelines.labelling.served_teacher import Reply, TroubleMaker, right_answer


def test_the_teacher_reads_what_the_student_will_read(labelling: Labelling) -> None:
    with TroubleMaker(right_answer) as server:
        result = labelling.ask(server.url, teacher={"max_concurrency": 1, "request": {"seed": 7}})
    assert result.exit_code == 0, result.output
    request = server.requests[0]
    shoes: CategorySchema = parse_schemas(SCHEMAS, "")["Shoes"]
    text = request["messages"][0]["content"]
    assert "\n".join(render_attribute(attribute) for attribute in shoes.attributes) in text
    assert render_document({"title": "Velor item 0 red 0", "bullets": "size 0\nlight"}) in text
    assert (request["model"], request["temperature"], request["max_tokens"], request["seed"]) == ("m", 0, 1024, 7)
    assert request["response_format"] == {"type": "json_object"}
    assert server.authorizations == ["Bearer no-key"] * 6


def test_json_schema_mode(labelling: Labelling) -> None:
    settings = {"json_mode": "json_schema", "token_limit_key": "max_completion_tokens", "temperature": None}
    with TroubleMaker(right_answer) as server:
        assert labelling.ask(server.url, "--limit", "1", teacher=settings).exit_code == 0
    (request,) = server.requests
    assert request["max_completion_tokens"] == 1024
    assert not {"max_tokens", "temperature"} & request.keys()
    shape = request["response_format"]["json_schema"]["schema"]
    assert shape["required"] == ["Brand", "Colour", "Sizes"]
    enum = {"type": "string", "enum": ["red", "blue"]}
    assert shape["properties"]["Colour"] == {"anyOf": [enum, {"type": "null"}]}
    several = {"type": "array", "items": {"type": "string"}}
    assert shape["properties"]["Sizes"] == {"anyOf": [several, {"type": "null"}]}


def test_json_mode_is_given_up_where_the_endpoint_refuses_it(labelling: Labelling) -> None:
    def behave(request: dict[str, Any], _: int) -> Reply:
        if "response_format" in request:
            return Reply({"error": {"message": "response_format is not supported"}}, 400)
        return right_answer(request)

    with TroubleMaker(behave) as server:
        result = labelling.ask(server.url, teacher={"max_concurrency": 1})
        assert (result.exit_code, len(server.requests)) == (0, 7), result.output
        settings = {"max_concurrency": 1, "json_mode": "json_object"}
        insisting = labelling.ask(server.url, teacher=settings, output=str(labelling.output.with_name("b.jsonl")))
    assert insisting.exit_code == 2
    assert "the teacher refuses every question: HTTP 400: response_format is not supported" in insisting.stderr
