"""How fast and how many at once a teacher is asked."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.labelling import pacing
from pipelines.labelling.pacing import Pace
from tests.pipelines.labelling.labellings import Labelling
from tests.pipelines.labelling.served_teacher import Reply, TroubleMaker, right_answer


def test_requests_are_evenly_spaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only waiting moves: when a request is really sent is a matter of the machine, too."""
    now, starts = 100.0, []

    async def wait_for(never: Any, seconds: float) -> None:
        nonlocal now
        never.close()
        now += seconds
        raise TimeoutError

    loop = SimpleNamespace(time=lambda: now)
    clock = SimpleNamespace(get_running_loop=lambda: loop, wait_for=wait_for, Event=asyncio.Event)
    monkeypatch.setattr(pacing, "asyncio", clock)

    async def ask() -> None:
        nonlocal now
        pace = Pace(600)
        for _ in range(4):
            await pace.wait()
            starts.append(now)
        now += 5  # what was not asked then is not asked faster now
        for _ in range(2):
            await pace.wait()
            starts.append(now)

    asyncio.run(ask())
    assert starts == pytest.approx([100, 100.1, 100.2, 100.3, 105.3, 105.4])


def test_pace_and_concurrency(labelling: Labelling, monkeypatch: pytest.MonkeyPatch) -> None:
    def behave(request: dict[str, Any], number: int) -> Reply:
        if number == 2:
            return Reply({"error": {"message": "slow down"}}, 429, {"Retry-After": "0.01"})
        return right_answer(request)

    paced: list[Pace] = []
    wait = Pace.wait

    async def noting(pace: Pace) -> bool:
        paced.append(pace)
        return await wait(pace)

    monkeypatch.setattr(Pace, "wait", noting)
    with TroubleMaker(behave) as server:
        settings = {"requests_per_minute": 600, "max_concurrency": 3}
        result = labelling.ask(server.url, teacher=settings)
    assert result.exit_code == 0, result.output
    assert "1 HTTP 429" in result.stdout
    assert len(server.requests) == 7
    assert len(paced) == 8, "the list of models, too, and retries"
    assert len(set(paced)) == 1
    assert server.most_at_once <= 3

    labelling.output.unlink()
    four_at_once = threading.Barrier(4)

    def together(request: dict[str, Any], number: int) -> Reply:
        if number <= 4:
            four_at_once.wait(600)
            time.sleep(0.2)  # for a fifth, were there one
        return right_answer(request)

    with TroubleMaker(together) as server:
        assert labelling.ask(server.url, teacher={"max_concurrency": 4}).exit_code == 0
    assert server.most_at_once == 4
