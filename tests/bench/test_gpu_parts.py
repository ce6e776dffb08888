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

from bench.gpu import exactness, kernels, plan, summary
from bench.gpu.estimate import DIMENSIONS, Card, ModelFacts, activation_numbers, estimate, step_seconds
from bench.gpu.kernels import Kernels, kind_of
from bench.gpu.loaded import Loaded, model_shape
from bench.gpu.parts import kinds_of_steps, run_part
from bench.gpu.profile import stretch
from bench.gpu.supervisor import Settings
from bench.gpu.vllm import run_vllm
from bench.random_model import SHAPES, random_model
from bench.speed.ceilings import rows_of_large_steps
from bench.workloads.made_up import make_workload
from pipelines.errors import UsageError
from tests.core.pretended_gpu import pretended_gpu
from tests.pipelines.commands import ROOT
from tests.tables import table
from tests.tiny_model import build_tokenizer

# The plan


def test_the_default_plan_is_made_of_parts_that_are_there() -> None:
    everything = plan.parts(None, has_vllm=True, has_bitsandbytes=True, rehearsal=False)
    assert [part.name for part in everything] == list(plan.DEFAULT)
    assert set(plan.SHAPES.values()) == set(SHAPES)
    without = plan.parts(None, has_vllm=False, has_bitsandbytes=False, rehearsal=False)
    assert {part.name for part in everything} - {part.name for part in without} == {
        *("8b:vllm", "1.7b:vllm", "0.6b:vllm", "8b:tree+nf4"),
    }
    assert sum(part.seconds for part in without) + 25 * len({part.process for part in without}) < 480, "eight minutes"


@table("name", plan.WORKLOADS)
def test_its_workloads_are_the_benchmarks(name: str) -> None:
    assert len(make_workload(name, build_tokenizer(), 30, 2).records) >= 2


def test_vllm_and_every_type_of_weights_have_a_process_of_their_own() -> None:
    names = ["8b:tree", "8b:titles:floor", "8b:tree+fp8", "8b:vllm", "1.7b:tree", "gemm", "exact"]
    assert [plan.parse(name).process for name in names] == [
        *("8b, bf16", "8b, bf16", "8b, fp8", "8b, vllm", "1.7b, bf16", "card", "card"),
    ]


# Steps


def test_large_steps_are_those_of_half_of_the_largest_ones_tokens() -> None:
    steps = [(0.4, 1000), (0.1, 10), (0.3, 900), (0.2, 500), (0.01, 499)]
    assert rows_of_large_steps([tokens for _, tokens in steps]) == 900
    found = kinds_of_steps(steps)
    assert found["large_steps"] == {"count": 3, "tokens": 900, "ms": 300.0, "seconds": pytest.approx(0.9)}
    assert found["small_steps"] == {"count": 2, "tokens": 254, "ms": 55.0, "seconds": pytest.approx(0.11)}
    assert "small_steps" not in kinds_of_steps(steps[:1])


@table(
    ("loads", "tokens", "expected"),
    [
        # Of the stretches that feed nearly the most, the one in the middle.
        ([5, *[100] * 20, *[3] * 11], None, (7, 8)),
        ([100], None, (0, 1)),
        ([90, 16, 16, 16, 16, 8, 16], 16, (2, 3)),
        ([90, *[16] * 30], 16, (2, 8)),
        ([90, 16, 8], 16, (1, 1)),
    ],
)
def test_the_stretch_that_is_profiled(loads: list[int], tokens: int | None, expected: tuple[int, int]) -> None:
    assert stretch(loads, tokens) == expected


# Kernels


@table(
    ("name", "kind"),
    [
        ("nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNN", kernels.PRODUCTS),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", kernels.PRODUCTS),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128>", kernels.PRODUCTS),
        ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80", kernels.ATTENTION),
        ("attend_kernel", kernels.ATTENTION),
        ("_store_kernel", kernels.STORING),
        ("void at::native::index_put_kernel_impl<at::native::OpaqueType<2>>", kernels.STORING),
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", kernels.BETWEEN),
        ("_swiglu_kernel", kernels.BETWEEN),
        ("_choose_kernel", kernels.CHOOSING),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, ArgMaxOps>>", kernels.CHOOSING),
        ("void at::native::index_elementwise_kernel<128, 4>", kernels.INDEXING),
        ("Memcpy DtoH (Device -> Pinned)", kernels.TO_HOST),
        ("Memcpy HtoD (Pinned -> Device)", kernels.TO_HOST),
        ("Memcpy DtoD (Device -> Device)", kernels.COPIES),
        ("Memset (Device)", kernels.COPIES),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add>", kernels.REST),
    ],
)
def test_a_kernel_is_of_its_kind(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def event(category: str, name: str, start: float, duration: float) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration}


def test_a_trace_is_counted_by_step_and_layer() -> None:
    """Two steps of a model of three layers: two products a layer, one of which runs beside a copy, and one outside."""
    events = [event("kernel", "nvjet", 1000.0 * step + 100 * number, 60) for step in range(2) for number in range(7)]
    events += [event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 1000.0 * step + 30, 100) for step in range(2)]
    events += [event("cuda_runtime", "cudaLaunchKernel", 0, 5)] * 14 + [
        event("cuda_runtime", "cudaMemcpyAsync", 0, 5)
    ] * 2
    events += [event("cuda_runtime", "cudaEventRecord", 0, 5), {"ph": "M", "name": "process_name"}]
    found = Kernels.of_trace(events, 2, 3)
    assert found.kinds == {
        kernels.PRODUCTS: (pytest.approx(0.42), 7.0),
        kernels.TO_HOST: (pytest.approx(0.1), 1.0),
    }
    assert list(found.kinds) == [kernels.PRODUCTS, kernels.TO_HOST]
    assert (found.count, found.of_a_layer, found.outside, found.calls) == (8, 2, 2, 8)
    # From 0 to 160 without a gap, as the copy goes from 30 to 130; then five of 60.
    assert found.busy_ms == pytest.approx(0.16 + 5 * 0.06)
    assert found.calls_by_name == {"cudaLaunchKernel": 7, "cudaMemcpyAsync": 1, "cudaEventRecord": 0.5}
    assert not found.are_pretended
    table = found.table(1.0)
    assert (
        "busy 0.5 of 1.0 ms, idle 54%; 8 kernels and copies (2 a layer, 2 outside), 8 launches by the host" in table[0]
    )
    assert table[2].split() == ["matrix", "products", "0.42", "7", "81%"]


# Ratios


def row(part: str, kind: str, rate: float, **facts: Any) -> dict[str, Any]:
    shared = {"part": part, "kind": kind, "shape": "8b", "workload": "listings", "options": [], "quantization": None}
    return shared | {"products_per_second": rate, "seconds": 1000 / rate, "records": 1000} | facts


def test_a_row_is_compared_with_rivals_of_its_model_and_with_yardsticks_of_its_weights() -> None:
    fp8: dict[str, Any] = {"options": ["fp8"], "quantization": "fp8"}
    rows = [
        row("8b:tree", "tree", 10, tokens=100, flop=2e15),
        row("8b:tree", "tree", 100, tokens=100, flop=2e15),  # again: the latest counts
        row("8b:tree+short-keys", "tree", 125, tokens=80, options=["short-keys"]),
        row("8b:tree+fp8", "tree", 160, tokens=100, **fp8),
        row("8b:floor", "floor", 125, tokens=100),
        row("8b:floor+fp8", "floor", 200, tokens=100, **fp8),
        row("8b:vllm", "vllm", 80, name="vLLM AR", asked="vLLM AR"),
        row("8b:vllm", "vllm", 50, name="vLLM fan-out", asked="vLLM fan-out"),
        row("8b:vllm", "vllm", 400, name="titles, vLLM AR", asked="vLLM AR", workload="titles"),
        row("8b:titles:tree", "tree", 800, tokens=50, workload="titles"),
        row("1.7b:tree", "tree", 300, tokens=100, shape="1.7b"),
        row("8b:generate", "generate", 8),
    ]
    found = {item["part"]: item for item in summary.rates(rows)}
    assert found["8b:tree"] | {"seconds": 0} == {
        "part": "8b:tree",
        "products_per_second": 100,
        "seconds": 0,
        "records": 1000,
        "tokens": 100,
        "x vLLM": pytest.approx(1.25),
        "x fan-out": pytest.approx(2.0),
        "x generate": pytest.approx(12.5),
        "of floor": pytest.approx(0.8),
        "tflops": pytest.approx(200),
    }
    # 80 of the floor's 100 tokens in 8 ms for its 8.
    assert found["8b:tree+short-keys"]["of floor"] == pytest.approx(0.8)
    assert found["8b:tree+fp8"]["of floor"] == pytest.approx(0.8)
    assert found["8b:tree+fp8"]["x vLLM"] == pytest.approx(2.0)
    assert found["8b:titles:tree"]["x vLLM"] == pytest.approx(2.0)
    assert found["8b:floor"]["x vLLM"] == pytest.approx(125 / 80)
    assert not {"x vLLM", "of floor", "x generate"} & found["1.7b:tree"].keys()
    bf16_alone = [row for row in rows if row["part"] != "8b:floor+fp8"]
    assert not any("of floor" in item for item in summary.rates(bf16_alone) if item["part"] == "8b:tree+fp8")
    lines = summary.table(rows)
    assert lines[0].split("  ")[0] == ""
    assert len(lines) == 1 + len(found)
    assert next(line for line in lines if line.startswith("8b:tree ")).split()[1:] == [
        *("100.0", "10.00", "1.25", "2.00", "12.5", "80%", "200"),
    ]


def test_small_steps_and_single_products_stand_below_the_table() -> None:
    rows = [
        {"part": "8b:small-steps", "kind": "small-steps", "name": "16 tokens", "ms": 7.25},
        {"part": "8b:small-steps", "kind": "small-steps", "name": "64 tokens", "ms": 8.0},
        {"part": "8b:single", "kind": "single", "name": "tree", "median_ms": 91.0},
    ]
    said: list[str] = []
    found = summary.report(rows, said.append)
    assert said == ["8b:small-steps, ms: 16 tokens 7.2, 64 tokens 8.0", "8b:single, ms: tree 91.0"]
    assert found["latencies"]["8b:small-steps"] == {"16 tokens": 7.25, "64 tokens": 8.0}


# The estimate

FACTS = ModelFacts(
    layer_parameters=7_000_000_000, head_parameters=600_000_000, weight_bytes=16_000_000_000, layers=36, hidden=4096,
    intermediate=12_288, heads=32, kv_heads=8, head_size=128, context=300.0, launches=300.0,
)  # fmt: skip
H200 = Card("H200", 783e12, 4.28e12, 10e-6)


def test_the_formula_of_a_step_is_the_sum_that_it_says() -> None:
    # A large step is made of products: 16,223 tokens of the 8B shape took 292 ms for them, 397 in all.
    products = 2 * (7e9 + 0.2 * 6e8) * 16_223 / 783e12
    attention = 4 * 36 * 32 * 128 * 300 * 16_223 / (783e12 / 3)
    traffic = 2 * activation_numbers(FACTS) * 16_223 / 4.28e12
    assert activation_numbers(FACTS) == 36 * (8 * 4096 + 2 * 48 * 128 + 3 * 12_288)
    assert step_seconds(H200, FACTS, 16_223, 0.2) == pytest.approx(products + attention + traffic)
    assert 0.29 < step_seconds(H200, FACTS, 16_223, 0.2) < 0.397
    # A small one reads the weights; one of a small model waits for launches.
    assert step_seconds(H200, FACTS, 16, 1.0) == pytest.approx(16e9 / 4.28e12, rel=0.05)
    slow = Card("slow host", 783e12, 4.28e12, 100e-6)
    assert step_seconds(slow, FACTS, 16, 1.0) == 300 * 100e-6


def test_an_estimate_scales_what_was_measured() -> None:
    measured = {
        "records": 1000, "seconds": 8.0, "tokens": 320_000, "logits": 64_000, "steps": [[400.0, 16_000]] * 20,
    }  # fmt: skip
    rate, ratio = estimate(measured, H200, H200, FACTS)
    assert rate == pytest.approx(125), "on the same card it is the measurement"
    assert ratio == pytest.approx(8.0 / (20 * step_seconds(H200, FACTS, 16_000, 0.2)))
    half = Card("half", H200.flops / 2, H200.bytes_per_second / 2, H200.launch_seconds)
    assert estimate(measured, H200, half, FACTS)[0] == pytest.approx(62.5)


def test_an_estimate_is_made_of_every_tree_in_bf16_where_the_card_was_measured() -> None:
    facts: dict[str, Any] = {
        "layer_parameters": 7_000_000_000,
        "head_parameters": 600_000_000,
        "weight_bytes": 16_000_000_000,
        "dimensions": {name: model_shape("8b", False)[name] for name in DIMENSIONS},
    }
    steps = {"tokens": 160_000, "logits": 32_000, "steps": [[400.0, 16_000]] * 10}
    rows = [
        row("8b:tree", "tree", 125, **facts, **steps),
        row("8b:tree+fp8", "tree", 200, **(facts | steps | {"options": ["fp8"], "quantization": "fp8"})),
    ]
    assert summary.estimates(rows) == [], "without the card nothing is known"
    card = {"part": "gemm", "kind": "gemm", "device": "H200", "bf16_flops": 783e12, "bytes_per_second": 4.28e12}
    [found] = summary.estimates([*rows, card | {"launch_seconds": 1e-5}])
    assert found["part"] == "8b:tree"
    # An L40S has about three tenths of the products and a sixth of the bandwidth.
    assert 125 * 0.15 < found["products_per_second"] < 125 * 0.32
    said: list[str] = []
    summary.report([*rows, card | {"launch_seconds": 1e-5}], said.append)
    assert any("An estimate for an L40S, which was not measured" in line for line in said)


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
    settings = Settings("cuda", False, 4, "none", None, ".")
    assert exactness._problems(tests, cut, codes, settings) == problems


# On a GPU


@pytest.fixture
def on_a_pretended_gpu(tmp_path: Path) -> Iterator[Loaded]:
    tokenizer = build_tokenizer()
    model = random_model(model_shape("0.6b", True), tokenizer, "cpu")
    transformers.AutoModelForCausalLM.from_config(model.config)  # see `pretended_gpu`
    settings = Settings("cuda", True, 6, "none", None, str(tmp_path))
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


def test_fp8_on_a_card_without_it_is_refused_with_the_reason(
    tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.gpu.loaded.fp8.why_not", lambda device, dtype: "an A100 has no products in FP8")
    settings = Settings("cpu", True, 4, str(tiny_model_dir), None, str(tmp_path))
    with pytest.raises(UsageError, match=r"^FP8 cannot be had: an A100 has no products in FP8$"):
        Loaded.of_shape(plan.parse("8b:tree+fp8"), settings, print)


# vLLM

VLLM = """
import json
from types import SimpleNamespace
__version__ = "0.0"
class SamplingParams:
    def __init__(self, **options):
        self.limit = options["max_tokens"]
class LLM:
    def __init__(self, model, **options):
        config = json.load(open(model + "/config.json"))
        assert config["architectures"] == ["Qwen3ForCausalLM"] and config["hidden_size"] == 64
        assert options["load_format"] == "dummy" and options["max_num_seqs"] == 1024
    def reset_prefix_cache(self):
        return True
    def generate(self, prompts, parameters, use_tqdm):
        assert len(prompts) == len(parameters)
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=[1] * each.limit, finish_reason="length")])
                for each in parameters]
"""


def test_vllm_is_asked_for_both_workloads_with_weights_that_it_makes_itself(
    tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").write_text(VLLM)
    (tmp_path / "vllm/sampling_params.py").write_text("StructuredOutputsParams = None\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    settings = Settings("cpu", True, 5, str(tiny_model_dir), sys.executable, str(tmp_path))
    found = list(run_vllm(plan.parse("8b:vllm"), settings, lambda _: None))
    assert [(row["workload"], row["name"], row["asked"]) for row in found] == [
        ("listings", "vLLM AR", "vLLM AR"),
        ("listings", "vLLM fan-out", "vLLM fan-out"),
        ("titles", "titles, vLLM AR", "vLLM AR"),
        ("titles", "titles, vLLM fan-out", "vLLM fan-out"),
    ]
    assert all(row["records"] == 5 and row["version"] == "0.0" for row in found)
    [titles] = list(run_vllm(plan.parse("8b:titles:vllm"), settings, lambda _: None))[:1]
    assert (titles["workload"], titles["name"]) == ("titles", "vLLM AR")
