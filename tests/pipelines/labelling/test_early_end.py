"""What ends a labelling while questions are under way: no paid answer is lost, and nothing new is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hpd_core import Record
from pipelines.labelling.openai_teacher import OpenAITeacher
from pipelines.labelling.teachers import TeacherVerdict
from tests.pipelines.commands import wait_until
from tests.pipelines.labelling.labellings import Labelling, totals
from tests.pipelines.labelling.served_teacher import INSTRUCTION, Reply, TroubleMaker, right_answer


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What became of each product, as soon as the job hears of it: an answer that waits for that is surely later."""
    label, found = OpenAITeacher.label, []

    async def telling(teacher: OpenAITeacher, records: Sequence[Record]) -> list[TeacherVerdict]:
        outcome = "the end"
        try:
            verdicts = await label(teacher, records)
            outcome = verdicts[0].reason or "labelled"
            return verdicts
        finally:
            found.append(outcome)

    monkeypatch.setattr(OpenAITeacher, "label", telling)
    return found


def test_a_key_that_runs_out_loses_no_answer_under_way(labelling: Labelling, heard: list[str]) -> None:
    """Of three at a time one is answered, and told no at its next question, while the others are being answered."""

    def behave(request: dict[str, Any], number: int) -> Reply:
        if number == 4:
            return Reply({"error": {"message": "the key has run out"}}, 401)
        if number > 1:
            wait_until(lambda: "the end" in heard)
        return right_answer(request)

    with TroubleMaker(behave) as server:
        result = labelling.ask(server.url, "--json", teacher={"max_concurrency": 3, "instruction": INSTRUCTION})
        assert result.exit_code == 1, result.output
        assert "answers HTTP 401: " in result.stderr
        assert (len(labelling.labelled()), len(server.requests)) == (3, 4)
    with TroubleMaker(right_answer) as server:
        teacher = {"max_concurrency": 3, "instruction": INSTRUCTION}
        again = labelling.ask(server.url, "--json", teacher=teacher)
    assert (again.exit_code, totals(again)["labelled"], len(server.requests)) == (0, 6, 3)
