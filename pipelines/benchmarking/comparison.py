"""Everybody on the same records, round after round."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from hpd_core import EngineConfig, models
from pipelines.benchmarking.contenders import Run, chosen, contenders, run_engine, vllm_contenders, yardsticks
from pipelines.benchmarking.memory import measured
from pipelines.benchmarking.natural import natural_contenders
from pipelines.benchmarking.vllm_process import VllmProcess
from pipelines.benchmarking.workload import Workload
from pipelines.benchmarking.yardsticks import best_shape


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """What was found.

    Attributes:
        batch_size: of the rivals.
        dense_shape: (rows, length) of the ceiling's batches.
        results: name -> a run for every round.
    """

    workload: Workload
    batch_size: int
    dense_shape: tuple[int, int]
    results: dict[str, list[Run]]


def compare(
    model: Any,
    workload: Workload,
    config: EngineConfig,
    batch_size: int,
    natural: bool,
    vllm: VllmProcess | None,
    only: Sequence[str] | None,
    repeats: int,
    say: Callable[[str], object],
) -> Comparison:
    """The layouts, their rivals and the yardsticks, `repeats` times.

    Args:
        natural: answers end where the model ends them.

    Raises:
        UsageError: a name in `only` that nobody has, or a record that cannot be taken.
    """
    entrants = (natural_contenders if natural else contenders)(model, workload, config, batch_size)
    outside = {} if vllm is None else vllm_contenders(vllm)
    runs = chosen(outside | entrants, only)
    workload.refuse_unfit(model.config, config, entrants.keys() & runs.keys())
    say("looking for the best dense batch")
    tree = config.model_copy(update={"layout": "tree"})
    work = run_engine(model, workload, tree, natural=natural).work
    assert work is not None
    with models.own_attention(model):
        shape = best_shape(model, work)
    limits = yardsticks(model, work, shape)
    results: dict[str, list[Run]] = {name: [] for name in runs | limits}
    # Rounds over all contenders, so that a slow moment of the machine does not fall on one of them.
    for number in range(repeats):
        for name, run in (runs | limits).items():
            say(f"round {number + 1}/{repeats}: {name}")
            # Another process's memory is not ours to measure, and the yardsticks' says nothing.
            is_measured = name not in outside and name not in limits
            results[name].append(measured(run, model.device) if is_measured else run())
    return Comparison(workload, batch_size, shape, results)
