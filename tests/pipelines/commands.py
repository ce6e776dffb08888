"""What tests of the real command share: how it is called, waited for, and what of two runs must be equal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def command(config: Path, *arguments: str) -> list[str]:
    return [sys.executable, "pipelines/extract.py", "--config", str(config), *arguments]


def wait_until(condition: Callable[[], object], seconds: float = 600) -> None:
    """Long enough for a machine that does much else besides: it costs only where the condition never comes true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


_MEASURED = ("logprob", "probability", "margin", "confidence")


def assert_same(expected: list[dict[str, Any]], actual: list[dict[str, Any]]) -> None:
    """Equal rows but for the run's name, the tries, what was measured, and rounding in the probabilities."""
    assert len(actual) == len(expected)
    for one, other in zip(expected, actual, strict=True):
        for key in one.keys() - {"run_id", "attempts", "engine_seconds", "cascade_seconds"}:
            if key.startswith(_MEASURED) and one[key] is not None:
                assert other[key] == pytest.approx(one[key], abs=1e-3)
            else:
                assert other[key] == one[key], key
