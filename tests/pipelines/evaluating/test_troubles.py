"""Endpoints that fail, kills, budgets: nothing that was answered is lost or paid twice."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.pipelines.commands import ROOT, wait_until
from tests.pipelines.evaluating.judges import (
    COUNTS,
    PRICES,
    ask,
    good_judge,
    product_of,
    summary,
    write_judged_run,
)
from tests.pipelines.labelling.served_teacher import Reply, TroubleMaker


def test_an_answer_that_comes_too_late(tmp_path: Path) -> None:
    run = write_judged_run(tmp_path)
    release = threading.Event()

    def one_hangs(request: dict[str, Any], _: int) -> Reply:
        if product_of(request) == 2:
            release.wait(60)
        return good_judge(request)

    with TroubleMaker(one_hangs) as server:
        result = ask(run, server.url, "--json", keys=("timeout_seconds=2", "max_retries=0"))
        release.set()
    assert result.exit_code == 3, result.output
    assert summary(result)["judge"]["unanswered"] == {"timeout": ["p2"]}


def test_a_judge_that_declines_leaves_the_product_undecided(tmp_path: Path) -> None:
    run = write_judged_run(tmp_path)

    def prude(request: dict[str, Any], _: int) -> Reply:
        return Reply("I can't.", finish="content_filter") if product_of(request) == 0 else good_judge(request)

    with TroubleMaker(prude) as server:
        found = summary(ask(run, server.url, "--json"))["judge"]
    assert len(server.requests) == 6, "it is not asked to think better of it"
    assert [each["product_id"] for each in found["undecided"]] == ["p0", "p0"]
    assert found["undecided"][0]["reason"].startswith("the judge declined")


def test_an_endpoint_that_is_gone_stops_the_judge_and_the_same_command_continues(tmp_path: Path) -> None:
    run = write_judged_run(tmp_path, times=5)

    def gone(request: dict[str, Any], number: int) -> Reply:
        return good_judge(request) if number <= 4 else Reply({"error": {"message": "gone"}}, status=500)

    with TroubleMaker(gone) as server:
        result = ask(run, server.url, keys=("max_retries=0", "max_concurrency=1"))
        assert result.exit_code == 1
        assert "10 products in a row got no answer" in result.stderr
        assert "Run the same command again to continue." in result.stderr
        server.behaviour = good_judge
        server.requests.clear()
        assert ask(run, server.url).exit_code == 0
    assert len(server.requests) == 30 - 4


def test_a_budget_holds_over_all_sessions(tmp_path: Path) -> None:
    run = write_judged_run(tmp_path)
    # An answer costs $0.002, and is reserved with the most that it could cost.
    keys = (*PRICES, "max_output_tokens=20", "max_concurrency=1")
    with TroubleMaker(good_judge) as server:
        first = ask(run, server.url, keys=(*keys, "max_cost_usd=0.025"))
        assert first.exit_code == 4, first.output
        assert "judge.max_cost_usd: $" in first.stderr
        assert "with a larger budget continues" in first.stderr
        asked = len(server.requests)
        assert 0 < asked < 6
        again = ask(run, server.url, keys=(*keys, "max_cost_usd=0.025"))
        assert (again.exit_code, len(server.requests)) == (4, asked), "what was spent before counts"
        assert ask(run, server.url, keys=(*keys, "max_cost_usd=1")).exit_code == 0
        assert len(server.requests) == 6


def test_products_of_one_text_and_the_same_answers_are_one_question(tmp_path: Path) -> None:
    run = write_judged_run(tmp_path, texts=["Acme coffee 0"] * 20)
    keys = (*PRICES, "max_concurrency=8")

    def slow(request: dict[str, Any], number: int) -> Reply:
        time.sleep(0.2)
        return good_judge(request)

    with TroubleMaker(slow) as server:
        first = summary(ask(run, server.url, "--json", keys=keys))["judge"]
        again = summary(ask(run, server.url, "--json", keys=keys))["judge"]
    assert len(server.requests) == 1
    assert (first["num_products"], first["classes"]["correct"]) == (20, 40)
    assert first["usage"] == first["paid"] == again["usage"]
    assert first["usage"]["requests"] == 1


def test_a_killed_judge_pays_once(tmp_path: Path) -> None:
    run = write_judged_run(tmp_path, times=5)
    killed = threading.Event()

    def held(request: dict[str, Any], number: int) -> Reply:
        if number > 12:
            killed.wait(600)
        return good_judge(request)

    kept = Path(run) / "judge-answers.jsonl"
    with TroubleMaker(held) as server:
        options = ["--judge-set", "model=m", "--judge-set", "timeout_seconds=600", "--judge-set", "max_concurrency=3"]
        command = [sys.executable, "-m", "pipelines.cli", "evaluate", run, "--judge", server.url, *options]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            wait_until(lambda: (kept.exists() and kept.read_bytes().count(b"\n") >= 12) or process.poll() is not None)
            assert process.poll() is None, process.communicate()[0]
            second = ask(run, server.url)
            assert (second.exit_code, "is being written by another process" in second.stderr) == (2, True)
        finally:
            process.kill()
            process.wait()
            killed.set()
        before = list(map(product_of, server.requests[:12]))
        with kept.open("ab") as file:
            file.write(b'{"key": "half a li')  # what a kill in the midst of a write leaves
        server.requests.clear()
        result = ask(run, server.url, "--json")
    assert result.exit_code == 0, result.output
    assert sorted([*before, *map(product_of, server.requests)]) == list(range(30)), "none twice, none left out"
    assert summary(result)["judge"]["classes"] == {name: 5 * number for name, number in COUNTS.items()}
