"""The limit of cost is held, and can be raised."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipelines.labelling.labellings import PRICES, Labelling, totals
from tests.pipelines.labelling.served_teacher import INSTRUCTION, Reply, TroubleMaker, right_answer


def test_the_limit_of_cost_is_held_and_can_be_raised(labelling: Labelling) -> None:
    # An answer costs 0.002; before it is asked, up to its limit of output and a token a byte of input are set aside.
    settings = {**PRICES, "max_output_tokens": 10, "max_concurrency": 3, "instruction": INSTRUCTION}
    (labelling.workplace.catalog / "old.csv").write_text("id\n")
    with TroubleMaker(right_answer) as server:
        result = labelling.ask(server.url, "--json", teacher={**settings, "max_cost_usd": 0.0075})
        assert result.exit_code == 4, result.output
        answer = totals(result)
        assert answer["cost_usd"] <= 0.0075
        assert answer["labelled"] == len(server.requests) < 6
        assert answer["open"] == 6 - answer["labelled"]
        assert answer["left_out"]["kinds"]["CSV"]["files"] == 1
        assert "left out    1 CSV" in result.stderr
        assert "raise it and run the same command again" in result.stderr.replace("\n", " ")
        assert labelling.manifest()["status"] == "stopped"
        again = labelling.ask(server.url, "--json", teacher={**settings, "max_cost_usd": 1})
    assert (again.exit_code, totals(again)["labelled"], len(server.requests)) == (0, 6, 6)
    assert totals(again)["cost_usd"] == pytest.approx(0.012)


def test_no_money_for_a_second_question_stops_and_is_asked_later(labelling: Labelling) -> None:
    def behave(request: dict[str, Any], number: int) -> Reply:
        return Reply("No idea.") if number == 1 else right_answer(request)

    settings = {**PRICES, "max_output_tokens": 10, "max_concurrency": 1, "instruction": INSTRUCTION}
    with TroubleMaker(behave) as server:
        result = labelling.ask(server.url, "--json", teacher={**settings, "max_cost_usd": 0.004})
        assert result.exit_code == 4, result.output
        answer = totals(result)
        assert (answer["rejected_by_reason"], answer["open"], len(server.requests)) == ({"no_budget": 1}, 6, 1)
        assert answer["cost_usd"] == pytest.approx(0.002), "the useless answer is paid"
        assert labelling.rejected()[0]["raw"] == "No idea."
        again = labelling.ask(server.url, "--json", teacher={**settings, "max_cost_usd": 1})
    assert (again.exit_code, totals(again)["labelled"], totals(again)["open"]) == (0, 6, 0)
    assert totals(again)["cost_usd"] == pytest.approx(0.014)


def test_a_limit_of_cost_needs_prices_and_usage(labelling: Labelling) -> None:
    with TroubleMaker(lambda request, _: Reply(right_answer(request).body, usage=False)) as server:
        without = labelling.ask(server.url, teacher={"max_cost_usd": 1})
        assert "max_cost_usd needs price_per_million_input_tokens" in without.stderr
        result = labelling.ask(server.url, teacher={"max_cost_usd": 1, **PRICES})
    assert result.exit_code == 1
    assert "does not say how many tokens" in result.stderr
