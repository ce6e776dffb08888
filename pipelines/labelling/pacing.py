"""Limits on a paid endpoint: requests per minute and total dollars."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class BudgetReached(Exception):  # noqa: N818 - it is an end, not an error
    """Raised if the next request might cost more than is left."""


class Pace:
    """Rate limiter: at most `per_minute` requests, evenly spaced."""

    def __init__(self, per_minute: float | None) -> None:
        self._interval = 60 / per_minute if per_minute else 0.0
        self._next = 0.0
        self._end = asyncio.Event()

    async def wait(self) -> bool:
        """Wait until the next request may start. Returns True, or False once no request may start any more."""
        now = asyncio.get_running_loop().time()
        start = max(now, self._next)
        self._next = start + self._interval
        if start > now:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._end.wait(), start - now)
        return not self._end.is_set()

    def end(self) -> None:
        """Allow no request to start from now on."""
        self._end.set()


class Budget:
    """Budget in dollars. A request reserves its maximum cost before it is sent."""

    def __init__(self, limit: float | None, spent: float) -> None:
        self._limit = limit
        self._spent = spent
        self._reserved: list[float] = []  # one for each request under way; a running sum would keep rounding errors
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def reserve(self, most: float) -> AsyncIterator[None]:
        """Reserve `most` for the time of a request; waits for requests in progress if they may leave enough.

        Raises `BudgetReached` if none in progress could.
        """
        if self._limit is None:
            yield
            return
        async with self._changed:
            while self._spent + sum(self._reserved) + most > self._limit:
                if not self._reserved:
                    raise BudgetReached(f"${self._spent:.4f} are spent and the next request may cost up to ${most:.4f}")
                await self._changed.wait()
            self._reserved.append(most)
        try:
            yield
        finally:
            self._reserved.remove(most)
            async with self._changed:
                self._changed.notify_all()

    def spend(self, cost: float) -> None:
        """Add the actual cost of a request."""
        self._spent += cost
