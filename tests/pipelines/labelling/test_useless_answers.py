"""Answers that are useless in whole or in part are asked for again, rejected with their reason and counted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipelines.labelling.labellings import PRICES, Labelling, totals
from tests.pipelines.labelling.served_teacher import Reply, TroubleMaker, right_answer

RUBBISH: dict[str, tuple[Reply, str]] = {
    "words": (Reply("I cannot do that."), "not_json"),
    "empty": (Reply(""), "no_completion"),
    "cut": (Reply('{"Brand": "Velor", "Col', finish="length"), "cut_off"),
    "strange keys": (Reply('{"Price": 3, "Rating": "good"}'), "no_labels"),
    "several": (Reply('[{"Brand": "Velor"}, {"Brand": "Adidas"}]'), "several_answers"),
    "filtered": (Reply("", finish="content_filter"), "declined"),
}


@pytest.mark.parametrize("name", RUBBISH)
def test_rubbish_is_rejected_with_its_reason(labelling: Labelling, name: str) -> None:
    reply, reason = RUBBISH[name]

    def behave(request: dict[str, Any], _: int) -> Reply:
        return reply if "item 4" in request["messages"][0]["content"] else right_answer(request)

    with TroubleMaker(behave) as server:
        result = labelling.ask(server.url, "--json", teacher=PRICES)
        assert result.exit_code == 3, result.output
        assert totals(result)["rejected_by_reason"] == {reason: 1}
        (line,) = labelling.rejected()
        assert (line["product_id"], line["reason"]) == ("p4", reason)
        if isinstance(reply.body, str) and reason != "declined":
            assert line["raw"] == reply.body
            assert line["provenance"]["cost_usd"] == pytest.approx(2 * (100 * 10 + 10 * 100) / 1e6)
        assert len(labelling.labelled()) == 5
        asked = len(server.requests)
        again = labelling.ask(server.url, teacher=PRICES)
        assert again.exit_code == 3
        assert len(server.requests) == asked, "a useless answer is final"
        server.behaviour = right_answer
        last = labelling.ask(server.url, "--retry-rejected", "--json", teacher=PRICES)
    assert (last.exit_code, totals(last)["labelled"], totals(last)["asked"]) == (0, 6, 1)


def test_a_useless_answer_is_asked_for_again(labelling: Labelling) -> None:
    def behave(request: dict[str, Any], number: int) -> Reply:
        return Reply("No idea.") if number == 1 else right_answer(request)

    with TroubleMaker(behave) as server:
        result = labelling.ask(server.url, "--limit", "1", teacher=PRICES)
    assert result.exit_code == 0, result.output
    question, answer, reminder = server.requests[1]["messages"]
    assert question == server.requests[0]["messages"][0]
    assert answer == {"role": "assistant", "content": "No idea."}
    assert "That answer cannot be used: it holds no complete JSON object." in reminder["content"]
    (line,) = labelling.labelled()
    assert (line["provenance"]["attempts"], line["provenance"]["input_tokens"]) == (2, 200)


def test_a_text_that_the_endpoint_refuses_is_rejected_alone(labelling: Labelling) -> None:
    def behave(request: dict[str, Any], _: int) -> Reply:
        if "item 0" in request["messages"][0]["content"]:
            return Reply({"error": {"message": "maximum context length exceeded"}}, 400)
        return right_answer(request)

    with TroubleMaker(behave) as server:
        result = labelling.ask(server.url, "--json", teacher={"max_concurrency": 1})
    assert (result.exit_code, totals(result)["labelled"]) == (3, 5), result.output
    assert "maximum context length exceeded" in labelling.rejected()[0]["message"]
