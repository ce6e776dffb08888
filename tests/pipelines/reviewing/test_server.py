"""The review's server: real processes, real requests, several reviewers, kills, and strangers. 2 s a start."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipelines.store.corrections import read_verdicts, settle
from pipelines.store.folders import Folder
from pipelines.store.verdicts import AnswerKey
from tests.pipelines.reporting.made_runs import HOSTILE, Answer
from tests.pipelines.reviewing.made_runs import coffee, key_of, reviewable_run
from tests.pipelines.reviewing.served import Server, serving
from tests.tables import table


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return reviewable_run(tmp_path, [[coffee(number) for number in range(6)], [coffee(6), coffee(7)]])


def test_two_reviewers_at_once_share_the_answers_and_agree_on_some(run: Path) -> None:
    asked: dict[str, list[AnswerKey]] = {"Ada": [], "Bob": []}

    def review(server: Server, name: str) -> None:
        while (answer := server.next(name)) is not None:
            asked[name].append(AnswerKey(**answer["key"]))
            assert "problem" not in server.say(name, answer["key"], "accept" if name == "Ada" else "absent")

    with serving(run, "--overlap", "0.3") as server:
        threads = [threading.Thread(target=review, args=(server, name)) for name in asked]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        _, state, _ = server.ask("state", {"reviewer": "Ada"})
    times = Counter(asked["Ada"] + asked["Bob"])
    assert len(times) == 8 * 4
    assert all(len(set(keys)) == len(keys) for keys in asked.values()), "nobody is asked twice"
    twice = [key for key, number in times.items() if number == 2]
    assert 1 < len(twice) < 24
    assert (state["waiting"], state["reviewed"], state["mine"]) == (0, 32, len(asked["Ada"]))
    assert state["agreement"] == {"pairs": len(twice), "share": 0.0, "kappa": 0.0}
    found = settle(read_verdicts(Folder(str(run))))
    assert {key for key, each in found.items() if each.is_disputed} == set(twice)


def test_killed_in_the_midst_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    said: dict[str, tuple[AnswerKey, str]] = {}
    unsure: list[tuple[str, dict[str, Any]]] = []

    def review(server: Server, name: str) -> None:
        for number in range(1000):
            id_ = uuid.uuid4().hex
            try:
                answer = server.next(name, attribute="Brand")
                if answer is None:
                    return
                unsure.append((id_, answer["key"]))
                assert server.say(name, answer["key"], "correct", f"{name} {number}", id=id_)["items"]
                unsure.remove((id_, answer["key"]))
                said[id_] = AnswerKey(**answer["key"]), f"{name} {number}"
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                return

    run = reviewable_run(tmp_path, [[coffee(number) for number in range(40)]])
    for _ in range(2):
        with serving(run) as server:
            threads = [threading.Thread(target=review, args=(server, name)) for name in ("Ada", "Bob")]
            for thread in threads:
                thread.start()
            before = len(said)
            while len(said) < before + 4 and any(thread.is_alive() for thread in threads):
                time.sleep(0.005)
            server.process.kill()
            for thread in threads:
                thread.join()
        # What was cut off by the kill, as the page says it again.
        with serving(run) as server:
            for id_, key in unsure:
                assert server.say("Ada", key, "correct", "again", id=id_)["items"]
            unsure.clear()
    found = read_verdicts(Folder(str(run)))
    assert len({verdict.id for verdict in found}) == len(found)
    by_id = {verdict.id: verdict for verdict in found}
    for id_, (key, item) in said.items():
        assert (by_id[id_].key, by_id[id_].items) == (key, (item,))
    assert len(said) >= 8
    reviewed = {verdict.key for verdict in found}
    with serving(run) as server:
        while (answer := server.next("Eve", attribute="Brand")) is not None:
            key = AnswerKey(**answer["key"])
            assert key not in reviewed, "it was answered before the kill"
            server.say("Eve", answer["key"], "skip")


@pytest.fixture(scope="module")
def stays(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One server for all who only look, or are refused."""
    hostile = [
        coffee(number, Brand=Answer(text, 0.1), Notes=Answer([text, "b"], 0.2)) for number, text in enumerate(HOSTILE)
    ]
    run = reviewable_run(tmp_path_factory.mktemp("stays"), [[*hostile, coffee(90, Weight=Answer("5", 0.1, "invalid"))]])
    with serving(run) as server:
        yield run, server


def test_without_the_secret_there_is_nothing(stays: tuple[Path, Server]) -> None:
    _, server = stays
    root = "/".join(server.address.split("/")[:3])
    for path in ("/", "/review.js", "/docs", "/openapi.json", f"/{'x' * 32}/", f"/{'x' * 32}/next", "/../etc/passwd"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{root}{path}", timeout=60)
        assert caught.value.code == 404
    assert len(server.address.split("/")[3]) >= 32


@table(
    ("headers", "question", "status"),
    [
        ({"Origin": "https://evil.example"}, {"reviewer": "Ada"}, 403),
        ({"Origin": "null"}, {"reviewer": "Ada"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, {"reviewer": "Ada"}, 403),
        ({"Content-Type": "text/plain"}, {"reviewer": "Ada"}, 403),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"reviewer=Ada", 403),
        ({}, b"x" * 1_000_001, 403),
        ({}, {"reviewer": ""}, 422),
        ({}, {"reviewer": "x" * 81}, 422),
        ({}, {"reviewer": "Ada", "more": 1}, 422),
        ({}, b'{"reviewer": "half \\ud800"}', 422),
        ({}, b"nonsense", 422),
        ({}, b"[" * 100_000, 400),
    ],
)
def test_what_no_page_of_ours_sends_is_refused_in_words(
    stays: tuple[Path, Server], headers: dict[str, str], question: Any, status: int
) -> None:
    found, reply, _ = stays[1].ask("next", question, **headers)
    assert found == status
    assert reply["problem"]


def test_the_page_may_run_and_load_nothing_but_its_own(stays: tuple[Path, Server]) -> None:
    with urllib.request.urlopen(stays[1].address, timeout=60) as reply:
        policy, text = reply.headers["Content-Security-Policy"], reply.read().decode()
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "http" not in text, "it names no other place"
    assert "style=" not in text


def test_a_verdict_that_cannot_be_is_refused_and_leaves_no_trace(stays: tuple[Path, Server]) -> None:
    run, server = stays
    weight = {**key_of(run, len(HOSTILE), "Weight")._asdict()}
    assert "no number in g" in server.say("Ada", weight, "correct", "heavy")["problem"]
    assert "no whole value to accept" in server.say("Ada", weight, "accept")["problem"]
    assert "verdict" in server.say("Ada", weight, "praise")["problem"]
    other = {"id": "of-another-text", "reviewer": "Ada", "key": weight, "input_hash": "0" * 16, "verdict": "absent"}
    status, reply, _ = server.ask("say", other)
    assert (status, "another text now" in reply["problem"]) == (422, True)
    assert server.say("Ada", weight, "undo")["problem"]
    assert "no such answer" in server.say("Ada", {**weight, "source_row": 10**6}, "skip")["problem"]
    assert "no such answer" in server.say("Ada", {**weight, "attribute": "Nothing"}, "skip")["problem"]
    assert server.say("Ada", weight, "correct", *["1"] * 101)["problem"]
    assert server.say("Ada", weight, "correct", "x" * 2001)["problem"]
    assert server.ask("undo", {"reviewer": "Ada", "id": "12345678"})[1] == {"key": None}
    assert read_verdicts(Folder(str(run))) == []
