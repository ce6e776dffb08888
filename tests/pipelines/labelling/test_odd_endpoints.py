"""Endpoints that answer in their own way, behind the real client: no answer is lost, no error becomes a verdict."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipelines.labelling.labellings import Labelling, totals
from tests.pipelines.labelling.served_teacher import Reply, TroubleMaker, completion

RIGHT = '{"Brand": "Velor", "Colour": "red", "Sizes": null}'
WRONG = '{"Brand": "Osprey", "Colour": "green", "Sizes": null}'
ONE_TRY = {"max_concurrency": 1, "max_retries": 0, "answer_attempts": 1}


def message(content: Any, finish: str = "stop", **more: Any) -> Reply:
    body = completion("", finish)
    body["choices"][0]["message"] |= {"content": content, **more}
    return Reply(body)


def shoes(labelling: Labelling, count: int) -> None:
    rows = [
        {"id": f"p{number}", "category": "Shoes", "title": f"Velor item {number}. red", "bullets": ["light"]}
        for number in range(count)
    ]
    labelling.workplace.write_jsonl("a.jsonl", rows)


def number_of(request: dict[str, Any]) -> int:
    return int(request["messages"][0]["content"].split("item ")[1].split(".")[0])


USELESS: dict[str, tuple[Reply, str, str]] = {
    "thought until the end": (
        message(None, "length", reasoning_content="Let me think."),
        "cut_off",
        "its thoughts took all of teacher.max_output_tokens: 1024, and it did not come to its answer",
    ),
    "an unclosed thought": (
        Reply(f"<think>First guess {WRONG} but", finish="length"),
        "cut_off",
        "its thoughts took all of teacher.max_output_tokens: 1024, and it did not come to its answer",
    ),
    "thoughts alone": (message("", reasoning="Hm."), "no_completion", "it has thoughts, but no answer"),
    "a form": (
        Reply('{"Brand": "<brand>", "Colour": "..."}'),
        "not_json",
        "its JSON object only shows the form of an answer",
    ),
    "another tool": (
        message(None, "tool_calls", tool_calls=[{"function": {"name": "search", "arguments": '["Velor"]'}}]),
        "not_json",
        "it calls the tool 'search' without the attributes",
    ),
    "a tool without arguments": (
        message(None, "tool_calls", tool_calls=[{"function": {"name": "search"}}]),
        "no_completion",
        "it calls the tool 'search' without the attributes",
    ),
    "cut": (
        Reply('{"Brand": "Velor", "Colour": "r', finish="length"),
        "cut_off",
        "it was cut at teacher.max_output_tokens: 1024 and holds no complete JSON object",
    ),
    "cut behind": (
        Reply(f"{WRONG}\nWait, the title says", finish="length"),
        "cut_off",
        "it was cut at teacher.max_output_tokens: 1024 and holds no complete JSON object",
    ),
    "several": (
        Reply(f"{RIGHT}\n{WRONG}"),
        "several_answers",
        "it holds JSON objects that differ",
    ),
    "refusal": (message(None, refusal="I cannot"), "declined", "the teacher declined to answer"),
    "half a surrogate pair": (message("Sorry \ud83d no JSON"), "not_json", "it holds no complete JSON object"),
    "half of one in thoughts": (message("", reasoning="\ud83d"), "no_completion", "it has thoughts, but no answer"),
    "half of one in a refusal": (message(None, refusal="\ud83d"), "declined", "the teacher declined to answer"),
    "a value with half of one": (
        message('{"Brand": "Velor \ud83d", "\ud83d": 1}'),
        "no_labels",
        "its JSON object has no usable value for any attribute",
    ),
    "a number of 5000 digits": (
        Reply(f'{{"Brand": [{"9" * 5000}, 1]}}'),
        "no_labels",
        "its JSON object has no usable value for any attribute",
    ),
    "10,000 brackets": (Reply('{"a": ' * 10_000), "not_json", "it holds no complete JSON object"),
    "a zero byte": (Reply("\x00{\x00"), "not_json", "it holds no complete JSON object"),
    "10 MB": (Reply('{"a" ' * 2_000_000), "not_json", "it has 10,000,000 characters, too many for an answer"),
    "filtered before": (
        Reply({"error": {"message": "The prompt was filtered", "code": "content_filter"}}, 400),
        "declined",
        "HTTP 400: The prompt was filtered",
    ),
    "filtered in a 200": (
        Reply({"error": {"message": "flagged by \ud83d moderation", "code": 403}}),
        "declined",
        "HTTP 200, but an error inside: flagged by \ufffd moderation",
    ),
}


def test_whatever_one_answer_does_is_one_rejected_product(labelling: Labelling) -> None:
    shoes(labelling, len(USELESS))
    replies = [reply for reply, _, _ in USELESS.values()]
    with TroubleMaker(lambda request, _: replies[number_of(request)]) as server:
        # The second question is answered in the same way; what was answered goes back with it.
        result = labelling.ask(server.url, "--json", teacher={**ONE_TRY, "answer_attempts": 2})
        assert result.exit_code == 3, result.output
        asked = len(server.requests)
        assert labelling.ask(server.url, teacher={**ONE_TRY, "answer_attempts": 2}).exit_code == 3
        assert len(server.requests) == asked
    assert b"\\ud83d" not in labelling.rejected_path.read_bytes()
    lines = {line["product_id"]: line for line in labelling.rejected()}
    for number, (name, (_, reason, words)) in enumerate(USELESS.items()):
        line = lines[f"p{number}"]
        assert (line["reason"], line["message"]) == (reason, words), name


ERRORS: list[tuple[Reply, str]] = [
    (Reply({"error": {"message": "busy", "code": 429}}), "rate_limited"),
    (Reply({"error": {"message": "odd \ud83d", "code": 1302}}), "server_error"),
    (Reply({"object": "error", "message": "no healthy upstream", "code": 503}), "server_error"),
    (Reply({"choices": []}), "server_error"),
    (Reply(b"[1, 2]"), "server_error"),
    (Reply(b""), "server_error"),
    (Reply(b"<html>Sign in</html>", headers={"Content-Type": "text/html"}), "server_error"),
    (Reply('{"Br', finish="error"), "server_error"),
    (Reply({"detail": "\ud83d"}, 500), "server_error"),
    (Reply(b'{"choices": "\xe9', headers={"Content-Type": "application/json; charset=idna"}), "server_error"),
    (Reply(b'{"error": "\xe9"}', 500, {"Content-Type": "application/json; charset=undefined"}), "server_error"),
]


def test_an_error_in_a_200_is_no_verdict(labelling: Labelling) -> None:
    shoes(labelling, len(ERRORS))
    with TroubleMaker(lambda request, _: ERRORS[number_of(request)][0]) as server:
        result = labelling.ask(server.url, "--json", teacher=ONE_TRY, max_consecutive_failures=100)
        assert result.exit_code == 3, result.output
        reasons = {line["product_id"]: line["reason"] for line in labelling.rejected()}
        assert reasons == {f"p{number}": reason for number, (_, reason) in enumerate(ERRORS)}
        assert totals(result)["faults"] == {
            "502 inside of a 200": 7,
            "429 inside of a 200": 1,
            "503 inside of a 200": 1,
            "500": 1,
        }
        server.behaviour = lambda *_: Reply(RIGHT)
        again = labelling.ask(server.url, "--json", teacher=ONE_TRY)
    assert (again.exit_code, totals(again)["asked"]) == (0, len(ERRORS)), "a rerun asks again by itself"


def test_a_redirect_ends_the_run(labelling: Labelling) -> None:
    shoes(labelling, 2)
    with TroubleMaker(lambda *_: Reply(b"", 302, {"Location": "/login"})) as server:
        result = labelling.ask(server.url, teacher=ONE_TRY)
    assert (result.exit_code, len(server.requests)) == (2, 1), result.output
    assert "answers HTTP 302: /login; check teacher.base_url" in result.stderr


@pytest.mark.parametrize("body", [{"error": {"message": "busy", "code": 429}}, {"choices": None}])
def test_an_outage_in_200s_stops_the_run(labelling: Labelling, body: dict[str, Any]) -> None:
    shoes(labelling, 25)
    with TroubleMaker(lambda *_: Reply(body)) as server:
        result = labelling.ask(server.url, teacher=ONE_TRY)
        assert (result.exit_code, len(server.requests)) == (1, 10), result.output
        assert "10 products in a row got no answer, the last one: HTTP 200, but " in result.stderr
        server.behaviour = lambda *_: Reply(RIGHT)
        again = labelling.ask(server.url, "--json", teacher=ONE_TRY)
    assert (again.exit_code, totals(again)["labelled"]) == (0, 25)
