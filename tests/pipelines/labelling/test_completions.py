"""Bodies with status 200 in the forms of many endpoints: read as a completion, or told as the error that they are."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.labelling.completions import Completion, read_completion
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


def stream(*deltas: dict[str, Any], finish: str | None = "stop", end: str = "data: [DONE]\n\n") -> bytes:
    chunks: list[dict[str, Any]] = [{"choices": [{"delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"choices": [{"delta": {}, "finish_reason": finish}]})
    return "".join(f": keep-alive\n\ndata: {json.dumps(chunk)}\n\n" for chunk in chunks).encode() + end.encode()


def read(body: Any) -> Completion | EndpointError:
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
    "part with a value": chat([{"type": "text", "text": {"value": ANSWER}}]),
    "an object as content": chat(json.loads(ANSWER)),
    "a tool call": called(ANSWER),
    "a tool call with an object": called(json.loads(ANSWER)),
    "a function call": chat(None, "function_call", function_call={"name": "f", "arguments": ANSWER}),
    "legacy text": {"choices": [{"text": ANSWER, "finish_reason": "stop"}]},
    "output_text": {"output_text": ANSWER},
    "responses": {
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "content": [{"type": "output_text", "text": ANSWER}]},
        ],
        "status": "completed",
    },
    "ollama": {"message": {"role": "assistant", "content": ANSWER}, "done": True, "done_reason": "stop"},
    "ollama generate": {"response": ANSWER, "done": True},
    "anthropic": {"content": [{"type": "text", "text": ANSWER}], "stop_reason": "end_turn"},
    "gemini": {
        "candidates": [
            {"content": {"parts": [{"text": "t", "thought": True}, {"text": ANSWER}]}, "finishReason": "STOP"}
        ]
    },
    "bedrock": {"output": {"message": {"role": "assistant", "content": [{"text": ANSWER}]}}, "stopReason": "end_turn"},
    "cloudflare": {"success": True, "errors": [], "result": {"response": ANSWER}},
    "cloudflare, an object": {"success": True, "result": {"response": json.loads(ANSWER)}},
    "text-generation-inference": [{"generated_text": ANSWER}],
    "wrapped by a gateway": {"code": 200, "data": chat(ANSWER)},
    "a byte order mark": b"\xef\xbb\xbf" + json.dumps(chat(ANSWER)).encode(),
    "white space to keep alive": b"\n\n   \n" + json.dumps(chat(ANSWER)).encode(),
    "a stream": stream(
        {"role": "assistant"}, {"content": '{"Brand": "Corvina'}, {"content": " "}, {"content": 'desk"}'}
    ),
    "a stream without [DONE]": stream({"content": ANSWER}, end=""),
    "a stream without a finish": stream({"content": ANSWER}, finish=None),
    "a streamed tool call": stream(
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ANSWER[:9]}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ANSWER[9:]}}]},
    ),
    "a line each": "\n".join(
        json.dumps({"message": {"content": part}, "done": part.endswith("}")}) for part in (ANSWER[:9], ANSWER[9:])
    ).encode(),
}


@table("name", ANSWERED)
def test_an_answer_in_any_form(name: str) -> None:
    completion = read(ANSWERED[name])
    assert isinstance(completion, Completion), completion
    assert json.loads(completion.text) == json.loads(ANSWER)
    assert (completion.declined, completion.is_cut) == ("", False)


@table(
    ("body", "words"),
    [
        (chat(None, refusal="I cannot help"), "I cannot help"),
        (chat([{"type": "refusal", "refusal": "I cannot help"}]), "I cannot help"),
        (chat("", "content_filter"), "content filter"),
        (chat('{"Br', "content_filter"), '{"Br'),
        ({"candidates": [{"finishReason": "SAFETY"}]}, "content filter"),
        ({"promptFeedback": {"blockReason": "SAFETY"}}, "the endpoint blocked the question: SAFETY"),
        (
            {"choices": [], "prompt_filter_results": [{"content_filter_results": {"hate": {"filtered": True}}}]},
            "the endpoint blocked the question: hate",
        ),
    ],
)
def test_a_teacher_that_declines(body: Any, words: str) -> None:
    completion = read(body)
    assert isinstance(completion, Completion)
    assert completion.declined == words


def test_the_limit_before_the_first_word() -> None:
    assert read({"candidates": [{"finishReason": "MAX_TOKENS", "index": 0}]}) == Completion(is_cut=True)


@table(
    ("body", "status", "message"),
    [
        ({"error": {"message": "slow down", "code": 429}}, 429, "an error inside: slow down"),
        ({"error": "model 'm' not found"}, 404, "an error inside: model 'm' not found"),
        ({"detail": "Unauthorized"}, 401, "an error inside: Unauthorized"),
        ({"object": "error", "message": "odd", "code": 40001}, SERVER_ERROR, "an error inside: odd"),
        ([{"error": {"code": 429, "message": "exhausted"}}], 429, "an error inside: exhausted"),
        ({"choices": None, "base_resp": {"status_code": 1002, "status_msg": "rate limit"}}, 429, "rate limit"),
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
        (chat('{"error": {"type": "overloaded_error", "message": "busy"}}'), 503, "an error inside: busy"),
        (chat('{"error": {"code": 502, "message": "gone"}}'), SERVER_ERROR, "an error inside: gone"),
        (chat('{"error": {"code": 401, "message": "no such key"}}'), SERVER_ERROR, "an error inside: no such key"),
        (chat('{"error": "Rate limit reached"}'), 429, "an error inside: Rate limit reached"),
        (chat("Error: rate limit exceeded, try again in 20 seconds"), 429, "an error inside: Error: rate limit"),
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
        (
            b'data: {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "gone"}}}',
            503,
            "an error inside: gone",
        ),
        (stream({"content": '{"B'}, finish=None, end=""), SERVER_ERROR, "the stream ended in the middle"),
        (
            stream({"content": '{"B'}, finish=None, end='data: {"error": {"code": 503, "message": "gone"}}\n\n'),
            503,
            "gone",
        ),
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
        '{"error": {"code": "NO_BRAND", "message": "no brand is given"}}',
        '{"error": {"code": 429}, "Brand": "Corvina"}',
        "Error: the text has no API key.",
        "The rate limit of this device is 3.",
    ],
)
def test_a_teacher_may_write_of_errors(text: str) -> None:
    assert read(chat(text)) == Completion(text)


@table(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 12, "completion_tokens": 5}, (12, 5)),
        ({"prompt_tokens": "12", "completion_tokens": 5.0}, (12, 5)),
        ({"input_tokens": 12, "output_tokens": 0}, (12, 0)),
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
    assert isinstance(completion, Completion)
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
    assert read_completion(sent, charset) == Completion("grün")


def test_bytes_that_are_no_text() -> None:
    assert read(json.dumps(chat("gr?n")).encode().replace(b"?", b"\xfc")) == Completion("gr\ufffdn")


KEYS = st.sampled_from(
    (
        *("choices", "message", "delta", "content", "text", "type", "error", "finish_reason", "tool_calls", "function"),
        *("arguments", "usage", "output", "candidates", "parts", "reasoning", "refusal", "code", "index", "\ud83d"),
    )
)
BODIES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["stop", "error"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(BODIES, min_size=1, max_size=3), st.booleans())
@settings(max_examples=examples(400))
def test_any_body_is_survived(bodies: list[Any], is_stream: bool) -> None:
    texts = [json.dumps(body) for body in bodies]
    sent = "".join(f"data: {text}\n\n" for text in texts) if is_stream else texts[0]
    assert isinstance(read_completion(sent.encode()), Completion | EndpointError)


@given(st.binary(max_size=80))
@settings(max_examples=examples(100))
def test_any_bytes_are_survived(sent: bytes) -> None:
    assert isinstance(read_completion(sent), Completion | EndpointError)
