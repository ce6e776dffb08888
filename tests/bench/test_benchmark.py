"""The benchmark on a tiny model: everybody does the work it is timed for. Speed itself is no test."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner, Result

from bench.benchmark import app
from bench.speed.ceilings import Floor, StepWork, run_dense
from bench.workloads.workload import Workload
from hpd_core.models import loading, steering
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


@table("shape", [(1, 16), (8, 64), (3, 50)])
@table("work", [StepWork(1000, 230), StepWork(64, 1), StepWork(130, 130)])
def test_the_ceiling_forwards_what_it_says(model: Any, work: StepWork, shape: tuple[int, int]) -> None:
    with steering.own_attention(model), FlopCounterMode(display=False) as counter:
        done = run_dense(model, work, shape)
    assert work.num_tokens <= done.num_tokens < work.num_tokens + shape[1]
    # Rounded to a position per row.
    assert done.num_logits == pytest.approx(work.num_logits * done.num_tokens / work.num_tokens, abs=shape[0])
    head = model.lm_head.weight.numel()
    products = counter.get_flop_counts()["Global"][torch.ops.aten.mm]
    assert products == 2 * (done.num_tokens * LINEAR_WEIGHTS + done.num_logits * head)


def test_the_floor_is_every_matrix_product_that_is_needed_once(model: Any) -> None:
    work = StepWork(5000, 700)
    floor = Floor(model, 800)
    with FlopCounterMode(display=False) as counter:
        floor.run(work)
    of_all = LINEAR_WEIGHTS - OTHER_WEIGHTS  # nobody attends to what comes behind the last layer's keys and values
    of_some = OTHER_WEIGHTS + model.lm_head.weight.numel()
    expected = 2 * (work.num_tokens * of_all + work.num_logits * of_some)
    assert counter.get_total_flops() == expected
