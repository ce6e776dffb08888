"""What the server does not take: wrong requests, too large ones, too many, without the key."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from hpd_core import Engine, EngineConfig
from hpd_core.models.loading import load_model, load_tokenizer
from pipelines.serving.answering import ServingDesk
from pipelines.serving.gate import ServingLimits, ServingMetrics
from pipelines.serving.reply import ApiError
from tests.pipelines.commands import wait_until
from tests.pipelines.serving.served import MODEL, Served, chat, serving_here
from tests.tables import table

CHAT = "/v1/chat/completions"


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def wide(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"f{number}": {"type": "string"} for number in range(count)}}


@table(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "no such type"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}},
        {"$ref": "#"},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"a": 5}},
        nested(40),
        wide(600),
        {"type": "object", "properties": {"a": {"enum": list(range(20_000))}}},
        {"type": "object", "properties": {"a": {"type": "array", "maxItems": 10**300, "items": wide(1)}}},
    ],
)
def test_a_schema_that_cannot_be_filled_in_is_refused(server: Served, schema: dict[str, Any]) -> None:
    reply = server.chat("Velor", schema)
    assert reply.status == 400, reply.body
    error = reply.body["error"]
    assert (error["param"], error["code"]) == ("response_format.json_schema.schema", "invalid_schema")
    assert error["message"].startswith("response_format.json_schema.schema: ")


@table("stream", [False, True])
@table("text", ["", "a\nb", '"', "<|im_end|>", "</s>", "\x00", "\u2028", "😀" * 50, "~/", "{{ 7 }}", "x" * 3000])
def test_whatever_stands_in_names_and_texts_the_server_does_not_fail(server: Served, text: str, stream: bool) -> None:
    """It is answered or refused."""
    inner = {"type": "object", "properties": {text: {"type": "string", "description": text}}}
    schema = {
        "type": "object",
        "title": text,
        "properties": {text: inner, "kind": {"enum": [text, f"not {text}"]}, "known": {"const": text}},
    }
    body = chat(f"Velor {text}", schema, stream=stream)
    body["messages"].insert(0, {"role": "system", "content": text})
    reply = server.ask(CHAT, body)
    assert reply.status in (200, 400), reply.body
    if stream and reply.status == 200:
        assert reply.body.endswith("data: [DONE]\n\n")


@table("stream", [False, True])
def test_a_model_of_no_numbers_fails_and_answers_nothing(tiny_model_dir: Path, stream: bool) -> None:
    config = EngineConfig(dtype="float32", device="cpu")
    model = load_model(str(tiny_model_dir), config)
    engine = Engine(model, load_tokenizer(str(tiny_model_dir), config), config)
    model.get_output_embeddings().weight.data.fill_(math.nan)
    with engine, serving_here(engine) as server:
        reply = server.chat("Velor", stream=stream)
        assert (reply.status, reply.body["error"]["code"]) == (500, "engine_failed")
        assert "not finite" in reply.message
        assert server.counted("hpd_server_fields_total") == 0


def test_plain_chat_is_refused_with_the_way_out(server: Served) -> None:
    with openai.OpenAI(base_url=server.address, api_key="any", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError, match="does not chat") as caught:
            client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hello!"}])
        assert caught.value.code == "schema_required"
        with pytest.raises(openai.NotFoundError, match="there is no model 'gpt-4' here"):
            client.chat.completions.create(model="gpt-4", messages=[{"role": "user", "content": "Hello!"}])


def test_a_body_of_ten_megabytes_is_refused_before_it_is_read(engine: Engine, server: Served) -> None:
    reply = server.chat("x" * 10_000_000)
    assert (reply.status, reply.body["error"]["type"]) == (413, "invalid_request_error")
    # The head alone is enough.
    with server.sent(b"", 10_000_000) as sock:
        assert sock.recv(100).startswith(b"HTTP/1.1 413 ")
    # So is the part that is too long, where the head does not say.
    with (
        serving_here(engine, ServingLimits(max_body_bytes=1000)) as strict,
        socket.create_connection(strict.place, timeout=60) as sock,
    ):
        sock.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        sock.sendall(b"3e9\r\n" + b"x" * 1001 + b"\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 413 ")
    assert server.chat("Velor").status == 200


def test_a_body_that_is_no_json_is_refused(server: Served) -> None:
    for body in (b"not json", b"[1]", b'{"messages": NaN}', b"[" * 100_000, rb'{"a": "\ud83d"}'):
        assert server.ask(CHAT, body).status == 400


def test_a_key_is_needed_where_there_is_one(engine: Engine) -> None:
    with serving_here(engine, api_key="secret") as server:
        for given in (None, "Bearer other", "secret", "Bearer ", "basic secret"):
            headers = {} if given is None else {"Authorization": given}
            reply = server.ask(CHAT, chat("Velor"), **headers)
            assert (reply.status, reply.body["error"]["code"]) == (401, "invalid_api_key")
            assert "secret" not in reply.message
            assert server.ask("/v1/models", **headers).status == 401
        for given in ("Bearer secret", "bearer secret"):
            assert server.ask(CHAT, chat("Velor"), Authorization=given).status == 200
        # Not even a body that is too long is looked at.
        with server.sent(b"", 10_000_000) as sock:
            assert sock.recv(100).startswith(b"HTTP/1.1 401 ")
        # Whoever watches the server has no key.
        assert server.ask("/health").status == server.ask("/metrics").status == 200
        with (
            openai.OpenAI(base_url=server.address, api_key="wrong", max_retries=0) as client,
            pytest.raises(openai.AuthenticationError),
        ):
            client.models.list()


@contextmanager
def held(engine: Engine) -> Iterator[None]:
    """The engine decodes nothing."""
    step, go = engine._decoder.step, threading.Event()

    def waiting() -> Any:
        go.wait(60)
        return step()

    engine._decoder.step = waiting  # type: ignore[method-assign]
    try:
        yield
    finally:
        engine._decoder.step = step  # type: ignore[method-assign]
        go.set()


def test_one_request_too_many_is_told_when_to_come_again(engine: Engine) -> None:
    with serving_here(engine, ServingLimits(max_open_requests=2)) as server, ThreadPoolExecutor(2) as clients:
        with held(engine):
            taken = [clients.submit(server.chat, "Velor") for _ in range(2)]
            wait_until(lambda: server.counted("hpd_server_open_requests") == 2, 60)
            reply = server.chat("Velor")
            assert (reply.status, reply.body["error"]["type"]) == (429, "rate_limit_error")
            assert 1 <= int(reply.headers["retry-after"]) <= 60
        assert [each.result().status for each in taken] == [200, 200]
        assert server.chat("Velor").status == 200


def test_what_takes_too_long_is_given_up(engine: Engine) -> None:
    with serving_here(engine, ServingLimits(timeout_seconds=0.3)) as server, held(engine):
        reply = server.chat("Velor")
        assert (reply.status, reply.body["error"]["message"]) == (504, "there was no answer within 0.3 s")
        assert server.counted("hpd_server_open_requests") == 0


def test_what_sends_no_body_takes_no_place(engine: Engine) -> None:
    with (
        serving_here(engine, ServingLimits(max_open_requests=1, body_seconds=0.3)) as server,
        server.half_sent(chat("Velor")) as slow,
    ):
        assert server.chat("Velor").status == 200
        answer = b""
        while b"the body did not come within 0.3 s" not in answer:  # it comes in one piece or in several
            answer += (piece := slow.recv(10_000))
            assert piece, answer
        assert answer.startswith(b"HTTP/1.1 408 ")


def test_who_would_not_be_answered_in_time_is_refused_early(engine: Engine) -> None:
    desk = ServingDesk(engine, ServingLimits(timeout_seconds=10), ServingMetrics())
    desk._pace = 3.0  # seconds an answer, as measured under load
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(desk.place())
        with pytest.raises(ApiError) as caught:
            stack.enter_context(desk.place())
    assert caught.value.status == 429
    assert caught.value.headers["Retry-After"] == "2"


def test_what_is_no_json_by_its_header_is_refused(server: Served) -> None:
    assert server.ask(CHAT, chat("Velor"), **{"Content-Type": "text/plain"}).status == 415
    assert server.ask(CHAT, chat("Velor"), **{"Content-Type": "application/json; charset=utf-8"}).status == 200
