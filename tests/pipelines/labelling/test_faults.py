"""Failures that say nothing about a product are overcome, or asked about again later."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from pipelines.labelling.openai_teacher import OpenAITeacher
from pipelines.quality.gold import read_gold
from tests.pipelines.labelling.labellings import Labelling, totals
from tests.pipelines.labelling.served_teacher import Reply, TroubleMaker, right_answer


def test_429_and_500_are_overcome(labelling: Labelling) -> None:
    def behave(request: dict[str, Any], number: int) -> Reply:
        if number == 1:
            return Reply({"error": {"message": "slow down"}}, 429, {"Retry-After": "1"})
        if number == 3:
            return Reply({"error": {"message": "oops"}}, 500, {"Retry-After": "0.05"})
        if number == 5:
            return Reply(hang_up=True)
        return right_answer(request)

    with TroubleMaker(behave) as server:
        started = time.monotonic()
        result = labelling.ask(server.url, "--json", teacher={"max_concurrency": 1})
    assert result.exit_code == 0, result.output
    assert time.monotonic() - started > 1, "Retry-After was not heeded"
    assert totals(result)["faults"] == {"429": 1, "500": 1}
    assert len(server.requests) == 9


@pytest.fixture
def no_greeting(monkeypatch: pytest.MonkeyPatch) -> None:
    """No list of models is asked for, whose answer a busy machine might have late where little time is given."""

    async def enter(teacher: OpenAITeacher) -> OpenAITeacher:
        return teacher

    monkeypatch.setattr(OpenAITeacher, "__aenter__", enter)


@pytest.mark.usefixtures("no_greeting")
def test_timeouts_are_rejections_that_a_rerun_asks_again(labelling: Labelling) -> None:
    gave_up = threading.Event()

    def behave(request: dict[str, Any], number: int) -> Reply:
        if number > 5:
            gave_up.wait(600)
        return right_answer(request)

    with TroubleMaker(behave) as server:
        # Those that are answered have all the time that a busy machine may take.
        assert labelling.ask(server.url, "--limit", "5").exit_code == 0
        result = labelling.ask(server.url, "--json", teacher={"timeout_seconds": 0.5, "max_retries": 0})
        gave_up.set()
        assert result.exit_code == 3, result.output
        assert totals(result)["rejected_by_reason"] == {"timeout": 1}
        (line,) = labelling.rejected()
        assert (line["product_id"], line["message"]) == ("p5", "no answer within 0.5 s")
        again = labelling.ask(server.url, "--json")
    assert again.exit_code == 0, again.output
    assert (totals(again)["labelled"], totals(again)["rejected"], totals(again)["asked"]) == (6, 0, 1)
    assert len(read_gold(str(labelling.output))) == 6
