"""What a teacher is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hpd_core import Attribute, CategorySchema, Member, Record
from hpd_core.text.template import render_attribute, render_document
from pipelines.config.labelling import OpenAITeacherConfig
from pipelines.labelling.final_answer import FinalAnswer, read_answer
from pipelines.labelling.teacher_prompts import json_schema, product_messages
from pipelines.schemas.schema_file import parse_schemas
from tests.pipelines.conftest import SCHEMAS
from tests.pipelines.labelling.labellings import Labelling
from tests.pipelines.labelling.served_teacher import Reply, TroubleMaker, right_answer
from tests.tables import table


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
    assert request["response_format"]["type"] == "json_schema"
    assert server.authorizations == ["Bearer no-key"] * 6


def test_an_answer_is_asked_for_by_a_json_schema(labelling: Labelling) -> None:
    settings = {"token_limit_key": "max_completion_tokens", "temperature": None}
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


@pytest.mark.parametrize(("refused", "taken"), [(1, "tools"), (2, "json_object"), (3, None)])
def test_a_form_that_the_endpoint_refuses_is_asked_for_in_another_way(
    labelling: Labelling, refused: int, taken: str | None
) -> None:
    def form(request: dict[str, Any]) -> str | None:
        return "tools" if "tools" in request else request.get("response_format", {}).get("type")

    def behave(request: dict[str, Any], _: int) -> Reply:
        if form(request) in ("json_schema", "tools", "json_object")[:refused]:
            key = "tool_choice" if "tools" in request else "response_format"
            return Reply({"error": {"message": f"{key} is not supported"}}, 400)
        return right_answer(request)

    with TroubleMaker(behave) as server:
        result = labelling.ask(server.url, teacher={"max_concurrency": 1})
        assert (result.exit_code, len(server.requests)) == (0, 6 + refused), result.output
        assert form(server.requests[-1]) == taken
        settings = {"max_concurrency": 1, "json_mode": "json_schema"}
        insisting = labelling.ask(server.url, teacher=settings, output=str(labelling.output.with_name("b.jsonl")))
    assert insisting.exit_code == 2
    assert "the teacher refuses every question: HTTP 400: response_format is not supported" in insisting.stderr


def vocabulary(name: str, count: int, letters: int = 9) -> Attribute:
    members = (Member(label=f"{name}{n:0{letters - 1}}", synonyms=(f"synonym {n}",)) for n in range(count))
    return Attribute(name=name, type="enum", values=tuple(members))


def test_a_vocabulary_of_thousands_is_not_sent() -> None:
    schema = CategorySchema(category="Bags", attributes=(vocabulary("c", 3000), vocabulary("d", 200)))
    config = OpenAITeacherConfig(kind="openai", base_url="http://x/v1", model="m")
    text = product_messages(config, schema, Record("1", "Bags", {"title": "a bag"}))[-1]["content"]
    shown = '"c00000000", "c00000600", "c00001200", "c00001800", "c00002400"'
    assert f"- c: one of 3000 values such as {shown}\n- d: one of " in text
    assert (text.count('"c0'), text.count('"d0')) == (5, 200)
    assert len(text) < 4_000
    answer = read_answer(schema, '{"c": "Synonym 7", "d": "synonym 300"}', {"title": "a bag"})
    assert isinstance(answer, FinalAnswer)
    assert (answer.values["c"].items, answer.values["d"].status) == (("c00000007",), "invalid")


@table(
    ("attributes", "enums"),
    [
        ([vocabulary("a", 1000)], "a"),
        ([vocabulary("a", 1001)], ""),
        ([vocabulary("a", 990), vocabulary("b", 11), Attribute(name="t")], "b"),
        ([vocabulary("a", 500), vocabulary("b", 500), vocabulary("c", 1)], "ac"),
        ([vocabulary("a", 250, 100)], "a"),
        ([vocabulary("a", 251, 59)], "a"),
        ([vocabulary("a", 251, 60)], ""),
        ([vocabulary("a", 240, 490), vocabulary("b", 20, 490)], "b"),
    ],
)
def test_a_json_schema_is_one_that_openai_takes(attributes: list[Attribute], enums: str) -> None:
    schema = CategorySchema(category="Bags", attributes=tuple(attributes))
    properties = json_schema(schema)["properties"]
    assert list(properties) == [each.name for each in attributes]
    assert all(each["anyOf"][0]["type"] == "string" for each in properties.values())
    assert "".join(name for name, each in properties.items() if "enum" in json.dumps(each)) == enums
