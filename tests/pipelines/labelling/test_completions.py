"""Bodies with status 200 in the forms of many endpoints: read as a completion, or told as the error that they are."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.labelling.completions import ChatCompletion, read_completion
from pipelines.labelling.endpoint_errors import DECLINED, SERVER_ERROR, EndpointError
from tests.examples import examples
from tests.tables import table

ANSWER = '{"Brand": "Corvina desk"}'


def chat(content: Any, finish: str | None = "stop", **message: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}]}


def called(arguments: Any, name: str = "attributes") -> dict[str, Any]:
    return chat(
        None, "tool_calls", tool_calls=[{"type": "function", "function": {"name": name, "arguments": arguments}}]
    )


def read(body: Any) -> ChatCompletion | EndpointError:
    return read_completion(body if isinstance(body, bytes) else json.dumps(body).encode())


ANSWERED: dict[str, Any] = {
    "text": chat(ANSWER),
    "null error beside it": {**chat(ANSWER), "error": None},
    "a warning beside it": {**chat(ANSWER), "error": {"message": "deprecated model"}},
    "text parts": chat([{"type": "text", "text": ANSWER}]),
    "a word in two parts": chat([{"type": "text", "text": ANSWER[:14]}, {"type": "text", "text": ANSWER[14:]}]),
    "thinking part": chat(
        [{"type": "thinking", "thinking": [{"type": "text", "text": "so"}]}, {"type": "text", "text": ANSWER}]
    ),
    "a tool call": called(ANSWER),
    "a byte order mark": b"\xef\xbb\xbf" + json.dumps(chat(ANSWER)).encode(),
    "white space to keep alive": b"\n\n   \n" + json.dumps(chat(ANSWER)).encode(),
}


@table("name", ANSWERED)
def test_an_answer_in_any_form(name: str) -> None:
    completion = read(ANSWERED[name])
    assert isinstance(completion, ChatCompletion), completion
    assert json.loads(completion.text) == json.loads(ANSWER)
    assert (completion.declined, completion.is_cut) == ("", False)


@table(
    ("body", "words"),
    [
        (chat(None, refusal="I cannot help"), "I cannot help"),
        (chat([{"type": "refusal", "refusal": "I cannot help"}]), "I cannot help"),
        (chat("", "content_filter"), "content filter"),
        (chat('{"Br', "content_filter"), '{"Br'),
    ],
)
def test_a_teacher_that_declines(body: Any, words: str) -> None:
    completion = read(body)
    assert isinstance(completion, ChatCompletion)
    assert completion.declined == words


@table(
    ("body", "status", "message"),
    [
        ({"error": {"message": "slow down", "code": 429}}, 429, "an error inside: slow down"),
        ({"error": "model 'm' not found"}, 404, "an error inside: model 'm' not found"),
        ({"detail": "Unauthorized"}, 401, "an error inside: Unauthorized"),
        ({"object": "error", "message": "odd", "code": 40001}, SERVER_ERROR, "an error inside: odd"),
        ({"success": False, "errors": [{"message": "Authentication error"}]}, 401, "Authentication error"),
        ({"error": {"message": "flagged by moderation", "code": 403}}, DECLINED, "flagged by moderation"),
        ({"choices": [{"message": {"content": '{"B'}, "finish_reason": "error"}]}, SERVER_ERROR, "'error'"),
        (
            {
                "choices": [
                    {"message": {"content": ""}, "finish_reason": "error", "error": {"code": 502, "message": "idle"}}
                ]
            },
            502,
            "an error inside: idle",
        ),
        # where the answer belongs
        (chat('{"error": {"code": 429, "message": "busy"}}'), 429, "an error inside: busy"),
        (chat('{"error": {"code": 502, "message": "gone"}}'), SERVER_ERROR, "an error inside: gone"),
        (chat('{"error": {"code": 401, "message": "no such key"}}'), SERVER_ERROR, "an error inside: no such key"),
        ({"choices": None}, SERVER_ERROR, "a completion without choices or message"),
        ({"choices": []}, SERVER_ERROR, "a completion without choices or message"),
        ({"choices": [{"message": None}]}, SERVER_ERROR, "a completion without choices or message"),
        (chat("", None), SERVER_ERROR, "an empty message that is not finished"),
        ({**chat(""), "usage": {"prompt_tokens": 0, "completion_tokens": 0}}, SERVER_ERROR, "or of no token"),
        ({}, SERVER_ERROR, "no completion: {}"),
        ([1, 2], SERVER_ERROR, "no completion: [1, 2]"),
        (b"", SERVER_ERROR, "nothing in it"),
        (
            b"<!DOCTYPE html><style>p</style><body>Sign in to continue</body>",
            SERVER_ERROR,
            "a web page: Sign in to continue",
        ),
        (b'{"choices": [', SERVER_ERROR, 'no completion: {"choices": ['),
        (b"[" * 100_000, SERVER_ERROR, "no completion: [["),
        (b'data: {"choices": []}', SERVER_ERROR, "no completion: data:"),
    ],
)
def test_what_is_no_answer_is_an_error(body: Any, status: int, message: str) -> None:
    error = read(body)
    assert isinstance(error, EndpointError), error
    assert error.status == status
    assert message in error.message


@table(
    "text",
    [
        '{"error": "the text names no server"}',
        '{"error": {"message": "no brand is given"}}',
        '{"error": {"code": 429}, "Brand": "Corvina"}',
        "Error: the text has no API key.",
        "The rate limit of this device is 3.",
    ],
)
def test_a_teacher_may_write_of_errors(text: str) -> None:
    assert read(chat(text)) == ChatCompletion(text)


@table(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 12, "completion_tokens": 5}, (12, 5)),
        ({"prompt_tokens": -1, "completion_tokens": 5}, None),
        ({"prompt_tokens": True, "completion_tokens": 5}, None),
        ({"prompt_tokens": 1.5, "completion_tokens": 5}, None),
        ({"prompt_tokens": None, "completion_tokens": 5}, None),
        ({"prompt_tokens": float("nan"), "completion_tokens": 5}, None),
        ({"prompt_tokens": 10**40, "completion_tokens": 5}, None),
        ("many", None),
        (None, None),
    ],
)
def test_tokens(usage: Any, counted: tuple[int, int] | None) -> None:
    completion = read({**chat(ANSWER), "usage": usage})
    assert isinstance(completion, ChatCompletion)
    assert completion.usage == counted


@table(
    ("encoding", "charset"),
    [
        ("utf-8", "latin-1"),
        ("utf-8-sig", None),
        ("utf-16", None),
        ("latin-1", "iso-8859-1"),
        ("cp1252", "cp1252"),
        ("utf-8", "idna"),
    ],
)
def test_letters_beyond_ascii(encoding: str, charset: str | None) -> None:
    sent = json.dumps(chat("grün"), ensure_ascii=False).encode(encoding)
    assert read_completion(sent, charset) == ChatCompletion("grün")


def test_bytes_that_are_no_text() -> None:
    assert read(json.dumps(chat("gr?n")).encode().replace(b"?", b"\xfc")) == ChatCompletion("gr\ufffdn")


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
    assert isinstance(read_completion(json.dumps(body).encode()), ChatCompletion | EndpointError)


@given(st.binary(max_size=80))
@settings(max_examples=examples(100))
def test_any_bytes_are_survived(sent: bytes) -> None:
    assert isinstance(read_completion(sent), ChatCompletion | EndpointError)
