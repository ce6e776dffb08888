"""label.py against real servers: a real model behind `transformers serve`, and one that makes trouble."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from typer.testing import CliRunner, Result

from hpd_core import CategorySchema, Record
from hpd_core.text.template import render_attribute, render_document
from pipelines.config.labelling import OpenAITeacherConfig
from pipelines.label import app
from pipelines.labelling import pacing
from pipelines.labelling.openai_teacher import OpenAITeacher
from pipelines.labelling.pacing import Pace
from pipelines.labelling.teacher_prompts import product_messages
from pipelines.quality.gold import GoldValue, read_gold
from pipelines.schemas.schema_file import parse_schemas
from tests.pipelines.commands import ROOT, wait_until
from tests.pipelines.conftest import SCHEMAS, Workplace, product, products
from tests.pipelines.labelling.served_teacher import (
    INSTRUCTION,
    Reply,
    TroubleMaker,
    right_answer,
    teach_tiny_model,
    transformers_serve,
)
from tests.pipelines.ports import free_ports

PRICES = {"price_per_million_input_tokens": 10, "price_per_million_output_tokens": 100}


class Labelling:
    """A catalog, its schemas and a place for labels."""

    def __init__(self, workplace: Workplace) -> None:
        self.workplace = workplace
        self.output = workplace.folder / "labels.jsonl"
        self.rejected_path = workplace.folder / "labels.jsonl.rejected.jsonl"
        self.manifest_path = workplace.folder / "labels.jsonl.json"

    def config(self, teacher: dict[str, Any], **changes: Any) -> Path:
        document = {key: self.workplace.document()[key] for key in ("input", "schemas")}
        document |= {"output": str(self.output), "teacher": teacher, **changes}
        path = self.workplace.folder / "label.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return path

    def ask(self, url: str, *arguments: str, teacher: dict[str, Any] | None = None, **changes: Any) -> Result:
        # The servers are threads of this process: on a busy machine one may not be run for long.
        settings = {"kind": "openai", "base_url": url, "model": "m", "timeout_seconds": 600, **(teacher or {})}
        return CliRunner().invoke(app, ["--config", str(self.config(settings, **changes)), *arguments])

    def labelled(self) -> list[dict[str, Any]]:
        return read_lines(self.output)

    def rejected(self) -> list[dict[str, Any]]:
        return read_lines(self.rejected_path)

    def manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads(self.manifest_path.read_text())
        return manifest


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def ids(lines: list[dict[str, Any]]) -> list[str]:
    return sorted(line["product_id"] for line in lines)


def totals(result: Result) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer


@pytest.fixture
def labelling(workplace: Workplace) -> Labelling:
    workplace.write_jsonl("a.jsonl", products(6))
    return Labelling(workplace)


# ---- a real model behind a real server


@pytest.fixture(scope="session")
def taught_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    schemas = parse_schemas(SCHEMAS, "schemas")
    config = OpenAITeacherConfig(kind="openai", base_url="http://localhost/v1", model="m", instruction=INSTRUCTION)
    questions: dict[str, list[str]] = {name: [] for name in schemas}
    for row in products(24):
        fields = {"title": row["title"], "bullets": "\n".join(row["bullets"])}
        record = Record(row["id"], row["category"], fields)
        questions[record.category].append(product_messages(config, schemas[record.category], record)[-1]["content"])
    return teach_tiny_model(tmp_path_factory.mktemp("taught-model"), questions)


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with transformers_serve(tmp_path_factory.mktemp("serve") / "log.txt") as url:
        yield url


def test_a_real_model_labels_a_catalog(labelling: Labelling, endpoint: str, taught_model_dir: Path) -> None:
    teacher = {"model": str(taught_model_dir), "instruction": INSTRUCTION, "max_output_tokens": 60, **PRICES}
    result = labelling.ask(endpoint, "--json", teacher={**teacher, "max_concurrency": 2})
    assert result.exit_code == 0, result.output
    gold = {item.product_id: item for item in read_gold(str(labelling.output))}
    assert sorted(gold) == [f"p{number}" for number in range(6)]
    velor, absent = GoldValue((("Velor",),)), GoldValue(())
    assert gold["p0"].values == {"Brand": velor, "Colour": GoldValue((("red",),)), "Sizes": absent}
    assert gold["p1"].values == {"Brand": velor, "Weight": absent}
    line = next(line for line in labelling.labelled() if line["product_id"] == "p2")
    assert line["input"] == {"title": "Velor item 2 red 14", "bullets": "size 2\nlight"}
    assert list(line["input"]) == ["title", "bullets"]
    origin = line["provenance"]
    assert (origin["teacher"], origin["kind"], origin["base_url"]) == (str(taught_model_dir), "openai", endpoint)
    assert origin["schema_hash"] == parse_schemas(SCHEMAS, "")["Shoes"].hash
    assert origin["cost_usd"] == pytest.approx((origin["input_tokens"] * 10 + origin["output_tokens"] * 100) / 1e6)
    manifest, answer = labelling.manifest(), totals(result)
    assert (manifest["status"], manifest["labelled"], manifest["rejected"]) == ("finished", 6, 0)
    assert manifest["values"] == {"value": 9, "absent": 6, "unlabelled": 0}
    assert manifest["input_tokens"] == sum(line["provenance"]["input_tokens"] for line in labelling.labelled())
    assert (
        manifest["cost_usd"]
        == pytest.approx(answer["cost_usd"])
        == pytest.approx(sum(line["provenance"]["cost_usd"] for line in labelling.labelled()), abs=1e-5)
    )
    assert not labelling.rejected_path.exists()

    before = labelling.output.read_bytes()
    again = labelling.ask("http://localhost:1/v1", teacher=teacher)
    assert again.exit_code == 0
    assert "is finished already; nothing was done" in again.stdout
    assert labelling.output.read_bytes() == before


def test_a_real_model_that_answers_rubbish(labelling: Labelling, endpoint: str, tiny_model_dir: Path) -> None:
    teacher = {"model": str(tiny_model_dir), "instruction": INSTRUCTION, "max_output_tokens": 20}
    result = labelling.ask(endpoint, "--limit", "2", "--json", teacher=teacher)
    assert result.exit_code == 3, result.output
    assert totals(result)["rejected_by_reason"] == {"cut_off": 2}
    assert ids(labelling.rejected()) == ["p0", "p1"]
    for line in labelling.rejected():
        assert line["raw"]
        assert line["provenance"]["attempts"] == 2
        assert line["provenance"]["output_tokens"] == 40
        assert line["provenance"]["cost_usd"] is None


def test_killed_and_continued(labelling: Labelling, endpoint: str, taught_model_dir: Path) -> None:
    labelling.workplace.write_jsonl("a.jsonl", products(24))
    asked: Counter[str] = Counter()
    killed = threading.Event()

    def only_some(request: dict[str, Any], number: int) -> None:
        """Behind the tenth, questions wait for the kill: however late it comes, not all are answered."""
        asked[request["messages"][0]["content"].split("item ")[1].split()[0]] += 1
        if number > 10:
            killed.wait(600)

    def num_lines() -> int:
        return labelling.output.read_bytes().count(b"\n") if labelling.output.exists() else 0

    with TroubleMaker(only_some, upstream=endpoint) as server:
        teacher = {"kind": "openai", "base_url": server.url, "model": str(taught_model_dir), "max_concurrency": 2}
        teacher |= {"timeout_seconds": 600}
        config = labelling.config({**teacher, "instruction": INSTRUCTION, "max_output_tokens": 60})
        command = [sys.executable, "pipelines/label.py", "--config", str(config)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            wait_until(lambda: (len(server.requests) == 12 and num_lines() >= 5) or process.poll() is not None)
            assert process.poll() is None, process.communicate()[0]
            second = CliRunner().invoke(app, ["--config", str(config)])
        finally:
            process.kill()
            process.wait()
            killed.set()
        assert second.exit_code == 2
        assert "is being written by another process" in second.stderr
        lines = labelling.output.read_bytes().splitlines(keepends=True)
        kept = [json.loads(line)["product_id"] for line in lines if line.endswith(b"\n")]
        assert 5 <= len(kept) <= 10
        with labelling.output.open("ab") as file:
            file.write(b'{"product_id": "p23", "category": "Cof')  # what a kill in the middle of a write leaves
        asked.clear()

        result = CliRunner().invoke(app, ["--config", str(config), "--json"])
        assert result.exit_code == 0, result.output
        assert f"Continuing {labelling.output}: {len(kept)} labelled" in result.stderr
    assert sorted(asked) == sorted({str(number) for number in range(24)} - {name[1:] for name in kept})
    assert max(asked.values()) == 1
    assert len(read_gold(str(labelling.output))) == 24
    assert (totals(result)["labelled"], totals(result)["asked"]) == (24, 24 - len(kept))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """A tiny model gains nothing from more threads, and a busy machine loses much."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_the_model_itself_as_teacher(labelling: Labelling, taught_model_dir: Path, tiny_model_dir: Path) -> None:
    engine = {"dtype": "float32", "device": "cpu", "max_value_tokens": 8, "prompt": {"instruction": INSTRUCTION}}
    teacher = {"kind": "self", "model": str(taught_model_dir), "engine": engine}
    result = CliRunner().invoke(app, ["--config", str(labelling.config(teacher)), "--json"])
    assert result.exit_code == 0, result.output
    answer = totals(result)
    assert (answer["labelled"], answer["cost_usd"]) == (6, None)
    assert answer["values"] == {"value": 9, "absent": 6, "unlabelled": 0}
    assert len(read_gold(str(labelling.output))) == 6
    for line in labelling.labelled():
        origin = line["provenance"]
        assert (origin["teacher"], origin["kind"], origin["input_tokens"]) == (str(taught_model_dir), "self", None)
        assert origin["output_tokens"] > 0

    untaught = labelling.config({**teacher, "model": str(tiny_model_dir)}, output=str(labelling.output) + "2.jsonl")
    result = CliRunner().invoke(app, ["--config", str(untaught), "--limit", "2", "--json"])
    assert result.exit_code == 3, result.output
    assert totals(result)["rejected_by_reason"] == {"no_labels": 2}


def test_a_model_that_is_not_there(labelling: Labelling) -> None:
    config = labelling.config({"kind": "self", "model": str(labelling.workplace.folder / "nothing")})
    result = CliRunner().invoke(app, ["--config", str(config)])
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: teacher.model: ")
    assert not labelling.output.exists()


# ---- what is asked


def test_the_teacher_reads_what_the_student_will_read(labelling: Labelling) -> None:
    with TroubleMaker(right_answer) as server:
        result = labelling.ask(server.url, teacher={"max_concurrency": 1, "request": {"seed": 7}})
    assert result.exit_code == 0, result.output
    request = server.requests[0]
    shoes: CategorySchema = parse_schemas(SCHEMAS, "")["Shoes"]
    text = request["messages"][0]["content"]
    assert "\n".join(render_attribute(attribute) for attribute in shoes.attributes) in text
    assert render_document({"title": "Velor item 0 red 0", "bullets": "size 0\nlight"}) in text
    assert (request["model"], request["temperature"], request["max_tokens"], request["seed"]) == ("m", 0, 1024, 7)
    assert request["response_format"] == {"type": "json_object"}
    assert server.authorizations == ["Bearer no-key"] * 6


def test_json_schema_mode(labelling: Labelling) -> None:
    settings = {"json_mode": "json_schema", "token_limit_key": "max_completion_tokens", "temperature": None}
    with TroubleMaker(right_answer) as server:
        assert labelling.ask(server.url, "--limit", "1", teacher=settings).exit_code == 0
    (request,) = server.requests
    assert request["max_completion_tokens"] == 1024
    assert not {"max_tokens", "temperature"} & request.keys()
    shape = request["response_format"]["json_schema"]["schema"]
    assert shape["required"] == ["Brand", "Colour", "Sizes"]
    enum = {"type": "string", "enum": ["red", "blue"]}
    assert shape["properties"]["Colour"] == {"anyOf": [enum, {"type": "null"}]}
    several = {"type": "array", "items": {"type": "string"}}
    assert shape["properties"]["Sizes"] == {"anyOf": [several, {"type": "null"}]}


def test_json_mode_is_given_up_where_the_endpoint_refuses_it(labelling: Labelling) -> None:
    def behave(request: dict[str, Any], _: int) -> Reply:
        if "response_format" in request:
            return Reply({"error": {"message": "response_format is not supported"}}, 400)
        return right_answer(request)

    with TroubleMaker(behave) as server:
        result = labelling.ask(server.url, teacher={"max_concurrency": 1})
        assert (result.exit_code, len(server.requests)) == (0, 7), result.output
        settings = {"max_concurrency": 1, "json_mode": "json_object"}
        insisting = labelling.ask(server.url, teacher=settings, output=str(labelling.output.with_name("b.jsonl")))
    assert insisting.exit_code == 2
    assert "the teacher refuses every question: Error code: 400" in insisting.stderr


def test_requests_are_evenly_spaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only waiting moves: when a request is really sent is a matter of the machine, too."""
    now, starts = 100.0, []

    async def wait_for(never: Any, seconds: float) -> None:
        nonlocal now
        never.close()
        now += seconds
        raise TimeoutError

    loop = SimpleNamespace(time=lambda: now)
    clock = SimpleNamespace(get_running_loop=lambda: loop, wait_for=wait_for, Event=asyncio.Event)
    monkeypatch.setattr(pacing, "asyncio", clock)

    async def ask() -> None:
        nonlocal now
        pace = Pace(600)
        for _ in range(4):
            await pace.wait()
            starts.append(now)
        now += 5  # what was not asked then is not asked faster now
        for _ in range(2):
            await pace.wait()
            starts.append(now)

    asyncio.run(ask())
    assert starts == pytest.approx([100, 100.1, 100.2, 100.3, 105.3, 105.4])


def test_pace_and_concurrency(labelling: Labelling, monkeypatch: pytest.MonkeyPatch) -> None:
    def behave(request: dict[str, Any], number: int) -> Reply:
        if number == 2:
            return Reply({"error": {"message": "slow down"}}, 429, {"Retry-After": "0.01"})
        return right_answer(request)

    paced: list[Pace] = []
    wait = Pace.wait

    async def noting(pace: Pace) -> bool:
        paced.append(pace)
        return await wait(pace)

    monkeypatch.setattr(Pace, "wait", noting)
    with TroubleMaker(behave) as server:
        settings = {"requests_per_minute": 600, "max_concurrency": 3}
        result = labelling.ask(server.url, teacher=settings)
    assert result.exit_code == 0, result.output
    assert "1 HTTP 429" in result.stdout
    assert len(server.requests) == 7
    assert len(paced) == 8, "the list of models, too, and retries"
    assert len(set(paced)) == 1
    assert server.most_at_once <= 3

    labelling.output.unlink()
    four_at_once = threading.Barrier(4)

    def together(request: dict[str, Any], number: int) -> Reply:
        if number <= 4:
            four_at_once.wait(600)
            time.sleep(0.2)  # for a fifth, were there one
        return right_answer(request)

    with TroubleMaker(together) as server:
        assert labelling.ask(server.url, teacher={"max_concurrency": 4}).exit_code == 0
    assert server.most_at_once == 4


# ---- trouble


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


@pytest.mark.usefixtures("no_greeting")
def test_a_trickle_of_bytes_is_no_answer(labelling: Labelling, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte comes in time, the answer never does."""
    monkeypatch.setattr("pipelines.labelling.openai_teacher._BACKOFF_SECONDS", 0.5)
    with TroubleMaker(lambda request, _: Reply(right_answer(request).body, trickle=0.1)) as server:
        result = labelling.ask(server.url, "--limit", "1", "--json", teacher={"timeout_seconds": 0.5})
    assert totals(result)["rejected_by_reason"] == {"timeout": 1}


def test_a_teacher_that_goes_away_stops_the_run(labelling: Labelling) -> None:
    def behave(request: dict[str, Any], number: int) -> Reply:
        return right_answer(request) if number <= 2 else Reply({"error": {"message": "down"}}, 503)

    with TroubleMaker(behave) as server:
        settings = {"max_concurrency": 1, "max_retries": 0}
        result = labelling.ask(server.url, teacher=settings, max_consecutive_failures=3)
        assert result.exit_code == 1
        assert "Stopped: 3 products in a row got no answer" in result.stderr
        assert "Run the same command again to continue." in result.stderr
        assert (labelling.manifest()["status"], labelling.manifest()["labelled"]) == ("stopped", 2)
        server.behaviour = right_answer
        again = labelling.ask(server.url, "--json", teacher=settings)
    assert (again.exit_code, totals(again)["labelled"], totals(again)["asked"]) == (0, 6, 4)


RUBBISH: dict[str, tuple[Reply, str]] = {
    "words": (Reply("I cannot do that."), "not_json"),
    "empty": (Reply(""), "no_completion"),
    "cut": (Reply('{"Brand": "Velor", "Col', finish="length"), "cut_off"),
    "strange keys": (Reply('{"Price": 3, "Rating": "good"}'), "no_labels"),
    "no choices": (Reply({"id": "1", "object": "chat.completion", "choices": []}), "no_completion"),
    "null choices": (Reply({"choices": [{"message": None}]}), "no_completion"),
    "a list": (Reply(b"[1, 2]"), "no_completion"),
    "not a completion": (Reply(b"<html>hello</html>", headers={"Content-Type": "text/html"}), "not_json"),
    "broken": (Reply(b'{"choices": ['), "server_error"),
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
        assert len(server.requests) == asked + (reason == "server_error") * 1, "a useless answer is final"
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


def test_problems_are_counted_and_hallucinations_can_be_dropped(labelling: Labelling) -> None:
    values = {"Brand": "Adidas", "Colour": "green", "Weight": 14, "Price": 3}
    with TroubleMaker(lambda *_: Reply(json.dumps(values))) as server:
        result = labelling.ask(server.url, "--limit", "2", "--json")
        assert result.exit_code == 0, result.output
        problems = {"not_in_text": 3, "unknown_key": 4, "missing_key": 1, "not_in_enum": 1}
        assert totals(result)["problems"] == problems
        assert totals(result)["values"] == {"value": 3, "absent": 0, "unlabelled": 2}
        shoe = next(line for line in labelling.labelled() if line["product_id"] == "p0")
        assert (shoe["values"], shoe["provenance"]["not_in_text"]) == ({"Brand": ["Adidas"]}, ["Brand"])
        dropping = labelling.ask(
            server.url,
            "--limit",
            "2",
            "--json",
            require_evidence=True,
            output=str(labelling.output.with_name("b.jsonl")),
        )
    assert dropping.exit_code == 3
    assert totals(dropping)["rejected_by_reason"] == {"no_labels": 2}


def test_a_text_that_the_endpoint_refuses_is_rejected_alone(labelling: Labelling) -> None:
    def behave(request: dict[str, Any], _: int) -> Reply:
        if "item 0" in request["messages"][0]["content"]:
            return Reply({"error": {"message": "maximum context length exceeded"}}, 400)
        return right_answer(request)

    with TroubleMaker(behave) as server:
        result = labelling.ask(server.url, "--json", teacher={"max_concurrency": 1})
    assert (result.exit_code, totals(result)["labelled"]) == (3, 5), result.output
    assert "maximum context length exceeded" in labelling.rejected()[0]["message"]


# ---- money


def test_the_limit_of_cost_is_held_and_can_be_raised(labelling: Labelling) -> None:
    # An answer costs 0.002; before it is asked, up to its limit of output and a token a byte of input are set aside.
    settings = {**PRICES, "max_output_tokens": 10, "max_concurrency": 3, "instruction": INSTRUCTION}
    with TroubleMaker(right_answer) as server:
        result = labelling.ask(server.url, "--json", teacher={**settings, "max_cost_usd": 0.0075})
        assert result.exit_code == 4, result.output
        answer = totals(result)
        assert answer["cost_usd"] <= 0.0075
        assert answer["labelled"] == len(server.requests) < 6
        assert answer["open"] == 6 - answer["labelled"]
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


def test_a_key_that_runs_out_loses_no_answer_under_way(labelling: Labelling) -> None:
    """Of three at a time one is answered, and told no at its next question, while the others are being answered."""
    refused = threading.Event()

    def behave(request: dict[str, Any], number: int) -> Reply:
        if number == 4:
            refused.set()
            return Reply({"error": {"message": "the key has run out"}}, 401)
        if number > 1:
            refused.wait(60)
            time.sleep(0.2)
        return right_answer(request)

    with TroubleMaker(behave) as server:
        result = labelling.ask(server.url, "--json", teacher={"max_concurrency": 3, "instruction": INSTRUCTION})
        assert result.exit_code == 1, result.output
        assert "answers 401" in result.stderr
        assert (len(labelling.labelled()), len(server.requests)) == (3, 4)
    with TroubleMaker(right_answer) as server:
        teacher = {"max_concurrency": 3, "instruction": INSTRUCTION}
        again = labelling.ask(server.url, "--json", teacher=teacher)
    assert (again.exit_code, totals(again)["labelled"], len(server.requests)) == (0, 6, 3)


@pytest.mark.parametrize(("status", "code"), [(401, None), (404, None), (429, "insufficient_quota")])
def test_a_key_that_runs_out_at_a_second_question_keeps_the_first_answer(
    labelling: Labelling, status: int, code: str | None
) -> None:
    def behave(request: dict[str, Any], number: int) -> Reply:
        if number == 1:
            return Reply("No idea.")
        return Reply({"error": {"message": "no more", "code": code}}, status)

    settings = {**PRICES, "max_output_tokens": 10, "max_concurrency": 1, "max_retries": 0}
    with TroubleMaker(behave) as server:
        result = labelling.ask(server.url, "--json", teacher=settings)
        assert (result.exit_code, len(server.requests)) == (1, 2), result.output
    assert "no more" in result.stderr
    (line,) = labelling.rejected()
    assert (line["reason"], line["raw"], line["provenance"]["attempts"]) == ("teacher_ended", "No idea.", 1)
    assert labelling.manifest()["cost_usd"] == pytest.approx(0.002), "the useless answer is paid"
    with TroubleMaker(right_answer) as server:
        again = labelling.ask(server.url, "--json", teacher=settings)
    assert (again.exit_code, totals(again)["labelled"], totals(again)["open"]) == (0, 6, 0)
    assert totals(again)["cost_usd"] == pytest.approx(0.014)


def test_a_wrong_first_answer_loses_none_under_way(labelling: Labelling) -> None:
    """The first of three to come back is a 404: the configuration is wrong, as it seems. The others are paid."""
    refused = threading.Event()

    def behave(request: dict[str, Any], number: int) -> Reply:
        if number == 1:
            refused.set()
            return Reply({"error": {"message": "no such deployment"}}, 404)
        refused.wait(60)
        time.sleep(3)  # the refusal is to arrive first
        return right_answer(request)

    with TroubleMaker(behave) as server:
        result = labelling.ask(server.url, "--json", teacher={"max_concurrency": 3})
        assert result.exit_code == 2, result.output
        assert "no such deployment" in result.stderr
        assert (len(labelling.labelled()), len(server.requests)) == (2, 3)


def test_after_the_end_nothing_new_is_asked(labelling: Labelling) -> None:
    """Whoever waits for its turn, or had a useless answer, sends nothing any more: the end comes at once."""
    refused = threading.Event()

    def behave(request: dict[str, Any], number: int) -> Reply:
        if number == 2:
            refused.set()
            return Reply({"error": {"message": "no such deployment"}}, 404)
        refused.wait(60)
        time.sleep(2)
        return Reply("No idea.")

    with TroubleMaker(behave) as server:
        teacher = {"max_concurrency": 6, "requests_per_minute": 60}
        started = time.monotonic()
        result = labelling.ask(server.url, "--json", teacher=teacher)
        assert (result.exit_code, len(server.requests)) == (2, 2), result.output
        assert time.monotonic() - started < 30
    (line,) = labelling.rejected()
    assert (line["reason"], line["raw"]) == ("teacher_ended", "No idea.")


@pytest.mark.parametrize("is_useful", [True, False])
def test_refusals_before_an_answer_that_was_under_way(labelling: Labelling, is_useful: bool) -> None:
    """The configuration is not wrong, since it answered; the refused ones are rejected, the rest is asked later.

    Behind a useless answer there is a second question; that it is refused, too, does not make the first unanswered.
    """
    refusals = threading.Semaphore(0)

    def behave(request: dict[str, Any], number: int) -> Reply:
        if number > 1:
            refusals.release()
            return Reply({"error": {"message": "too long"}}, 400)
        for _ in range(3):
            refusals.acquire(timeout=60)
        time.sleep(2)
        return right_answer(request) if is_useful else Reply("No idea.")

    with TroubleMaker(behave) as server:
        result = labelling.ask(server.url, "--json", teacher={"max_concurrency": 4})
        assert result.exit_code == 1, result.output
    assert "the teacher refused the first questions: " in result.stderr
    assert len(labelling.labelled()) == is_useful
    assert {line["reason"] for line in labelling.rejected()} == {"refused"}
    assert len(labelling.rejected()) == len(server.requests) - 1
    attempts = sorted((line["provenance"]["attempts"], line["raw"]) for line in labelling.rejected())
    assert attempts[-1] == ((1, "") if is_useful else (2, "No idea."))


def test_every_second_question_refused(labelling: Labelling) -> None:
    """The first answers are paid, so that they are counted; nobody is told that nothing was answered."""

    def behave(request: dict[str, Any], number: int) -> Reply:
        if len(request["messages"]) > len(first_messages):
            return Reply({"error": {"message": "too long"}}, 400)
        return Reply("No idea.")

    first_messages = ["the question"]
    with TroubleMaker(behave) as server:
        result = labelling.ask(server.url, "--json", teacher={**PRICES, "max_concurrency": 2})
    assert result.exit_code == 3, result.output
    assert {(line["reason"], line["raw"]) for line in labelling.rejected()} == {("refused", "No idea.")}
    assert labelling.manifest()["cost_usd"] == pytest.approx(6 * 0.002)


def test_a_wrong_configuration_is_told_where_questions_were_refused_before(labelling: Labelling) -> None:
    """One refusal, a 404, and an answer that was under way: the 404 is the end, and its reason is what is told."""
    came = threading.Semaphore(0)

    def behave(request: dict[str, Any], number: int) -> Reply:
        if number == 1:
            for _ in range(2):
                came.acquire(timeout=60)
            time.sleep(10)
            return right_answer(request)
        if number == 2:
            came.release()
            return Reply({"error": {"message": "too long"}}, 400)
        time.sleep(2)  # the refusal is to arrive first, and the answer last
        came.release()
        return Reply({"error": {"message": "no such deployment"}}, 404)

    with TroubleMaker(behave) as server:
        result = labelling.ask(server.url, "--json", teacher={"max_concurrency": 3})
    assert result.exit_code == 2, result.output
    assert "no such deployment" in result.stderr
    assert "too long" not in result.stderr
    assert len(labelling.labelled()) == 1
    assert [line["reason"] for line in labelling.rejected()] == ["refused"]


def test_a_limit_of_cost_needs_prices_and_usage(labelling: Labelling) -> None:
    with TroubleMaker(lambda request, _: Reply(right_answer(request).body, usage=False)) as server:
        without = labelling.ask(server.url, teacher={"max_cost_usd": 1})
        assert "max_cost_usd needs price_per_million_input_tokens" in without.stderr
        result = labelling.ask(server.url, teacher={"max_cost_usd": 1, **PRICES})
    assert result.exit_code == 1
    assert "does not say how many tokens" in result.stderr


# ---- refused before any work


def test_nobody_there(labelling: Labelling) -> None:
    url = f"http://localhost:{free_ports(1)[0]}/v1"
    result = labelling.ask(url)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: cannot reach {url}: ")
    assert not labelling.output.exists()
    assert not labelling.manifest_path.exists()


def test_a_server_that_is_silent(labelling: Labelling) -> None:
    with TroubleMaker(right_answer) as server:
        server._server.shutdown()  # accepts connections, answers none
        result = labelling.ask(server.url, teacher={"timeout_seconds": 0.5})
        assert result.exit_code == 2
        assert f"{server.url} does not answer within 0.5 s" in result.stderr


@pytest.mark.parametrize("models_status", [200, 401])
def test_a_wrong_key_stops_at_once(labelling: Labelling, monkeypatch: pytest.MonkeyPatch, models_status: int) -> None:
    def behave(*_: Any) -> Reply:
        return Reply({"error": {"message": "Incorrect API key provided: sk-secret-1"}}, 401)

    monkeypatch.setenv("TEACHER_KEY", "sk-secret-1")
    with TroubleMaker(behave, models_status=models_status) as server:
        result = labelling.ask(server.url, teacher={"api_key_env": "TEACHER_KEY", "max_concurrency": 1})
    assert result.exit_code == 2
    assert "answers 401" in result.stderr
    assert "check the key in TEACHER_KEY" in result.stderr
    assert "sk-secret" not in result.output
    assert len(server.requests) == (models_status == 200)
    assert not labelling.labelled()


def test_the_key_is_sent_and_written_nowhere(labelling: Labelling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEACHER_KEY", "sk-secret-1")
    with TroubleMaker(right_answer, models_status=404) as server:
        assert labelling.ask(server.url, teacher={"api_key_env": "TEACHER_KEY"}).exit_code == 0
    assert set(server.authorizations) == {"Bearer sk-secret-1"}
    for path in (labelling.output, labelling.manifest_path):
        assert "sk-secret" not in path.read_text()


def test_an_unknown_model(labelling: Labelling) -> None:
    with TroubleMaker(lambda *_: Reply({"error": {"message": "no such model"}}, 404)) as server:
        result = labelling.ask(server.url)
    assert result.exit_code == 2
    assert "check teacher.base_url and teacher.model ('m')" in result.stderr


def test_no_quota(labelling: Labelling) -> None:
    error = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    with TroubleMaker(lambda *_: Reply(error, 429)) as server:
        result = labelling.ask(server.url, teacher={"max_retries": 0})
    assert result.exit_code == 1
    assert "no quota is left" in result.stderr


@pytest.mark.parametrize(
    ("teacher", "changes", "message"),
    [
        ({"api_key_env": "sk-abc"}, {}, "'teacher': api_key_env is the name of an environment variable"),
        ({"api_key_env": "NOT_SET_ANYWHERE"}, {}, "the environment variable NOT_SET_ANYWHERE is not set"),
        ({"api_key": "sk-abc"}, {}, "unknown key 'teacher.api_key'; did you mean 'teacher.api_key_env'?"),
        ({"base_url": "localhost:8000"}, {}, "base_url must start with http:// or https://"),
        ({"base_url": "http://a:sk-abc@b/v1"}, {}, "base_url must not hold a password"),
        ({"engine": {}}, {}, "unknown key 'teacher.engine'; it belongs to another 'teacher.kind'"),
        ({"kind": "oracle"}, {}, "'teacher': Input tag 'oracle' found using 'kind' does not match"),
        ({"instruction": "no places"}, {}, "instruction must contain {attributes} exactly once"),
        ({"max_retries": -1}, {}, "'teacher.max_retries': Input should be greater than or equal to 0 (got -1)"),
        ({}, {"output": "s3://bucket/labels.jsonl"}, "output must be a local file"),
        ({}, {"output": "labels.parquet"}, "output must end with .jsonl"),
        ({}, {"sampel": 3}, "unknown key 'sampel'; did you mean 'sample'?"),
    ],
)
def test_wrong_configuration(
    labelling: Labelling, teacher: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    result = labelling.ask("http://localhost:1/v1", teacher=teacher, **changes)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "sk-abc" not in result.output


def test_a_changed_configuration_is_refused_and_a_harmless_change_is_not(labelling: Labelling) -> None:
    with TroubleMaker(right_answer) as server:
        assert labelling.ask(server.url, "--limit", "2").exit_code == 0
        for teacher, changes, message in [
            ({"model": "other"}, {}, "teacher.model was 'm', is now 'other'"),
            ({"instruction": INSTRUCTION}, {}, "teacher.instruction was"),
            ({}, {"require_evidence": True}, "require_evidence was False, is now True"),
            ({}, {"sample": 3}, "sample seed was None, is now 0"),
        ]:
            result = labelling.ask(server.url, teacher=teacher, **changes)
            assert result.exit_code == 2
            assert message in result.stderr
            assert "name another output" in result.stderr
        schemas = yaml.safe_load((labelling.workplace.folder / "schemas.yaml").read_text())
        schemas["categories"]["Shoes"].append({"name": "Sole"})
        other = labelling.workplace.folder / "other.yaml"
        other.write_text(yaml.safe_dump(schemas))
        assert "schemas was" in labelling.ask(server.url, schemas=str(other)).stderr
        assert labelling.ask(server.url, teacher={"max_concurrency": 2, "max_retries": 1}).exit_code == 0
        labelling.workplace.write_jsonl("a.jsonl", products(7))
        assert "a.jsonl was" in labelling.ask(server.url).stderr
    assert len(labelling.labelled()) == 6


def test_files_of_somebody_else_are_left_alone(labelling: Labelling) -> None:
    labelling.output.write_text('{"product_id": "p1", "category": "Shoes", "values": {}}\n')
    result = labelling.ask("http://localhost:1/v1")
    assert result.exit_code == 2
    assert f"{labelling.output}, line 1: not written by this command" in result.stderr
    assert len(labelling.labelled()) == 1


# ---- which products


def test_rows_that_are_no_products_are_rejected_unasked(labelling: Labelling) -> None:
    rows = [*products(2), product(2, id="p0"), product(3, id=None), product(4, category="Hats"), "{broken"]
    labelling.workplace.write_jsonl("a.jsonl", rows)
    with TroubleMaker(right_answer) as server:
        result = labelling.ask(server.url, "--json")
        assert (result.exit_code, len(server.requests)) == (3, 2), result.output
        reasons = {"doubled_id": 1, "null_id": 1, "no_schema": 1, "broken_line": 1}
        assert totals(result)["rejected_by_reason"] == reasons
        assert {line["provenance"]["source_row"] for line in labelling.rejected()} == {2, 3, 4, 5}
        again = labelling.ask(server.url, "--retry-rejected")
    assert "nothing was done" in again.stdout
    assert again.exit_code == 3


def test_a_larger_sample_holds_the_smaller_one(labelling: Labelling) -> None:
    labelling.workplace.write_jsonl("a.jsonl", products(50))
    labelling.workplace.write_parquet("b.parquet", products(50, start=50), row_group_size=10)
    with TroubleMaker(right_answer) as server:
        assert labelling.ask(server.url, sample=8, seed=1).exit_code == 0
        small = ids(labelling.labelled())
        assert len(small) == 8
        assert labelling.ask(server.url, sample=20, seed=1).exit_code == 0
        assert len(server.requests) == 20
        large = ids(labelling.labelled())
        assert set(small) < set(large)
        assert any(int(name[1:]) >= 50 for name in large)
        both = labelling.ask(server.url, "--limit", "3", sample=20, seed=1)
    assert "give one of the two" in both.stderr
