"""What is read of a request, and what is refused: always by name, whatever was sent."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.serving.question import read_chat
from pipelines.serving.reply import ApiError
from tests.examples import examples
from tests.tables import table

SCHEMA = {"type": "object", "properties": {"brand": {"type": "string"}}, "required": ["brand"]}
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be exact."},
        {"role": "user", "content": [{"type": "text", "text": "Velor "}, {"type": "text", "text": "shoe"}]},
        {"role": "developer", "content": "In English."},
        {"role": "user", "content": "red"},
    ],
    "response_format": {"type": "json_schema", "json_schema": {"name": "product", "schema": SCHEMA, "strict": True}},
}
TOOL = {"name": "product", "description": "A product.", "parameters": SCHEMA}
CALL = {
    "messages": CHAT["messages"],
    "tools": [{"type": "function", "function": TOOL}],
    "tool_choice": {"type": "function", "function": {"name": "product"}},
}


def test_texts_of_the_user_are_the_document_and_those_of_the_system_the_instruction() -> None:
    question = read_chat({**CHAT, "stream": True, "stream_options": {"include_usage": True}})
    assert (question.document, question.instruction) == ("Velor shoe\n\nred", "Be exact.\n\nIn English.")
    assert (question.schema, question.name, question.as_call) == (SCHEMA, "product", False)
    assert question.stream
    assert question.with_usage


PROMPTED = f"Answer with JSON by this schema:\n```json\n{json.dumps(SCHEMA, indent=2)}\n```\nNot {{braces}}."


@table(
    ("change", "schema"),
    [
        ({"response_format": {"type": "json_object"}}, {"type": "object"}),
        ({"response_format": {"type": "json_object"}, "messages": [PROMPTED]}, SCHEMA),
        ({"response_format": {"type": "text"}, "messages": [PROMPTED]}, SCHEMA),
        ({"response_format": None, "messages": [PROMPTED]}, SCHEMA),
    ],
)
def test_a_schema_is_taken_from_the_texts(change: dict[str, Any], schema: Any) -> None:
    """As clients send it that do not trust an endpoint to hold answers to a schema."""
    told = [{"role": "system", "content": text} for text in change.get("messages", ())]
    body = {**CHAT, **change, "messages": [*told, *CHAT["messages"]]}
    question = read_chat(body)
    assert (question.schema, question.name, question.schema_at) == (schema, "answer", "messages")


def test_later_turns_are_read_as_context() -> None:
    call = {"type": "function", "function": {"name": "product", "arguments": '{"brand": 5}'}}
    turns = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "brand is a text"},
        {"role": "assistant", "content": "Sorry."},
        {"role": "user", "content": "Again."},
    ]
    question = read_chat({**CHAT, "messages": [*CHAT["messages"], *turns]})
    assert question.document == (
        'Velor shoe\n\nred\n\nAn earlier answer: {"brand": 5}\n\nWhat was said of it: brand is a text\n\n'
        "An earlier answer: Sorry.\n\nAgain."
    )


def test_settings_without_effect_are_named() -> None:
    assert read_chat({**CHAT, "seed": None}).notes == ()
    silent, unknown = read_chat({**CHAT, "temperature": 0, "max_tokens": 5, "best_of": 3}).notes
    assert silent.startswith("without effect: max_tokens, temperature (")
    assert unknown == "not known here, and not read: best_of"


@table(
    ("change", "param", "said"),
    [
        ({"response_format": None}, "response_format", "does not chat"),
        ({"messages": []}, "messages", "user"),
        ({"messages": [{"role": "user", "content": " \n"}]}, "messages", "some text"),
        ({"messages": [{"role": "critic", "content": "x"}]}, "messages[0].role", "'critic' is not taken"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0].type",
            "'image_url' is not taken",
        ),
        ({"n": 2}, "n", "one answer"),
        ({"logprobs": True}, "logprobs", "hpd.fields"),
        ({"stream": "yes"}, "stream", "true or false"),
        ({"tools": CALL["tools"]}, "tool_choice", "does not choose among tools"),
        ({"tools": CALL["tools"], "tool_choice": "auto"}, "tool_choice", "has to be named"),
        (
            {"tools": CALL["tools"], "tool_choice": {"type": "function", "function": {"name": "other"}}},
            "tool_choice",
            "no tool 'other'",
        ),
    ],
)
def test_what_cannot_be_had_is_refused_by_its_key(change: dict[str, Any], param: str, said: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_chat({**CHAT, **change})
    assert (caught.value.status, caught.value.param) == (400, param)
    assert said in str(caught.value)
    assert set(caught.value.body()["error"]) == {"message", "type", "param", "code"}


_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a JSON value."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in items for place in _places(inner, (*path, key)))]


@settings(max_examples=examples(400))
@given(st.sampled_from([CHAT, CALL]), st.data())
def test_whatever_stands_at_any_place_is_read_or_refused(body: dict[str, Any], data: st.DataObject) -> None:
    """No request makes the server itself fail."""
    changed: Any = copy.deepcopy(body)
    place = data.draw(st.sampled_from(_places(body)[1:]))
    holder = changed
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = data.draw(_anything)
    with suppress(ApiError):
        question = read_chat(changed)
        assert question.document.strip()
        assert isinstance(question.schema, dict)
