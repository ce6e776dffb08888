"""A real model as teacher: behind `transformers serve`, and the model itself."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from pipelines.config.schema_file import parse_schemas
from pipelines.label import app
from pipelines.quality.gold import GoldValue, read_gold
from tests.pipelines.commands import ROOT, wait_until
from tests.pipelines.conftest import SCHEMAS, products
from tests.pipelines.labelling.labellings import PRICES, Labelling, totals
from tests.pipelines.labelling.served_teacher import INSTRUCTION, TroubleMaker


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
        command = [sys.executable, "-m", "pipelines.cli", "label", "--config", str(config)]
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
