"""Everybody on the same records, round after round."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

from hpd_core import EngineConfig, models
from pipelines.benchmarking.contenders import Contenders, Run, contenders, run_engine, yardsticks
from pipelines.benchmarking.memory import measured
from pipelines.benchmarking.natural import natural_contenders
from pipelines.benchmarking.workload import Workload
from pipelines.benchmarking.yardsticks import best_shape


@dataclasses.dataclass(frozen=True, slots=True)
class Rounds:
    """How it is measured.

    Attributes:
        repeats: rounds over all contenders.
        batch_size: of the rivals.
        natural: answers end where the model ends them.
        outside: names of those who run in a process of their own.
    """

    repeats: int
    batch_size: int
    natural: bool
    outside: Collection[str]


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


def enter(
    model: Any, workload: Workload, config: EngineConfig, batch_size: int, natural: bool, draft_model: Any
) -> Contenders:
    """Everybody who runs in this process. `draft_model`: as in `contenders`; not for `natural` answers."""
    if natural:
        return natural_contenders(model, workload, config, batch_size)
    return contenders(model, workload, config, batch_size, draft_model)


def compare(
    model: Any,
    workload: Workload,
    config: EngineConfig,
    runs: Contenders,
    rounds: Rounds,
    say: Callable[[str], object],
) -> Comparison:
    """The contenders `runs` and the yardsticks, round after round.

    Raises:
        UsageError: a record that cannot be taken.
    """
    workload.refuse_unfit(model.config, config, runs.keys() - rounds.outside)
    say("looking for the best dense batch")
    tree = config.model_copy(update={"layout": "tree"})
    work = run_engine(model, workload, tree, natural=rounds.natural).work
    assert work is not None
    with models.own_attention(model):
        shape = best_shape(model, work)
    limits = yardsticks(model, work, shape)
    results: dict[str, list[Run]] = {name: [] for name in runs | limits}
    # Rounds over all contenders, so that a slow moment of the machine does not fall on one of them.
    for number in range(rounds.repeats):
        for name, run in (runs | limits).items():
            say(f"round {number + 1}/{rounds.repeats}: {name}")
            # Another process's memory is not ours to measure, and the yardsticks' says nothing.
            is_measured = name not in rounds.outside and name not in limits
            results[name].append(measured(run, model.device) if is_measured else run())
    return Comparison(workload, rounds.batch_size, shape, results)
