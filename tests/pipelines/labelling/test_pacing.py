"""How fast a teacher is asked, and that nothing waits for its turn once there is no more to ask."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx2
import pytest

from pipelines.labelling.completions import PacedClient

REQUEST = httpx2.Request("POST", "http://localhost:1/v1/chat/completions")


async def starts(client: PacedClient, number: int) -> list[float]:
    """When that many questions, asked at once, are sent."""
    found: list[float] = []

    async def ask() -> None:
        with pytest.raises(httpx2.ConnectError):
            await client.send(REQUEST)
        found.append(asyncio.get_running_loop().time())

    await asyncio.gather(*(ask() for _ in range(number)))
    return found


def test_requests_are_evenly_spaced() -> None:
    async def ask() -> list[float]:
        client = PacedClient(5.0, 60 / 0.05, Counter())
        first = await starts(client, 3)
        await asyncio.sleep(0.3)  # what was not asked then is not asked faster now
        return [*first, *await starts(client, 3)]

    found = asyncio.run(ask())
    assert found[2] - found[0] > 0.05
    assert found[5] - found[3] > 0.05


def test_what_waits_for_its_turn_ends_with_the_run() -> None:
    async def ask() -> None:
        client = PacedClient(5.0, 0.1, Counter())  # one in ten minutes
        await starts(client, 1)
        waiting = [asyncio.create_task(client.send(REQUEST)) for _ in range(4)]
        await asyncio.sleep(0.05)
        reason = ValueError("no money")
        assert client.end(reason) is client.end(ValueError("later")) is reason
        async with asyncio.timeout(5):
            assert await asyncio.gather(*waiting, return_exceptions=True) == [reason] * 4

    asyncio.run(ask())
