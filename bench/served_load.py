"""Clients of an OpenAI-compatible server who ask again as soon as they are answered, and how long each waits."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openai

from pipelines.errors import RunError

_START_SECONDS = 600
_END_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Waits:
    """What clients of one server saw.

    Attributes:
        seconds: of each request, from sending it to its whole answer.
        wall_seconds: from the first request to the last answer.
        num_tokens: that the server says it wrote, of all answers.
    """

    num_clients: int
    seconds: Sequence[float]
    wall_seconds: float
    num_tokens: int

    def summary(self) -> dict[str, float]:
        """Numbers for a table: seconds but for counts and rates."""
        p50, p99 = np.percentile(self.seconds, (50, 99))
        count = len(self.seconds)
        return {
            "clients": self.num_clients,
            "requests": count,
            "p50": float(p50),
            "p99": float(p99),
            "requests_per_second": count / self.wall_seconds,
            "tokens_per_answer": self.num_tokens / count,
        }


async def measure(
    address: str, requests: Sequence[Mapping[str, Any]], num_clients: int, seconds: float, least: int
) -> Waits:
    """Clients begin requests for `seconds`, and until there are `least`; what is under way is waited for.

    Args:
        requests: arguments of a chat completion, asked in turn.

    Raises:
        RunError: a request was refused or failed.
    """
    waits: list[float] = []
    num_tokens = 0
    started = time.perf_counter()
    asked = itertools.count()

    async def live(client: openai.AsyncOpenAI) -> None:
        nonlocal num_tokens
        while (number := next(asked)) < least or time.perf_counter() - started < seconds:
            sent = time.perf_counter()
            completion = await client.chat.completions.create(**requests[number % len(requests)])
            waits.append(time.perf_counter() - sent)
            num_tokens += completion.usage.completion_tokens if completion.usage else 0

    async with openai.AsyncOpenAI(base_url=address, api_key="none", max_retries=0, timeout=3600) as client:
        try:
            await asyncio.gather(*(live(client) for _ in range(num_clients)))
        except openai.OpenAIError as error:
            raise RunError(f"{address}: {error}") from error
    return Waits(num_clients, waits, time.perf_counter() - started, num_tokens)


@contextmanager
def started(command: Sequence[str], port: int, log: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """A server in a process of its own, which ends with this; gives its address up to /v1.

    Raises `RunError` where it does not come up.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=dict(environment))
        try:
            _wait_for(f"http://127.0.0.1:{port}/health", process, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)
    raise RunError(f"the server did not start: {log} says\n{log.read_text(errors='replace')[-2000:]}")
