"""The program that measures a GPU, rehearsed on the CPU: its parts run, and none takes the others along."""

from __future__ import annotations

import json
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner, Result

from bench.gpu import plan
from bench.measure_gpu import app
from bench.pack_gpu import needed
from tests.tables import table

SECONDS_TO_BE_READY = 30.0
"""Seconds from the start of a process to its first part."""


def rehearse(out: Path, parts: str, tokenizer: Path, *options: str) -> Result:
    arguments = [str(out), "--rehearse", "--parts", parts, "--tokenizer", str(tokenizer), "--records", "6", *options]
    return CliRunner().invoke(app, arguments)


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def facts(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


def workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())]


def test_a_part_that_hangs_or_dies_or_fails_does_not_take_the_others_along(
    tmp_path: Path, tiny_model_dir: Path
) -> None:
    out = tmp_path / "out"
    result = rehearse(out, "hang,die,fail,gemm,8b:tree,8b:floor", tiny_model_dir)
    assert result.exit_code == 1, result.output
    found = facts(result)
    outcomes = {item["part"]: item["outcome"] for item in found["parts"]}
    assert outcomes == {
        "hang": "too long",
        "die": "died",
        "fail": "failed",
        "gemm": "ok",
        "8b:tree": "ok",
        "8b:floor": "ok",
    }
    hanging = next(item for item in found["parts"] if item["part"] == "hang")
    assert plan.parse("hang").limit <= hanging["seconds"] < 3 * plan.parse("hang").limit + 20
    assert "_go_wrong" in result.output, "where it hung is told"
    assert f"killed by {signal.SIGSEGV.name}" in result.output
    assert "RuntimeError: as a part fails" in result.output
    assert not workers()
    assert [row["part"] for row in rows(out)] == ["gemm", "8b:tree", "8b:floor"]
    tree, floor = rows(out)[1:]
    assert tree["records"] == 6
    assert tree["products_per_second"] == pytest.approx(6 / tree["seconds"])
    assert sum(tokens for _, tokens in tree["steps"]) == tree["tokens"] == floor["tokens"]
    assert floor["rows"] == tree["large_steps"]["tokens"]
    [rated] = [rate for rate in found["rates"] if rate["part"] == "8b:tree"]
    assert rated["of floor"] == pytest.approx(floor["seconds"] / tree["seconds"])
    # Measured later into the same folder, it stands in the same table.
    again = rehearse(out, "8b:titles:tree+short-keys", tiny_model_dir)
    assert again.exit_code == 0, again.output
    assert [rate["part"] for rate in facts(again)["rates"]] == ["8b:tree", "8b:floor", "8b:titles:tree+short-keys"]


def test_a_call_of_a_plan_takes_its_time_and_no_more() -> None:
    for name in ("call1", "call2"):
        parts = plan.parts(None, name, has_vllm=True, rehearsal=False)
        # vLLM's seconds have its start in them.
        ours = [part for part in parts if part.kind != plan.VLLM]
        processes = sum(one.process != before.process for before, one in pairwise([plan.parse("gemm"), *ours]))
        assert sum(part.seconds for part in parts) + processes * SECONDS_TO_BE_READY <= plan.PLANNED_SECONDS
    every = [name for names in plan.PLANS.values() for name in names]
    assert {plan.parse(name).kind for name in every} == {*plan.OF_A_MODEL, *plan.OF_THE_CARD}


def test_what_a_measurement_imports_is_packed() -> None:
    found = needed()
    assert {"pydantic", "pydantic-core", "babel", "jsonschema-rs", "llguidance", "transformers", "hypothesis"} <= found
    assert not found & {"ray", "pyarrow", "duckdb", "hpd"}


@pytest.mark.full
@pytest.mark.parametrize(
    "parts",
    [
        "8b:ceiling,8b:generate,8b:single,8b:small-steps",
        "1.7b:profile",
        "0.6b:tree+fp8,0.6b:floor+fp8",
    ],
)
def test_every_part_runs(parts: str, tmp_path: Path, tiny_model_dir: Path) -> None:
    result = rehearse(tmp_path, parts, tiny_model_dir)
    assert result.exit_code == 0, result.output
    assert list(dict.fromkeys(row["part"] for row in rows(tmp_path))) == parts.split(",")


@table(
    ("parts", "said"),
    [
        ("8b:tre", "--parts '8b:tre': nothing is called 'tre'; there are tree, generate, vllm"),
        ("tree", "--parts 'tree': 'tree' needs a model in front, as in 8b:tree"),
        ("7b:tree", "--parts '7b:tree': no model '7b'; there are 8b, 1.7b, 0.6b"),
        ("8b:prose:tree", "--parts '8b:prose:tree': no workload 'prose'; there are listings, titles"),
        ("8b:tree+fast", "--parts '8b:tree+fast': no option 'fast'"),
        ("gemm+fp8", "--parts 'gemm+fp8': 'gemm' takes no options"),
        ("8b:tree@0", "--parts '8b:tree@0': a part is called like 8b:tree"),
        ("8b:vllm", "--parts '8b:vllm' needs --vllm"),
    ],
)
def test_a_part_that_nobody_knows_is_an_error_before_anything_runs(parts: str, said: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [str(tmp_path / "out"), "--parts", parts])
    assert result.exit_code == 2
    assert f"Error: {said}" in result.output
    assert not (tmp_path / "out").exists()
