"""Who runs in the benchmark, by name: the layouts, their rivals, the yardsticks."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from hpd_core import EngineConfig, models
from hpd_core.decoder import Decoder, StepReport
from pipelines.benchmarking.generate import run_generate
from pipelines.benchmarking.naive import run_naive_hpd
from pipelines.benchmarking.vllm_process import VllmProcess
from pipelines.benchmarking.workload import Workload
from pipelines.benchmarking.yardsticks import Floor, Work, run_dense, seconds_of
from pipelines.errors import UsageError

GENERATE, NAIVE, TREE = "transformers generate", "naive padded HPD", "tree"
CEILING, FLOOR = "ceiling", "floor"


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """One run of one contender: its seconds, and what it forwarded if that is counted.

    Attributes:
        num_value_tokens: of values that end where the model ends them.
        peak_bytes: memory at its highest, above what was there before (memory.py).
    """

    seconds: float
    work: Work | None = None
    num_steps: int | None = None
    num_value_tokens: int | None = None
    peak_bytes: int | None = None


def run_engine(
    model: Any, workload: Workload, config: EngineConfig, *, at_once: int | None = None, natural: bool = False
) -> Run:
    """Decodes the workload by a fresh decoder, so that every prefix is computed in it.

    Args:
        at_once: so many prompts are decoded to their end before others begin; None: as the engine does it.
        natural: values end where the model ends them, K_max at the latest.
    """
    shape = models.cache_shape(model)
    num_tokens = model.get_output_embeddings().weight.shape[0]
    closing = workload.closing_tokens(model) if natural else np.zeros(num_tokens, dtype=bool)
    decoder = Decoder(model, closing, config, shape)
    prepared = workload.prompts(model.config, config, natural=natural)
    at_once = at_once or len(prepared)
    started = time.perf_counter()
    reports: list[StepReport] = []
    for first in range(0, len(prepared), at_once):
        decoder.add([item.prompt for item in prepared[first : first + at_once]])
        while decoder.has_work:
            reports.append(decoder.step())
    seconds = time.perf_counter() - started
    num_tokens = sum(count for report in reports for cohort in report.cohorts for _, count in cohort)
    num_logits = sum(len(tokens) for item in prepared for tokens in item.prompt.tokens)
    return Run(seconds, Work(num_tokens, num_logits), len(reports), num_logits if natural else None)


def timed(run: Callable[[], Any]) -> Run:
    """`run`, with its time."""
    return Run(seconds_of(run))


Contenders = dict[str, Callable[[], Run]]
Contender = TypeVar("Contender")


def contenders(model: Any, workload: Workload, config: EngineConfig, batch_size: int) -> Contenders:
    """Name -> a run."""
    forced = workload.forced(model.config)

    def engine(**settings: Any) -> Callable[[], Run]:
        return lambda: run_engine(model, workload, config.model_copy(update=settings))

    def rival(function: Callable[..., None]) -> Callable[[], Run]:
        def run() -> Run:
            with models.own_attention(model):
                return timed(lambda: function(model, forced, batch_size))

        return run

    return {
        GENERATE: rival(run_generate),
        NAIVE: rival(run_naive_hpd),
        "stacked J=1": engine(layout="stacked", stack_size=1),
        "stacked J=6": engine(layout="stacked", stack_size=6),
        TREE: engine(layout="tree"),
    }


def chosen(runs: dict[str, Contender], only: Sequence[str] | None) -> dict[str, Contender]:
    """Those that `only` names, and always `tree`, whose work the yardsticks do; None: all.

    Raises:
        UsageError: a name that nobody has.
    """
    if not only:
        return runs
    if unknown := [name for name in only if name not in runs]:
        raise UsageError(f"--only {unknown[0]!r}: there are {', '.join(map(repr, runs))}")
    return {name: run for name, run in runs.items() if name in only or name == TREE}


def vllm_contenders(vllm: VllmProcess) -> Contenders:
    """Name -> a run of vLLM, already started."""
    return {
        "vLLM AR": lambda: Run(vllm.run(VllmProcess.AUTOREGRESSIVE)),
        "vLLM fan-out": lambda: Run(vllm.run(VllmProcess.FAN_OUT)),
    }


def yardsticks(model: Any, work: Work, shape: tuple[int, int]) -> Contenders:
    """Name -> a run of as much work."""

    def ceiling() -> Run:
        with models.own_attention(model):
            return timed(lambda: run_dense(model, work, shape))

    floor = Floor(model)
    return {CEILING: ceiling, FLOOR: lambda: timed(lambda: floor.run(work))}
