"""Bodies of success in the forms of many endpoints: read as a completion, or told as the error that they are."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import httpx2
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.labelling.completions import ChatCompletion, PacedClient
from tests.examples import examples
from tests.tables import table

ANSWER = '{"Brand": "Corvina desk"}'


def chat(content: Any, finish: str | None = "stop", **message: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}]}


def called(arguments: Any, name: str = "attributes") -> dict[str, Any]:
    return chat(
        None, "tool_calls", tool_calls=[{"type": "function", "function": {"name": name, "arguments": arguments}}]
    )


def read(body: Any) -> ChatCompletion | httpx2.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = httpx2.Request("POST", "http://localhost/v1/chat/completions")
    response = PacedClient(1.0, None, Counter())._checked(httpx2.Response(201, content=content, request=request))
    completion: ChatCompletion | None = response.extensions.get("completion")
    return response if completion is None else completion


ANSWERED: dict[str, Any] = {
    "text": chat(ANSWER),
    "null error beside it": {**chat(ANSWER), "error": None},
    "a warning beside it": {**chat(ANSWER), "error": {"message": "deprecated model"}},
    "text parts": chat([{"type": "text", "text": ANSWER}]),
    "a word in two parts": chat([{"type": "text", "text": ANSWER[:14]}, {"type": "text", "text": ANSWER[14:]}]),
    "a word in plain parts": chat([ANSWER[:14], {"type": "text", "text": None}, ANSWER[14:]]),
    "an object": chat(json.loads(ANSWER)),
    "an object of a tool call": called(json.loads(ANSWER)),
    "thinking part": chat(
        [{"type": "thinking", "thinking": [{"type": "text", "text": "so"}]}, {"type": "text", "text": ANSWER}]
    ),
    "a tool call": called(ANSWER),
    "a byte order mark": b"\xef\xbb\xbf" + json.dumps(chat(ANSWER)).encode(),
    "white space to keep alive": b"\n\n   \n" + json.dumps(chat(ANSWER)).encode(),
    "UTF-16": json.dumps(chat(ANSWER)).encode("utf-16"),
}


@table("name", ANSWERED)
def test_an_answer_in_any_form(name: str) -> None:
    completion = read(ANSWERED[name])
    assert isinstance(completion, ChatCompletion), completion
    assert json.loads(completion.text) == json.loads(ANSWER)
    assert (completion.declined, completion.is_cut) == ("", False)


@table(
    ("body", "status", "message"),
    [
        ({"error": {"message": "slow down", "code": 429}}, 429, "slow down"),
        ({"error": "model 'm' not found"}, 502, "model 'm' not found"),
        ({"error": {"message": "model is loading", "code": 404}}, 502, "loading"),
        ({"object": "error", "message": "odd", "code": 40001}, 502, "odd"),
        ({"error": {"message": "flagged", "code": "content_filter"}}, 502, "flagged"),
        ({"choices": [{"message": {"content": '{"B'}, "finish_reason": "error"}]}, 502, '"finish_reason": "error"'),
        ({**chat(ANSWER, None), "error": {"message": "aborted"}}, 502, "aborted"),
        (
            {
                "choices": [
                    {"message": {"content": ""}, "finish_reason": "error", "error": {"code": 503, "message": "idle"}}
                ]
            },
            503,
            "idle",
        ),
        ({"choices": None}, 502, '{"choices": null}'),
        (chat("", None), 502, "finish_reason"),
        ({}, 502, "{}"),
        (b"", 502, "nothing in it"),
        (b"<body>Sign in to continue</body>", 502, "<body>Sign in to continue"),
        (b"[" * 100_000, 502, "[["),
        (json.dumps(chat("gr?n")).encode().replace(b"?", b"\xfc"), 502, "gr\ufffdn"),
    ],
)
def test_what_is_no_answer_is_an_error(body: Any, status: int, message: str) -> None:
    error = read(body)
    assert isinstance(error, httpx2.Response), error
    assert error.status_code == status
    assert message in error.json()["error"]["message"]


@table(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 12, "completion_tokens": 5}, (12, 5)),
        ({"prompt_tokens": -1, "completion_tokens": 5}, None),
        ({"prompt_tokens": float("nan"), "completion_tokens": 5}, None),
        ("many", None),
    ],
)
def test_tokens(usage: Any, counted: tuple[int, int] | None) -> None:
    completion = read({**chat(ANSWER), "usage": usage})
    assert isinstance(completion, ChatCompletion)
    assert completion.usage == counted


KEYS = st.sampled_from(
    (
        *("choices", "message", "content", "text", "type", "error", "finish_reason", "tool_calls", "function"),
        *("arguments", "usage", "reasoning", "refusal", "code", "\ud83d"),
    )
)
BODIES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["stop", "error"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(BODIES)
@settings(max_examples=examples(400))
def test_any_body_is_survived(body: Any) -> None:
    assert isinstance(read(json.dumps(body).encode()), ChatCompletion | httpx2.Response)
