"""Many clients at once, and clients that go before their answer."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest

from hpd_core import Engine, EngineConfig
from pipelines.serving.gate import ServingLimits
from tests.pipelines.commands import wait_until
from tests.pipelines.serving.served import MODEL, SHOE, Served, chat, serving_here

LONG = "Velor shoe " * 20


def many(name: str) -> dict[str, Any]:
    """Many fields; of each name anew: what schemas begin with is computed once."""
    return {"type": "object", "properties": {f"{name} {number}": {"type": "string"} for number in range(60)}}


class Remembering(Engine):
    """Keeps what it was asked for, and does nothing while it may not begin."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.futures: list[Future[Any]] = []
        self.may_begin = threading.Event()
        self.may_begin.set()

    def submit_json(self, *args: Any, **options: Any) -> Any:
        assert self.may_begin.wait(60)
        self.futures.append(future := super().submit_json(*args, **options))
        return future


@pytest.fixture(scope="module")
def slow_engine(tiny_model_dir: Path) -> Iterator[Remembering]:
    """Takes seconds for `many` fields: few tokens are decoded at a time."""
    config = EngineConfig(
        dtype="float32", device="cpu", max_value_tokens=200, max_tokens_per_step=2, constrain_values=False
    )
    with Remembering.from_pretrained(str(tiny_model_dir), config) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def slow_server(slow_engine: Remembering) -> Iterator[Served]:
    with serving_here(slow_engine) as served:
        yield served


async def ask_all(address: str, texts: list[str]) -> list[Mapping[str, Any]]:
    shape = {"type": "json_schema", "json_schema": {"name": "shoe", "schema": SHOE}}

    async def ask(client: openai.AsyncOpenAI, number: int, text: str) -> Mapping[str, Any]:
        request: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": text}]}
        if number % 2:
            completion = await client.chat.completions.create(**request, response_format=shape)
            return dict(json.loads(completion.choices[0].message.content))
        stream = await client.chat.completions.create(**request, response_format=shape, stream=True)
        parts = [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]
        return dict(json.loads("".join(parts)))

    async with openai.AsyncOpenAI(base_url=address, api_key="any", max_retries=0, timeout=300) as client:
        return await asyncio.gather(*(ask(client, number, text) for number, text in enumerate(texts)))


def test_two_hundred_clients_get_the_answers_that_each_gets_alone(engine: Engine, server: Served) -> None:
    """Half of them as streams. 8 s."""
    texts = [f"Velor shoe {number}, {('red', 'blue')[number % 2]}, size {number % 50}" for number in range(200)]
    together = asyncio.run(ask_all(server.address, texts))
    assert together == [result.data for result in engine.extract_json(texts, SHOE)]
    assert together[::20] == [engine.extract_json([text], SHOE)[0].data for text in texts[::20]]
    assert server.counted("hpd_server_open_requests") == 0


def test_what_a_client_that_went_has_asked_leaves_the_engine(slow_engine: Remembering, slow_server: Served) -> None:
    before = len(slow_engine.futures)
    with slow_server.sent(json.dumps(chat(LONG, many("gone"))).encode()):
        wait_until(lambda: len(slow_engine.futures) > before, 60)
    future = slow_engine.futures[-1]
    wait_until(future.done, 60)
    assert isinstance(future.exception(), CancelledError), "it was decoded for nobody"
    wait_until(lambda: slow_server.counted("hpd_server_open_requests") == 0, 60)
    # Its place in every step is free: whoever comes now does not wait for it.
    assert slow_server.chat("Velor", SHOE).status == 200


def test_what_no_thread_has_begun_with_is_not_begun_for_a_client_that_went(slow_engine: Remembering) -> None:
    """A schema may take seconds to compile: those of clients who went would hold up all others."""
    before, count = len(slow_engine.futures), 50
    with serving_here(slow_engine) as server:
        slow_engine.may_begin.clear()
        with ExitStack() as clients:
            for _ in range(count):
                clients.enter_context(server.sent(json.dumps(chat(LONG)).encode()))
            wait_until(lambda: server.counted("hpd_server_open_requests") == count, 60)
        wait_until(lambda: server.counted("hpd_server_open_requests") == 0, 60)
        slow_engine.may_begin.set()
        assert server.chat("Velor").status == 200
    most_threads = 32
    assert len(slow_engine.futures) - before <= most_threads + 1 < count


def test_so_does_what_has_run_out_of_time(slow_engine: Remembering) -> None:
    with serving_here(slow_engine, ServingLimits(timeout_seconds=0.3)) as server:
        started = time.monotonic()
        assert server.chat(LONG, many("late")).status == 504
        assert time.monotonic() - started < 30
        future = slow_engine.futures[-1]
        wait_until(future.done, 60)
        assert isinstance(future.exception(), CancelledError)
