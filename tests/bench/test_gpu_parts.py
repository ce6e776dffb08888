"""What stands behind the numbers of a GPU measurement: plan, kernels of a trace, ratios, estimate, counted tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import transformers

from bench.gpu import exactness, plan
from bench.gpu.estimate import Card
from bench.gpu.loaded import Loaded, model_shape
from bench.gpu.parts import run_part
from bench.gpu.supervisor import GpuSettings
from bench.random_model import random_model
from tests.core.pretended_gpu import pretended_gpu
from tests.pipelines.commands import ROOT
from tests.tables import table
from tests.tiny_model import build_tokenizer

# The plan


# Steps


# Kernels


# Ratios


def row(part: str, kind: str, rate: float, **facts: Any) -> dict[str, Any]:
    shared = {"part": part, "kind": kind, "shape": "8b", "workload": "listings", "options": [], "quantization": None}
    return shared | {"products_per_second": rate, "seconds": 1000 / rate, "records": 1000} | facts


# The estimate

H200 = Card("H200", 783e12, 4.28e12, 10e-6)


# Exactness


def test_every_test_is_counted_in_one_share_when_it_is_done(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("")
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('n', range(4))\n"
        "def test_right(n): pass\n"
        "def test_wrong(): assert 1 == 2\n"
        "@pytest.mark.skip(reason='no such card')\n"
        "def test_elsewhere(): pass\n"
    )
    (tmp_path / "test_missing.py").write_text("import a_package_of_others\n")
    (tmp_path / "test_broken.py").write_text("import hpd_core.nowhere\n")
    tests: list[dict[str, Any]] = []
    for number in range(2):
        reports = tmp_path / f"{number}.jsonl"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "bench.gpu.pytest_share"]
        subprocess.run(
            [*command, "--continue-on-collection-errors", "-c", os.devnull, "--rootdir", str(tmp_path), str(tmp_path)],
            cwd=ROOT,
            env=os.environ | {"HPD_SHARE_OF_TESTS": f"{number}/2", "HPD_TEST_REPORTS": str(reports)},
            capture_output=True,
            check=False,
        )
        tests += map(json.loads, reports.read_text().splitlines())
    begun = [test["test"] for test in tests if test["outcome"] == "begun"]
    tests = [test for test in tests if test["outcome"] != "begun"]
    assert sorted(begun) == sorted(test["test"] for test in tests if "::" in test["test"])
    assert exactness._not_done([{"test": "hangs", "outcome": "begun"}, *tests]) == ["hangs"]
    outcomes = sorted((test["test"].rpartition("/")[2], test["outcome"]) for test in tests)
    assert outcomes == [
        ("test_broken.py", "failed"),
        ("test_missing.py", "skipped"),
        ("test_some.py::test_elsewhere", "skipped"),
        *((f"test_some.py::test_right[{number}]", "passed") for number in range(4)),
        ("test_some.py::test_wrong", "failed"),
    ]
    reasons = {test["test"].rpartition("/")[2]: test["reason"] for test in tests}
    assert reasons["test_some.py::test_elsewhere"] == "no such card"
    assert reasons["test_some.py::test_wrong"] == "assert 1 == 2"
    assert "No module named 'a_package_of_others'" in reasons["test_missing.py"]


@table(
    ("outcomes", "codes", "cut", "problems"),
    [
        (["passed", "skipped"], [0, 5], [False, False], []),
        (["passed", "failed"], [0, 1], [False, False], ["1 failed"]),
        (["passed"], [0, -9], [False, True], ["1 of 2 processes were not done in time"]),
        (["passed"], [0, 3], [False, False], ["pytest's exit codes are 3"]),
        (["skipped"], [0, 0], [False, False], ["none has passed"]),
    ],
)
def test_what_is_no_proof_of_exactness(
    outcomes: Sequence[str], codes: Sequence[int], cut: Sequence[bool], problems: Sequence[str]
) -> None:
    tests: list[Mapping[str, Any]] = [{"outcome": outcome} for outcome in outcomes]
    settings = GpuSettings("cuda", False, 4, "none", None, ".")
    assert exactness._problems(tests, cut, codes, settings) == problems


# On a GPU


@pytest.fixture
def on_a_pretended_gpu(tmp_path: Path) -> Iterator[Loaded]:
    tokenizer = build_tokenizer()
    model = random_model(model_shape("0.6b", True), tokenizer, "cpu")
    transformers.AutoModelForCausalLM.from_config(model.config)  # see `pretended_gpu`
    settings = GpuSettings("cuda", True, 6, "none", None, str(tmp_path))
    with pretended_gpu():
        yield Loaded(model.to("cuda"), tokenizer, "0.6b", settings, lambda _: None)


@pytest.mark.parametrize("name", ["0.6b:tree", "0.6b:floor", "0.6b:small-steps", "0.6b:single"])
def test_on_a_gpu_parts_keep_to_it(name: str, on_a_pretended_gpu: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor of the host is mixed with one of the device."""
    monkeypatch.setattr("bench.gpu.parts._SINGLE_RECORDS", 2)
    monkeypatch.setattr("bench.gpu.small_steps.SIZES", (1, 32))
    monkeypatch.setattr("bench.gpu.small_steps._STEPS", 4)
    found = list(run_part(on_a_pretended_gpu, plan.parse(name)))
    assert found
    assert {row["device"] for row in found} == {"pretended GPU"}
    if name == "0.6b:small-steps":
        assert [row["tokens"] for row in found] == [1, 32]


# vLLM
