"""What a teacher is asked."""

from __future__ import annotations

from typing import Any

import pytest

from hpd_core import CategorySchema
from hpd_core.text.template import render_attribute, render_document
from pipelines.config.schema_file import parse_schemas
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
    assert request["response_format"]["type"] == "json_schema"
    assert server.authorizations == ["Bearer no-key"] * 6


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
