"""The benchmark on a tiny model: everybody does the work it is timed for. Speed itself is no test."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner, Result

from bench.benchmark import app
from bench.speed import ceilings
from bench.speed.ceilings import CompiledDense, Floor, Work, best_shape, run_dense
from bench.speed.contenders import EngineRuns
from bench.speed.profiling import ATTENTION, BOOKKEEPING, CHOOSING, HEAD, LINEAR, REST, profile
from bench.workloads.workload import Workload, branch_prompts
from hpd_core.attention.dispatch import ATTENTION_NAME, packed_attention
from hpd_core.config import EngineConfig
from hpd_core.layers.native import NativeLayers
from hpd_core.layout import visible
from hpd_core.models import loading, steering
from tests.core.families import build_tiled_model
from tests.core.helpers import decode, random_case, random_endings, random_ids
from tests.core.native import layers_at_once, needs_tiles
from tests.core.pretended_gpu import pretended_gpu
from tests.pipelines.commands import ROOT
from tests.pipelines.conftest import Workplace, products
from tests.tables import table
from tests.tiny_model import answering_model, answering_tokenizer

NUM_RECORDS = 9
RIVALS = ROOT / ".venv-rivals/bin/python"
# Of one of the tiny model's two layers: keys and values; everything else.
CACHED_WEIGHTS, OTHER_WEIGHTS = 2 * 64 * 32, 2 * 64 * 64 + 3 * 64 * 128
LINEAR_WEIGHTS = 2 * (CACHED_WEIGHTS + OTHER_WEIGHTS)


@pytest.fixture(scope="module")
def model() -> Any:
    model = answering_model(answering_tokenizer())
    steering.attach(model)  # whatever ran before: `own_attention` gives our attention back
    return model


def run(workplace: Workplace, *arguments: str) -> Result:
    gold = workplace.folder / "gold.jsonl"
    if not gold.exists():
        lines = []
        for row in products(NUM_RECORDS):
            values = {"Brand": ["Velor"], "Colour": ["red"]} if row["category"] == "Shoes" else {"Weight": None}
            lines.append(json.dumps({"product_id": row["id"], "category": row["category"], "values": values}))
        gold.write_text("\n".join(lines) + "\n", encoding="utf-8")
    config = str(workplace.write_config())
    return CliRunner().invoke(app, ["--config", config, "--gold", str(gold), "--repeats", "1", *arguments])


def expected_tokens(workplace: Workplace, **settings: Any) -> int:
    """Every category's prefix once, what stands behind it, and all of each value that is written but its last token."""
    job = workplace.config()
    tokenizer = loading.load_tokenizer(job.model, job.engine)
    workload = Workload.of_gold(tokenizer, job, str(workplace.folder / "gold.jsonl"), None)
    config = job.engine.model_copy(update=settings)
    layouts = [item.layout for item in workload.prompts(loading.load_model(job.model, job.engine).config, config)]
    prefixes = {layout.token_ids[: layout.num_prefix_tokens].tobytes(): layout.num_prefix_tokens for layout in layouts}
    own = sum(layout.num_tokens - layout.num_prefix_tokens for layout in layouts)
    written = workload.own_lengths if config.layout == "tree" else workload.lengths
    assert sum(map(sum, workload.own_lengths)) < sum(map(sum, workload.lengths))
    decoded = sum(length - 1 for lengths in written for length in lengths)
    return sum(prefixes.values()) + own + decoded


def test_every_contender_runs_and_is_compared(workplace: Workplace) -> None:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    result = run(workplace, "--set", "engine.share_text=false")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout.strip().splitlines()[-1])
    layouts = {"stacked J=1", "stacked J=6", "tree"}
    assert set(facts["seconds"]) == {"transformers generate", "naive padded HPD", "ceiling", "floor", *layouts}
    assert facts["records"] == NUM_RECORDS
    assert set(facts["tokens"]) == set(facts["steps"]) == layouts
    assert facts["tokens"] == {
        "stacked J=1": expected_tokens(workplace, layout="stacked", stack_size=1),
        "stacked J=6": expected_tokens(workplace, layout="stacked", stack_size=6),
        "tree": expected_tokens(workplace, layout="tree"),
    }
    for yardstick in ("ceiling", "floor"):
        needed = facts["seconds"][yardstick][0]
        assert facts["efficiency"][yardstick]["tree"] == pytest.approx(needed / facts["seconds"]["tree"][0])
    own = ("--only", "tree, no text shared", "--only", "tree, both ways")
    apart = json.loads(run(workplace, *own).stdout.strip().splitlines()[-1])
    assert apart["tokens"] == {
        "tree, no text shared": facts["tokens"]["tree"],
        # What a document's tokens see of those behind them, nobody shares.
        "tree, both ways": facts["tokens"]["tree"],
        "tree": pytest.approx(facts["tokens"]["tree"], rel=0.1),
    }
    assert apart["tokens"]["tree"] < facts["tokens"]["tree"]
    limited = json.loads(run(workplace, "--limit", "3", "--only", "naive padded HPD").stdout.strip().splitlines()[-1])
    assert limited["records"] == 3
    assert set(limited["seconds"]) == {"naive padded HPD", "tree", "ceiling", "floor"}
    assert limited["tokens"]["tree"] < facts["tokens"]["tree"]


@pytest.mark.soak
def test_the_compiled_ceiling_is_a_yardstick_like_the_others(workplace: Workplace) -> None:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    result = run(workplace, "--compiled", "--only", "tree", "--repeats", "2")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout.strip().splitlines()[-1])
    assert set(facts["seconds"]) == {"tree", "ceiling", "ceiling, compiled", "floor"}
    first, second = facts["seconds"]["ceiling, compiled"]
    assert facts["efficiency"]["ceiling, compiled"]["tree"] == pytest.approx(
        (first + second) / sum(facts["seconds"]["tree"])
    )
    compile_seconds = int(facts["notes"]["ceiling, compiled"].removeprefix("compiled in ").split()[0])
    assert max(first, second) < max(1, compile_seconds), "compiling is not counted"


def test_compiled_batches_are_counted_by_the_tokens_that_are_asked_for(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(ceilings, "seconds_of", lambda run: (run(), 3.0)[1])
    seen: list[Any] = []
    handle = model.register_forward_pre_hook(lambda _, __, given: seen.append(given), with_kwargs=True)
    with steering.own_attention(model):
        dense = CompiledDense(model, Work(100, 25), (4, 16))
        assert dense.compile_seconds is None
        assert dense.seconds(Work(96, 24)) == pytest.approx(3.0 * 96 / 128), "two batches of 64 tokens"
    handle.remove()
    assert dense.compile_seconds == 3.0
    assert [given["input_ids"].shape for given in seen] == [(4, 16)] * 3
    assert seen[0]["logits_to_keep"].tolist() == [0, 1, 2, 3]


@pytest.mark.full
@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory."), MemoryError()])
def test_a_rival_that_does_not_fit_is_named_and_the_others_go_on(
    error: Exception, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hungry(*_: Any) -> None:
        raise error

    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    monkeypatch.setattr("bench.speed.contenders.run_naive_hpd", hungry)
    result = run(workplace, "--repeats", "2", "--batch-size", "7")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout.strip().splitlines()[-1])
    assert facts["out_of_memory"] == ["naive padded HPD"]
    assert "naive padded HPD: out of memory, with batches of 7 (--batch-size)." in result.stdout
    assert set(facts["seconds"]) == {
        "transformers generate", "stacked J=1", "stacked J=6", "tree", "ceiling", "floor",
    }  # fmt: skip
    assert {len(seconds) for seconds in facts["seconds"].values()} == {2}


@pytest.mark.full
def test_a_fault_of_a_rival_is_no_lack_of_memory(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*_: Any) -> None:
        raise RuntimeError("shapes do not match")

    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    monkeypatch.setattr("bench.speed.contenders.run_naive_hpd", faulty)
    assert isinstance(run(workplace).exception, RuntimeError)


def test_a_profile_has_every_part_and_leaves_nothing_behind(workplace: Workplace) -> None:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    threads = torch.get_num_threads()
    result = run(workplace, "--profile")
    assert result.exit_code == 0, result.output
    seconds = json.loads(result.stdout.splitlines()[-1])["seconds"]
    assert set(seconds) == {LINEAR, HEAD, ATTENTION, REST, CHOOSING, BOOKKEEPING}
    assert min(seconds.values()) >= 0
    assert transformers.AttentionInterface()[ATTENTION_NAME] is packed_attention
    assert torch.get_num_threads() == threads


@needs_tiles
def test_a_profile_looks_into_layers_that_are_one_call() -> None:
    """Into attention and linear layers of the call, and the choice of tokens in the last product."""
    model = build_tiled_model("llama")
    rng = np.random.default_rng(0)
    cases = [random_case(rng, "tree", [random_ids(rng, 9, 14)], branches=4, k_max=6) for _ in range(20)]
    run_layers = NativeLayers.run

    def run() -> None:
        decode(model, cases, random_endings(rng), EngineConfig())

    with layers_at_once() as calls:
        before = time.thread_time()
        seconds = profile(model, run)
        whole = time.thread_time() - before
    assert calls
    assert set(seconds) == {LINEAR, HEAD, ATTENTION, REST, CHOOSING, BOOKKEEPING}
    assert min(seconds.values()) > 0
    assert sum(seconds.values()) == pytest.approx(whole, rel=0.2)
    assert NativeLayers.run is run_layers


def test_a_profile_is_of_one_run_of_a_warm_engine(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    runs: list[Any] = []
    run_once = EngineRuns._run
    monkeypatch.setattr(
        EngineRuns, "_run", lambda self, decoder, *work: runs.append(decoder) or run_once(self, decoder, *work)
    )

    def counting(model: Any, engine: Any) -> dict[str, float]:
        before = len(runs)
        seconds = profile(model, engine)
        assert before > 0
        assert len(runs) == before + 1
        assert runs[-1] is runs[0]
        return seconds

    monkeypatch.setattr("bench.benchmark.profile", counting)
    result = run(workplace, "--profile")
    assert result.exit_code == 0, result.output


@pytest.mark.full
@pytest.mark.parametrize("options", [pytest.param(["--all"], marks=pytest.mark.soak), ["--profile"]])
def test_on_a_gpu_everybody_keeps_to_it(options: list[str], workplace: Workplace) -> None:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    loading.load_model(str(workplace.model), workplace.config().engine)  # see `pretended_gpu`
    with pretended_gpu() as gpu:
        result = run(workplace, "--set", "engine.device=cuda", *options)
    assert result.exit_code == 0, result.output
    measuring = "profiling.py" if options == ["--profile"] else "ceilings.py"
    assert any(measuring in place for place in gpu.waits), "who measures must wait for the device"


def test_what_cannot_be_measured_is_an_error(workplace: Workplace) -> None:
    workplace.write_parquet("a.parquet", products(2))
    (workplace.folder / "gold.jsonl").write_text('{"product_id": "x", "category": "Shoes", "values": {}}\n')
    result = run(workplace)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: no record of the job has an answer in ")


def test_a_contender_that_nobody_knows_is_an_error(workplace: Workplace) -> None:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    result = run(workplace, "--only", "generate")
    assert result.exit_code == 2
    assert "Error: --only 'generate': there are 'transformers generate', " in result.stderr


@table("shape", [(1, 16), (8, 64), (3, 50)])
@table("work", [Work(1000, 230), Work(64, 1), Work(130, 130)])
def test_the_ceiling_forwards_what_it_says(model: Any, work: Work, shape: tuple[int, int]) -> None:
    with steering.own_attention(model), FlopCounterMode(display=False) as counter:
        done = run_dense(model, work, shape)
    assert work.num_tokens <= done.num_tokens < work.num_tokens + shape[1]
    # Rounded to a position per row.
    assert done.num_logits == pytest.approx(work.num_logits * done.num_tokens / work.num_tokens, abs=shape[0])
    head = model.lm_head.weight.numel()
    products = counter.get_flop_counts()["Global"][torch.ops.aten.mm]
    assert products == 2 * (done.num_tokens * LINEAR_WEIGHTS + done.num_logits * head)


def test_the_floor_is_every_matrix_product_that_is_needed_once(model: Any) -> None:
    work = Work(5000, 700)
    floor = Floor(model, 800)
    with FlopCounterMode(display=False) as counter:
        floor.run(work)
    of_all = LINEAR_WEIGHTS - OTHER_WEIGHTS  # nobody attends to what comes behind the last layer's keys and values
    of_some = OTHER_WEIGHTS + model.lm_head.weight.numel()
    expected = 2 * (work.num_tokens * of_all + work.num_logits * of_some)
    assert counter.get_total_flops() == expected


def test_the_floor_of_a_model_that_names_its_layers_otherwise_is_all_of_them() -> None:
    sizes: dict[str, Any] = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
    other = transformers.GPTBigCodeForCausalLM(transformers.GPTBigCodeConfig(**sizes))
    weights = sum(part.weight.numel() for part in other.modules() if isinstance(part, torch.nn.Linear))
    head = other.lm_head.weight.numel()
    work = Work(300, 70)
    floor = Floor(other, 64)
    with FlopCounterMode(display=False) as counter:
        floor.run(work)
    assert counter.get_total_flops() == 2 * (work.num_tokens * (weights - head) + work.num_logits * head)


@table(("exponent", "best"), [(0.5, (64, 16)), (1.5, (1, 8))])
def test_the_best_shape_forwards_most_tokens_a_second(
    model: Any, monkeypatch: pytest.MonkeyPatch, exponent: float, best: tuple[int, int]
) -> None:
    """By a clock that forwards move: how fast a machine is at a tiny model's says little."""
    now = 0.0

    def take_time(module: Any, given: Any, options: dict[str, Any]) -> None:
        nonlocal now
        now += float(options["input_ids"].numel() ** exponent)

    monkeypatch.setattr(ceilings, "time", SimpleNamespace(perf_counter=lambda: now))
    handle = model.register_forward_pre_hook(take_time, with_kwargs=True)
    try:
        with steering.own_attention(model):
            rate, shape = best_shape(model, Work(400, 40), [(1, 8), (64, 16)])
    finally:
        handle.remove()
    num_tokens = shape[0] * shape[1]
    assert (shape, rate) == (best, pytest.approx(num_tokens / num_tokens**exponent))


@pytest.mark.parametrize(
    ("python", "reason"),
    [("/nowhere/python", "--vllm /nowhere/python: "), (sys.executable, "vLLM has ended:\n  ")],
)
def test_vllm_that_does_not_start_is_an_error(workplace: Workplace, python: str, reason: str) -> None:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    result = run(workplace, "--vllm", python)
    assert result.exit_code == 2
    assert f"Error: {reason}" in result.stderr
    assert python != sys.executable or "No module named 'vllm'" in result.stderr


@pytest.mark.full
def test_the_requests_of_a_fan_out_are_the_prompts_of_tree(workplace: Workplace) -> None:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    run(workplace, "--limit", "1")
    job = workplace.config()
    tokenizer = loading.load_tokenizer(job.model, job.engine)
    workload = Workload.of_gold(tokenizer, job, str(workplace.folder / "gold.jsonl"), None)
    for item in workload.forced(loading.load_model(job.model, job.engine).config, job.engine):
        prompts = branch_prompts(item.layout)
        assert len(prompts) == len(item.lengths)
        for prompt, end in zip(prompts, item.layout.ends, strict=True):
            # What an attribute's last key token sees, in order, is its prompt.
            seen = visible(*(torch.from_numpy(part) for part in (
                item.layout.scopes[end : end + 1], item.layout.positions[end : end + 1],
                item.layout.scopes, item.layout.lasts, item.layout.positions,
            )))  # fmt: skip
            assert prompt == item.layout.token_ids[seen.numpy()].tolist()


@pytest.mark.skipif(not RIVALS.exists(), reason="no vLLM here; `make rivals` installs it")
def test_vllm_does_the_same_work(workplace: Workplace) -> None:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    # The tiny model's heads are too small for vLLM.
    result = run(workplace, "--vllm", str(RIVALS), "--set", "model=smollm2", "--set", "engine.dtype=bfloat16")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout.strip().splitlines()[-1])
    assert {"vLLM AR", "vLLM fan-out"} < set(facts["seconds"])
    assert facts["vllm"]["block_size"] == 32
    if Path("/proc/self/clear_refs").exists():
        assert facts["peak_bytes"]["vLLM AR"] > 2**20
