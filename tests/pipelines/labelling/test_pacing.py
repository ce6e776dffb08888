"""How fast and how many at once a teacher is asked."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.labelling import completions
from pipelines.labelling.completions import Pace


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
    monkeypatch.setattr(completions, "asyncio", clock)

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
