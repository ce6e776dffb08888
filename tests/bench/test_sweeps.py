"""Sweeps, latency, natural answers and memory of the benchmark, on a tiny model. Speed itself is no test."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from typer.testing import CliRunner, Result

from bench.benchmark import app
from bench.rivals import resident_memory
from bench.speed import peak_memory, plots
from bench.speed.contenders import GENERATE, TREE, VLLM_AR, VLLM_FAN_OUT, Run
from bench.speed.latency import PREFIX_KNOWN
from bench.speed.natural_ends import natural_contenders
from bench.speed.peak_memory import measure
from bench.speed.sweeps import Swept, find_sweep, run_sweep
from bench.workloads.made_up import make_workload
from bench.workloads.workload import Workload
from hpd_core import Engine, EngineConfig
from hpd_core.baselines.autoregressive import AutoregressiveBaseline
from hpd_core.models import steering
from hpd_core.text.tokenization import SegmentTokenizer
from pipelines.errors import UsageError
from tests.bench.test_benchmark import RIVALS
from tests.pipelines.commands import wait_until
from tests.pipelines.conftest import Workplace
from tests.tables import table
from tests.tiny_model import answering_model, answering_tokenizer

CONFIG = EngineConfig(dtype="float32", device="cpu", max_value_tokens=6)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model() -> Any:
    model = answering_model(answering_tokenizer())
    steering.attach(model)
    return model


@pytest.fixture(scope="module")
def workload() -> Workload:
    return make_workload("categories", answering_tokenizer(), 6, 12)


def run(workplace: Workplace, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["--config", str(workplace.write_config()), "--repeats", "2", *arguments])


def facts_of(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    facts: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
    return facts


def sweep(name: str, points: list[int], model: Any, workload: Workload, *only: str) -> Swept:
    return run_sweep(find_sweep(name, points), model, workload, CONFIG, 8, 1, only or [TREE], lambda _: None)


def tree_runs(swept: Swept) -> list[Run]:
    return [runs[0] for runs in swept.runs[TREE]]


def num_tokens(swept: Swept) -> list[int]:
    return [run.work.num_tokens for run in tree_runs(swept) if run.work]


def test_a_sweep_prints_and_draws_what_it_found(workplace: Workplace) -> None:
    folder = workplace.folder / "plots"
    arguments = ("--workload", "categories", "--limit", "8", "--sweep", "catalog", "--points", "1,2,4")
    facts = facts_of(run(workplace, *arguments, "--only", TREE, "--out", str(folder)))
    assert facts["points"] == facts["records"] == [2, 4, 8]
    assert [len(rounds) for rounds in facts["seconds"][TREE]] == [2, 2, 2]
    assert facts["tokens"][TREE] == sorted(set(facts["tokens"][TREE]))
    assert all(peak > 0 for peak in facts["peak_bytes"][TREE])
    for rounds, count, cost in zip(facts["seconds"][TREE], [2, 4, 8], facts["medians"][TREE], strict=True):
        assert cost == pytest.approx(1000 * sum(rounds) / 2 / count)
    svg = (folder / "catalog-categories.svg").read_text(encoding="utf-8")
    words = {
        "".join(text.itertext()).strip() for text in ElementTree.fromstring(svg).iter() if text.tag.endswith("text")
    }
    assert {"products", "ms per product", TREE, "2", "4", "8"} <= words
    # Readable on any ground: no ground of its own, the ink the reader's.
    assert "prefers-color-scheme:dark" in svg
    assert "currentColor" in svg
    assert not re.search(r"fill: ?#(fff|000)", svg)


@table(("ground", "ink"), [("#ffffff", plots.INK_ON_LIGHT), ("#0d1117", plots.INK_ON_DARK)])
def test_plots_are_legible_on_light_and_dark(ground: str, ink: str) -> None:
    def luminance(colour: str) -> float:
        shares = [int(colour[first : first + 2], 16) / 255 for first in (1, 3, 5)]
        linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        return sum(factor * part for factor, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    def contrast(colour: str) -> float:
        light, dark = sorted((luminance(colour), luminance(ground)), reverse=True)
        return (light + 0.05) / (dark + 0.05)

    assert contrast(ink) >= 7  # WCAG AAA for text
    assert min(map(contrast, plots.COLOURS)) >= 3  # WCAG for graphics


def test_what_will_not_fit_is_refused_before_anything_runs(model: Any, workload: Workload) -> None:
    said: list[str] = []
    with pytest.raises(UsageError, match="cannot be taken: the document has 3000 tokens"):
        run_sweep(find_sweep("document", [8, 3000]), model, workload, CONFIG, 8, 1, [TREE], said.append)
    assert said == []


def test_documents_grow_by_the_tokens_they_are_said_to_have(model: Any, workload: Workload) -> None:
    short, long = num_tokens(sweep("document", [10, 40], model, workload))
    assert long - short == 30 * len(workload.records)


def test_values_grow_by_the_tokens_they_are_said_to_have(model: Any, workload: Workload) -> None:
    swept = sweep("value", [1, 5], model, workload)
    assert [run.work.num_logits for run in tree_runs(swept) if run.work] == [
        workload.num_values,
        5 * workload.num_values,
    ]


def test_attributes_multiply_the_values(model: Any, workload: Workload) -> None:
    swept = sweep("attributes", [1, 16], model, workload)
    one, sixteen = (run.work.num_logits for run in tree_runs(swept) if run.work)
    assert one == sum(lengths[0] for lengths in workload.own_lengths)
    assert sixteen == 2 * sum(map(sum, workload.own_lengths))


@pytest.mark.full
def test_stacks_and_batches(model: Any, workload: Workload) -> None:
    swept = sweep("stack", [1, 12], model, workload, "stacked J=1", "stacked J=4")
    steps = {name: [runs[0].num_steps for runs in points] for name, points in swept.runs.items()}
    assert set(steps) == {"stacked J=1", "stacked J=4", TREE}
    # One after the other, everybody's steps add up.
    longest = sum(max(lengths) for lengths in workload.own_lengths)
    assert all(alone is not None and together is not None and alone > together for alone, together in steps.values())
    assert steps[TREE][0] is not None
    assert steps[TREE][0] >= longest
    assert steps["stacked J=4"][0] is not None
    assert steps["stacked J=1"][0] is not None
    assert steps["stacked J=4"][0] < steps["stacked J=1"][0]
    assert swept.rates(TREE)[0] == [12 / tree_runs(swept)[0].seconds]


@pytest.mark.full
def test_natural_answers_are_the_engines_own(model: Any, workload: Workload) -> None:
    runs = natural_contenders(model, workload, CONFIG, 4)
    tree = runs[TREE]()
    free = CONFIG.model_copy(update={"constrain_values": False})
    with Engine(model, workload.tokenizer, free) as engine:
        results = engine.extract(workload.records, workload.schemas)
    written = [value.num_tokens for result in results for value in result.values.values()]
    assert tree.num_value_tokens == sum(written)
    assert max(written) <= CONFIG.max_value_tokens


def test_of_natural_answers_of_generate_only_values_count(
    model: Any, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tiny model writes no keys: what it writes is given.
    segments = SegmentTokenizer(workload.tokenizer)
    names = {attribute.name for schema in workload.schemas.values() for attribute in schema.attributes}
    [written] = segments.encode_text(["".join(f'"{name}": "red",\n' for name in sorted(names)) + "}\n"])

    def scripted(self: Any, prompts: list[list[int]], limit: int, metrics: Any) -> list[tuple[list[int], bool]]:
        return [(written, True) for _ in prompts]

    monkeypatch.setattr(AutoregressiveBaseline, "_generate", scripted)
    run = natural_contenders(model, workload, CONFIG, 4)[GENERATE]()
    with steering.own_attention(model), AutoregressiveBaseline(model, workload.tokenizer, CONFIG) as baseline:
        results = baseline.extract(workload.records, workload.schemas)
    raws = [value.raw for result in results for value in result.values.values()]
    assert len(raws) == workload.num_values
    assert all(raw and "red" in raw for raw in raws)
    # Every value and the end of its line; no key, no brace.
    [value] = segments.encode_text([f"{raws[0]}\n"])
    assert run.num_value_tokens == len(raws) * len(value)
    assert run.num_value_tokens < len(written) * len(results)


@pytest.mark.full
def test_natural_answers_are_told_apart(workplace: Workplace) -> None:
    result = run(workplace, "--workload", "categories", "--limit", "6", "--natural", "--only", "stacked J=1")
    facts = facts_of(result)
    assert facts["natural"] is True
    assert set(facts["tokens_per_value"]) == {"stacked J=1", TREE}
    assert all(1 <= length <= 6 for length in facts["tokens_per_value"].values())
    assert set(facts["peak_bytes"]) == {"stacked J=1", TREE}
    assert "the lengths differ" in result.stdout


@pytest.mark.full
def test_single_products_wait_for_themselves_only(workplace: Workplace) -> None:
    facts = facts_of(run(workplace, "--workload", "single", "--limit", "3"))
    found = facts["latency"]
    assert set(found) == {GENERATE, "stacked J=1", TREE, PREFIX_KNOWN}
    assert found[TREE]["median_steps"] == found[PREFIX_KNOWN]["median_steps"] + 1
    assert found[GENERATE]["median_steps"] > 5 * found[TREE]["median_steps"]
    assert all(row["median_ms"] <= row["p90_ms"] for row in found.values())
    assert {len(seconds) for seconds in facts["seconds"].values()} == {2 * 3}


@pytest.mark.skipif(not RIVALS.exists(), reason="no vLLM here; `make rivals` installs it")
def test_vllm_is_asked_about_single_products_too(workplace: Workplace) -> None:
    settings = ("--vllm", str(RIVALS), "--limit", "2", "--set", "model=smollm2", "--set", "engine.max_value_tokens=30")
    found = facts_of(run(workplace, "--workload", "single", *settings))["latency"]
    assert found[VLLM_AR]["median_steps"] == found[GENERATE]["median_steps"]
    # One more of ours is the prefix's, which vLLM computes with the first request.
    assert found[VLLM_FAN_OUT]["median_steps"] == found[TREE]["median_steps"] - 1
    assert all(row["peak_bytes"] > 0 for row in found.values())


@table("is_linux", [True, False])
def test_memory_is_what_a_run_takes_at_its_peak(monkeypatch: pytest.MonkeyPatch, is_linux: bool) -> None:
    if not is_linux:
        monkeypatch.setattr(resident_memory, "PROC", Path("/nowhere"))

    looks: list[int] = []
    look = peak_memory._resident

    def noting() -> int:
        looks.append(look())
        return looks[-1]

    monkeypatch.setattr(peak_memory, "_resident", noting)
    is_exact = is_linux and Path("/proc/self/clear_refs").exists()

    def take(megabytes: int) -> int:
        taken = torch.ones(megabytes, 2**18)
        # The thread that samples may not be run for long. The first look may have begun before all was taken.
        before = len(looks)
        wait_until(lambda: is_exact or len(looks) >= before + 2)
        return len(taken)

    for megabytes in (256, 64):  # the second time, the peak is lower
        result, peak, method = measure(lambda size=megabytes: take(size), CPU)
        assert result == megabytes
        assert 0.9 * megabytes < peak / 2**20 < megabytes + 48
        assert method == ("VmHWM" if is_exact else "samples")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "exactly one of --gold FILE and --workload NAME is needed"),
        (["--gold", "x", "--workload", "wide"], "exactly one of --gold FILE and --workload NAME is needed"),
        (["--workload", "wide", "--sweep", "stack", "--natural"], "--sweep and --natural exclude each other"),
        (["--workload", "single", "--sweep", "stack"], "--sweep and --workload single exclude each other"),
        (["--workload", "wide", "--natural", "--vllm", "x"], "--natural and --vllm exclude each other"),
        (["--workload", "wide", "--profile", "--vllm", "x"], "--vllm and --profile exclude each other"),
        (["--workload", "wide", "--profile", "--only", "tree"], "--only and --profile exclude each other"),
        (["--workload", "wide", "--out", "x"], "--out belongs to a sweep"),
        (["--workload", "wide", "--sweep", "J"], "--sweep 'J': there are 'stack', 'document', "),
        (["--workload", "wide", "--sweep", "stack", "--points", "1,x"], "--points '1,x': whole numbers "),
        (["--workload", "wide", "--sweep", "stack", "--points", "4,2"], "--points 4,2: rising numbers from 1 "),
        (["--workload", "wide", "--sweep", "catalog", "--limit", "4"], "in 8 parts, and there are 4; raise --limit"),
        (["--workload", "long"], "--workload 'long': there are 'listings', "),
        (["--workload", "wide", "--sweep", "stack", "--out", "/dev/null/x"], "--out /dev/null/x: "),
    ],
)
def test_options_that_do_not_go_together(workplace: Workplace, arguments: list[str], reason: str) -> None:
    result = run(workplace, *arguments)
    assert result.exit_code == 2
    message = result.stderr.strip().splitlines()[-1]
    assert message.startswith("Error: ")
    assert reason in message
