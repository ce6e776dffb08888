"""What the engine's tests share: settings, what is compared, a look at the steps."""

from __future__ import annotations

import threading
from typing import Any

from hpd_core import Engine, EngineConfig, OpenBranch, RecordResult, Trunk
from hpd_core.decoding.decoder import StepReport
from hpd_core.text import value_kinds as kinds
from hpd_core.text.template import Piece
from tests.core.products import SCHEMAS, products

TIMEOUT = 600
"""Seconds after which something hangs. On a busy machine a thread may not be run for long, and nothing is wrong."""
LAYOUTS = ("tree", "stacked")
K_MAX = 8


def config(layout: str = "tree", **options: Any) -> EngineConfig:
    """Exact, on the CPU, short values."""
    return EngineConfig(**{"layout": layout, "dtype": "float32", "device": "cpu", "max_value_tokens": K_MAX, **options})


def answers(results: list[RecordResult]) -> list[list[tuple[str, str, str, int]]]:
    """What must be equal between two runs; log-probabilities may differ in their last bits."""
    return [[(name, v.status, v.raw, v.num_tokens) for name, v in result.values.items()] for result in results]


BRANCHES = [
    OpenBranch(f"{number}:", kind, K_MAX)
    for number, kind in enumerate(
        [
            *(kinds.FreeText(), kinds.JsonString(), kinds.Pattern("[a-z]+-?[0-9]{1,3}"), kinds.Verbatim(nullable=True)),
            *(kinds.OneOf(("red", "dark", 7)), kinds.Number(), kinds.Integer(), kinds.Boolean(nullable=True)),
            *(kinds.ListOf(kinds.JsonString()), kinds.Grammar('{"type": "object", "required": ["a"]}')),
        ]
    )
]
"""A branch of every kind."""


def every_answer(engine: Engine, count: int) -> list[Any]:
    """The answers for records with attributes of every type, and for branches of every kind."""
    trunks = [Trunk((Piece("Shoes. ", trusted=True),), " ".join(record.fields.values())) for record in products(count)]
    completed = engine.complete(trunks, [BRANCHES] * count).result(TIMEOUT)
    of_branches = [[(found.status, found.raw, found.num_tokens) for found in each.branches] for each in completed]
    return [*answers(engine.extract(products(count), SCHEMAS)), *of_branches]


class Steps:
    """Counts the engine's steps and holds the first one back until `release`."""

    def __init__(self, engine: Engine, *, hold: bool = False, fail_at: int | None = None) -> None:
        self.reports: list[StepReport] = []
        self.release = threading.Event()
        self.entered = threading.Event()
        if not hold:
            self.release.set()
        self._step = engine._decoder.step
        self._fail_at = fail_at
        self._calls = 0
        engine._decoder.step = self  # type: ignore[method-assign, assignment]

    def __call__(self) -> StepReport:
        self.entered.set()
        assert self.release.wait(TIMEOUT)
        self._calls += 1
        if self._calls == self._fail_at:
            raise RuntimeError("out of memory, as it were")
        self.reports.append(self._step())
        return self.reports[-1]
