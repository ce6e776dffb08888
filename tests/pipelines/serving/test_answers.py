"""Answers, as OpenAI's own client reads them: whole and streamed, as JSON and as calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

from hpd_core import Engine, JsonResult
from tests.pipelines.serving.served import MODEL, SHOE, Served
from tests.tables import table

TEXTS = ["Velor running shoe, red, size 42", "Größe 42 😀\u2028 “rouge” \t\x00", "x" * 500]
TOOL = {"name": "shoe", "description": "A shoe.", "parameters": SHOE}
INSTRUCTION = "Be exact."


class Shoe(BaseModel):
    brand: str | None
    colour: Literal["red", "blue"] | None
    size: int | None
    light: bool | None


NULLABLE = Shoe.model_json_schema()


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.address, api_key="any", max_retries=0) as made:
        yield made


def expected(engine: Engine, text: str, schema: Any = NULLABLE, instruction: str | None = None) -> JsonResult:
    (result,) = engine.extract_json([text], schema, instruction=instruction)
    return result


def messages(text: str, instruction: str | None = None) -> list[Any]:
    system = [{"role": "system", "content": instruction}] if instruction else []
    return [*system, {"role": "user", "content": text}]


def shape() -> Any:
    return {"type": "json_schema", "json_schema": {"name": "shoe", "schema": NULLABLE, "strict": True}}


def test_facts_of_every_field_come_with_the_answer(client: openai.OpenAI, engine: Engine) -> None:
    completion = client.chat.completions.create(
        model=MODEL, messages=messages(TEXTS[0], INSTRUCTION), response_format=shape()
    )
    result = expected(engine, TEXTS[0], instruction=INSTRUCTION)
    assert json.loads(completion.choices[0].message.content or "") == result.data
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == result.num_prompt_tokens > 0
    assert completion.usage.completion_tokens == result.num_output_tokens > 0
    assert completion.usage.total_tokens == result.num_prompt_tokens + result.num_output_tokens
    facts = {each["path"]: each for each in (completion.model_extra or {})["hpd"]["fields"]}
    assert list(facts) == list(result.fields)
    for path, field in result.fields.items():
        assert facts[path]["value"] == field.value
        assert (facts[path]["status"], facts[path]["text"]) == (field.status, field.text)
        assert facts[path]["logprob_mean"] == pytest.approx(field.logprob_mean, abs=1e-3)
        assert facts[path]["probability"] == pytest.approx(field.probability, abs=1e-3)


@table("as_call", [False, True])
def test_a_stream_is_the_answer(client: openai.OpenAI, engine: Engine, as_call: bool) -> None:
    asked: dict[str, Any] = {"response_format": shape()}
    if as_call:
        tool = {"type": "function", "function": {**TOOL, "parameters": NULLABLE}}
        asked = {"tools": [tool], "tool_choice": "required"}
    result = expected(engine, TEXTS[0], {"description": "A shoe.", **NULLABLE} if as_call else NULLABLE)
    text, paths, reasons, usage = "", [], [], None
    for chunk in client.chat.completions.create(
        model=MODEL, messages=messages(TEXTS[0]), stream=True, stream_options={"include_usage": True}, **asked
    ):
        usage = chunk.usage or usage
        paths += [each["path"] for each in (chunk.model_extra or {}).get("hpd", {}).get("fields", [])]
        for choice in chunk.choices:
            reasons += [choice.finish_reason] if choice.finish_reason else []
            calls = choice.delta.tool_calls or []
            text += "".join(call.function.arguments or "" for call in calls if call.function)
            text += choice.delta.content or ""
    assert text == json.dumps(result.data, ensure_ascii=False)
    assert sorted(paths) == sorted(result.fields)
    cut = any(field.status == "truncated" for field in result.fields.values())
    assert reasons == ["length" if cut else "tool_calls" if as_call else "stop"]
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (result.num_prompt_tokens, result.num_output_tokens)


def test_a_tool_that_must_be_called_is_called(client: openai.OpenAI, engine: Engine) -> None:
    data = expected(engine, TEXTS[0], {"description": "A shoe.", **SHOE}).data
    completion = client.chat.completions.create(
        model=MODEL,
        messages=messages(TEXTS[0]),
        tools=[{"type": "function", "function": TOOL}],
        tool_choice={"type": "function", "function": {"name": "shoe"}},
    )
    (call,) = completion.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("shoe", data)
