"""A run is judged by a server that speaks the protocol: classes, LLM-F1, agreement, and what it cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.evaluating.questions import CLASSES
from tests.pipelines.evaluating.judges import (
    COUNTS,
    PRICES,
    PRODUCTS,
    ask,
    good_judge,
    judged,
    product_of,
    summary,
    verdict,
    write_gold,
    write_judged_run,
)
from tests.pipelines.labelling.served_teacher import Reply, TroubleMaker


def test_classes_and_the_llm_f1_of_a_run(tmp_path: Path) -> None:
    run = write_judged_run(tmp_path)
    with TroubleMaker(good_judge) as server:
        result = ask(run, server.url, "--json", keys=PRICES)
    assert result.exit_code == 0, result.output
    found = summary(result)["judge"]
    assert found["classes"] == COUNTS
    # (6 + 1) / (6 + 1 + 1 + 2) and (6 + 1) / (6 + 1 + 2 + 2).
    rates = {name: found["rates"][name]["value"] for name in ("precision", "recall", "f1")}
    assert rates == pytest.approx({"precision": 0.7, "recall": 7 / 11, "f1": 14 / 21})
    assert found["rates"]["f1"]["low"] < 14 / 21 < found["rates"]["f1"]["high"]
    assert (found["num_products"], found["num_answers"], found["num_failed"]) == (6, 12, 1)
    assert (
        found["usage"]
        == found["paid"]
        == {
            "requests": 6,
            "input_tokens": 600,
            "output_tokens": 60,
            "cost_usd": pytest.approx((600 * 10 + 60 * 100) / 1e6),
        }
    )
    by_attribute = {each["attribute"]: each["classes"] for each in found["by_attribute"]}
    assert by_attribute["Brand"] == dict(zip(CLASSES, (4, 0, 1, 1, 0), strict=True))
    kept = json.loads((Path(run) / "judge.json").read_text())
    assert {each["product_id"]: each["classes"] for each in kept["verdicts"]} == {
        f"p{number}": classes for number, (_, _, classes) in enumerate(PRODUCTS)
    }
    assert "LLM-F1 0.667 [" in result.stdout
    assert "(95%, over products, too narrow: of 6 products alone)" in result.stdout
    assert "6 answers, 600 tokens read, 60 written, $0.0120" in result.stdout


def test_what_was_answered_is_never_paid_again(tmp_path: Path) -> None:
    run = write_judged_run(tmp_path)
    with TroubleMaker(good_judge) as server:
        first = summary(ask(run, server.url, "--json", "--limit", 2, keys=PRICES))
        assert (first["num_products"], first["num_drawn"], len(server.requests)) == (6, 2, 2)
        second = summary(ask(run, server.url, "--json", keys=PRICES))
        assert len(server.requests) == 6, "the larger draw holds the smaller one"
        assert (second["judge"]["usage"]["requests"], second["judge"]["paid"]["requests"]) == (6, 4)
        # Another address is the same model; other prices are other dollars. Another model is asked anew.
        assert ask(run, "http://localhost:1/v1", "--json", keys=PRICES).exit_code == 0
        dearer = summary(ask(run, server.url, "--json", keys=(PRICES[0], "price_per_million_output_tokens=1000")))
        assert dearer["judge"]["usage"]["cost_usd"] == pytest.approx((600 * 10 + 60 * 1000) / 1e6)
        assert dearer["judge"]["paid"]["requests"] == 0
        assert len(server.requests) == 6
        assert ask(run, server.url, model="other").exit_code == 0
        assert len(server.requests) == 12
        elsewhere = tmp_path / "answers" / "kept.jsonl"
        assert ask(run, server.url, "--judge-cache", elsewhere, "--out", tmp_path / "out.json").exit_code == 0
        assert len(server.requests) == 18
    assert len(elsewhere.read_text().splitlines()) == 6
    assert json.loads((tmp_path / "out.json").read_text())["judge"]["classes"] == COUNTS


def test_an_answer_that_is_no_class_is_asked_for_once_more_and_then_undecided_by_name(tmp_path: Path) -> None:
    run = write_judged_run(tmp_path)

    def odd(request: dict[str, Any], _: int) -> Reply:
        number, is_again = product_of(request), len(request["messages"]) > 1
        if number == 0:  # mends it when asked again
            return judged(verdict(request) if is_again else verdict(request, Roast="partially correct"))
        if number == 1:  # never: a value cannot be missing
            return judged(verdict(request, Brand="missing"))
        if number == 2:  # says nothing of one at all, then something else
            return Reply("I would rather not." if is_again else json.dumps({"brand": "Correct."}))
        return good_judge(request)

    with TroubleMaker(odd) as server:
        result = ask(run, server.url, "--json")
    assert result.exit_code == 0, result.output
    found = summary(result)["judge"]
    assert len(server.requests) == 6 + 3
    reminders = {
        product_of(each): each["messages"][-1]["content"] for each in server.requests if len(each["messages"]) > 1
    }
    assert "'Roast' is 'partially correct', which is no class" in reminders[0]
    assert "'Brand' has a value, which cannot be 'missing'" in reminders[1]
    assert "'Roast' has no class" in reminders[2]
    undecided = {(each["product_id"], each["attribute"]): each["reason"] for each in found["undecided"]}
    assert set(undecided) == {("p1", "Brand"), ("p2", "Roast")}
    assert undecided["p1", "Brand"] == "has a value, which cannot be 'missing'"
    assert sum(found["classes"].values()) == 12 - 2
    assert found["classes"]["correct"] == COUNTS["correct"] - 1
    assert "undecided: p1, Coffee, Brand: has a value" in result.stdout
    kept = {
        each["product_id"]: each["classes"] for each in json.loads((Path(run) / "judge.json").read_text())["verdicts"]
    }
    assert kept["p2"] == {"Brand": "correct", "Roast": None}
    # The same answers are read again, and nobody is asked.
    assert summary(ask(run, "http://localhost:1/v1", "--json"))["judge"]["undecided"] == found["undecided"]


def test_a_judge_beside_gold(tmp_path: Path) -> None:
    run, gold = write_judged_run(tmp_path, times=2), write_gold(tmp_path)
    with TroubleMaker(good_judge) as strict:
        result = ask(run, strict.url, "--json", "--gold", gold)
    assert result.exit_code == 0, result.output
    found = summary(result)
    # Of the twelve products, those that gold labels.
    assert (found["num_products"], len(strict.requests)) == (6, 6)
    assert (found["exact"]["num_answers"], found["exact"]["share"]["value"]) == (12, 1.0)
    assert found["exact"]["kappa"] == pytest.approx(1)
    assert json.loads(result.stdout.splitlines()[-1])["num_products"] == 6, "the evaluation stands beside"
    assert "With exact match, right or wrong: 12 answers, 100.0% alike" in result.stdout
