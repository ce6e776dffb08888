"""What is said of requests that are not answered yet: how many, and how old the oldest is."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipelines.labelling.under_way import UnderWay
from tests.pipelines.labelling.labellings import Labelling
from tests.pipelines.labelling.served_teacher import Reply, TroubleMaker, right_answer


def test_what_waits_for_its_turn_is_not_under_way(labelling: Labelling) -> None:
    def behave(request: dict[str, Any], _: int) -> Reply:
        time.sleep(0.6)
        return right_answer(request)

    with TroubleMaker(behave) as server:
        teacher = {"max_concurrency": 3, "requests_per_minute": 120}
        result = labelling.ask(server.url, "--limit", "3", teacher=teacher, log_seconds=0.1)
    assert result.exit_code == 0, result.output
    assert "1 request under way, the oldest for 0 s, 2 waiting for their turn" in result.output


@given(st.lists(st.booleans(), max_size=20))
def test_counts_are_right_however_they_come_and_go(sent: list[bool]) -> None:
    under_way = UnderWay()
    with ExitStack() as stack:
        for is_sent in sent:
            question = stack.enter_context(under_way.question())
            if is_sent:
                question.sent()
        text = under_way.describe()
        assert text.startswith(f"{sum(sent)} request" if any(sent) else "no request")
        waiting = len(sent) - sum(sent)
        assert text.endswith(f", {waiting} waiting for their turn") == (waiting > 0)
    assert under_way.describe() == "no request under way"
