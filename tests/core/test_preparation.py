"""Who waits for whom before prompts with verbatim values are decoded."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from hpd_core.decoding.prompt import Prompt, Slot
from hpd_core.decoding.run_tries import RunTries
from hpd_core.layout import Branch, tree_layout
from hpd_core.requests.calls import ExtractionFuture
from hpd_core.requests.request_queue import Preparation, Request
from hpd_core.text.runs import Runs
from tests.core.engines import TIMEOUT
from tests.core.text.test_runs import tries
from tests.tiny_model import build_tokenizer


@pytest.fixture(scope="module")
def runs() -> RunTries:
    return tries(build_tokenizer())


class Preparing:
    """A preparation, and what its thread is given, by turns: of each prompt its caller's name and its number there."""

    def __init__(self, runs: RunTries) -> None:
        self._told = threading.Semaphore(0)
        self.preparation = Preparation(runs, self._told.release)

    def add(self, texts: Mapping[str, list[str]], *, caller: object = None) -> list[Request]:
        """A request for each name, with a prompt of each of its texts."""
        requests = [self._task(name, own) for name, own in texts.items()]
        for request in requests:
            request.caller = caller or request.caller
            assert self.preparation.add(request.prompts) == []
        return requests

    def _task(self, name: str, texts: list[str]) -> Request:
        layout = tree_layout([1], [2], [Branch([3], 4)])
        prompts = [
            Prompt(layout, name, [Slot(number, 0)], runs={0: Runs((text,), 4)}) for number, text in enumerate(texts)
        ]
        return Request(prompts, ExtractionFuture(), lambda _: None)

    def turn(self) -> list[tuple[str, int]]:
        """What was prepared at once; goes on with the next."""
        self.preparation.go_on(is_needed=True)
        assert self._told.acquire(timeout=TIMEOUT)
        found = self.preparation.take()
        assert all(error is None and (prompt.leases or prompt.owner.future.done()) for prompt, error in found)
        return [(prompt.prefix_key, prompt.slots[0].trunk) for prompt, _ in found]


@pytest.fixture
def preparing(runs: RunTries) -> Iterator[Preparing]:
    made = Preparing(runs)
    yield made
    made.preparation.close()


def test_tasks_of_one_caller_take_their_turns_as_one(preparing: Preparing) -> None:
    preparing.add({f"document {number}": ["red"] for number in range(10)}, caller="a form")
    preparing.add({"other": ["a", "b"]})
    assert [name for name, _ in preparing.turn()[:4]] == ["document 0", "other", "document 1", "other"]


def test_of_long_documents_fewer_are_prepared_at_once(preparing: Preparing) -> None:
    long, huge = "red shoe " * 150, "red shoe " * 600
    preparing.add({"long": [long] * 4, "huge": [huge]})
    preparing.add({"short": ["a"] * 3})
    turns = [preparing.turn() for _ in range(4)]
    assert turns[0] == [("long", 0)], "the huge one is next, and has no room beside it"
    assert turns[1] == [("huge", 0)]
    assert turns[2] == [("short", 0), ("long", 1), ("short", 1), ("long", 2), ("short", 2)]
    assert turns[3] == [("long", 3)]


def test_what_nobody_waits_for_takes_no_room(preparing: Preparing) -> None:
    (gone,) = preparing.add({"gone": ["red shoe " * 600] * 5})
    preparing.add({"there": ["a"]})
    gone.future.settle(error=RuntimeError("given up"))
    found: Any = preparing.turn()
    assert found == [("gone", 0), ("there", 0), *(("gone", number) for number in range(1, 5))]
    assert not any(prompt.leases for prompt in gone.prompts)
