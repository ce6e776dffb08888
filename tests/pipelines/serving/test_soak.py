"""Half an hour of clients, some of whom go: the server's memory does not grow.

HPD_SOAK_MINUTES=3 python -m pytest tests/pipelines/serving/test_soak.py -m soak -s
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest

from tests.pipelines.serving.served import MODEL, SHOE, Served, serving_apart

MINUTES = float(os.environ.get("HPD_SOAK_MINUTES", "30"))
NUM_CLIENTS = 16
ALLOWED_GROWTH = 1.05
"""Of memory, from the end of the first third on: by then caches are full and the allocator has what it needs."""


async def live(client: openai.AsyncOpenAI, seed: int, until: float) -> int:
    """One client: whole answers, streams, plain wrong requests, and going away in the middle. Returns its answers."""
    drawn, answered = random.Random(seed), 0
    while time.monotonic() < until:
        properties = dict(drawn.sample(sorted(SHOE["properties"].items()), drawn.randint(1, 4)))
        schema = {"type": "object", "description": f"shoe {drawn.randrange(500)}", "properties": properties}
        request: Any = {
            "model": MODEL,
            "messages": [{"role": "user", "content": f"Velor {drawn.random()} " * drawn.randint(1, 20)}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "shoe", "schema": schema}},
        }
        what = drawn.random()
        try:
            if what < 0.4:
                await client.chat.completions.create(**request)
            elif what < 0.7:
                async for _ in await client.chat.completions.create(**request, stream=True):
                    pass
            elif what < 0.9:
                await asyncio.wait_for(client.chat.completions.create(**request), drawn.random() * 0.05)
            else:
                await client.chat.completions.create(**request, n=2)
            answered += 1
        except (TimeoutError, openai.APITimeoutError, openai.BadRequestError):
            pass
    return answered


async def watch(process: psutil.Process, until: float) -> list[tuple[float, int]]:
    """(seconds, bytes resident), now and again."""
    started, seen = time.monotonic(), []
    while time.monotonic() < until:
        seen.append((time.monotonic() - started, process.memory_info().rss))
        await asyncio.sleep(MINUTES / 2)
    return seen


async def run(server: Served) -> tuple[int, list[tuple[float, int]]]:
    assert server.process is not None
    until = time.monotonic() + MINUTES * 60
    async with openai.AsyncOpenAI(base_url=server.address, api_key="any", max_retries=0, timeout=120) as client:
        lives = (live(client, seed, until) for seed in range(NUM_CLIENTS))
        seen, *answered = await asyncio.gather(watch(psutil.Process(server.process.pid), until), *lives)
    return sum(answered), seen


@pytest.mark.soak
def test_memory_stays_flat(tiny_model_dir: Path) -> None:
    with serving_apart(tiny_model_dir, "--set", "engine.max_value_tokens=8") as server:
        answered, seen = asyncio.run(run(server))
        assert server.counted("hpd_server_open_requests") == 0
        gone = server.counted("hpd_server_requests_total", status="499")
        failed = server.counted("hpd_server_requests_total", status="500")
    resident = [size for _, size in seen]
    third = len(resident) // 3
    early, late = max(resident[third : 2 * third]), max(resident[2 * third :])
    print(f"\n{answered:,} answers, {gone:,.0f} clients gone; MB after thirds: {early / 1e6:.0f}, {late / 1e6:.0f}")
    assert answered > 0 < gone
    assert failed == 0
    assert late < early * ALLOWED_GROWTH
