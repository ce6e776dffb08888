"""Answers that end where the model ends them, for `benchmark.py --natural`.

Contenders then write different texts: who says more does more work, and products a second compare both at once. All
read documents causally, also where the model was taught to read them both ways: `generate` can read no other way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.speed.contenders import GENERATE, TREE, Contenders, EngineRuns, TimedRun
from bench.workloads.workload import Workload
from hpd_core import EngineConfig
from hpd_core.baselines.autoregressive import AutoregressiveBaseline
from hpd_core.models import steering
from hpd_core.text.tokenization import SegmentTokenizer
from pipelines.errors import UsageError


def natural_contenders(model: Any, workload: Workload, config: EngineConfig, batch_size: int) -> Contenders:
    """Name -> a run. Values may be anything; the engine's constraints are off, because `generate` has none."""

    def engine(**settings: Any) -> Callable[[], TimedRun]:
        return EngineRuns(model, workload, config.model_copy(update=settings), natural=True)

    batched = config.model_copy(update={"max_prompts_per_cohort": batch_size})
    return {
        GENERATE: lambda: _run_generate(model, workload, batched),
        "stacked J=1": engine(layout="stacked", stack_size=1),
        "stacked J=6": engine(layout="stacked", stack_size=6),
        TREE: engine(layout="tree"),
    }


def _run_generate(model: Any, workload: Workload, config: EngineConfig) -> TimedRun:
    """The baseline `ar`, which ends an answer where its object ends. Keys are not counted as tokens of values."""
    with steering.own_attention(model), AutoregressiveBaseline(model, workload.tokenizer, config) as baseline:
        future = baseline.submit(workload.records, workload.schemas, workload.documents)
        results = future.result()
    if failed := next((result for result in results if result.error), None):
        raise UsageError(f"record {failed.id} cannot be taken by {GENERATE}: {failed.error}")
    # As in `stacked`, every line's end counts; an attribute that was left out has no tokens.
    lines = [f"{value.raw}\n" for result in results for value in result.values.values() if value.raw]
    num_tokens = sum(map(len, SegmentTokenizer(workload.tokenizer).encode_text(lines)))
    return TimedRun(future.metrics.busy_seconds, num_steps=future.metrics.num_steps, num_value_tokens=num_tokens)
