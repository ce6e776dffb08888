"""Everybody on the same records, round after round."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

from bench.speed.ceilings import best_shape, rows_of_large_steps
from bench.speed.contenders import TREE, Contenders, EngineRuns, TimedRun, yardsticks
from bench.speed.peak_memory import measured
from bench.workloads.workload import Workload
from hpd_core import EngineConfig
from hpd_core.models import steering
from hpd_core.system.device import is_out_of_memory


@dataclasses.dataclass(frozen=True, slots=True)
class RoundComparison:
    """What was found.

    Attributes:
        dense_shape: (rows, length) of the ceiling's batches.
        dense_attention: transformers' way to attend in them.
        results: name -> a run for every round.
        out_of_memory: names of those for whom the memory is too small.
    """

    dense_shape: tuple[int, int]
    dense_attention: str
    results: dict[str, list[TimedRun]]
    out_of_memory: list[str]


def compare(
    model: Any,
    workload: Workload,
    config: EngineConfig,
    runs: Contenders,
    repeats: int,
    outside: Collection[str],
    say: Callable[[str], object],
) -> RoundComparison:
    """The contenders `runs` and the yardsticks, `repeats` rounds. Who runs out of memory is out.

    Args:
        outside: names of those who run in a process of their own.

    Raises:
        UsageError: a record that cannot be taken.
    """
    workload.refuse_unfit(model.config, config, runs.keys() - outside)
    say("looking for the best dense batch")
    tree = config.model_copy(update={"layout": "tree"})
    first = EngineRuns(model, workload, tree).once()
    work = first.work
    assert work is not None
    rows = rows_of_large_steps([tokens for _, tokens in first.steps])
    found: dict[str, tuple[float, tuple[int, int]]] = {}
    for attention in steering.own_attentions(model):
        with steering.own_attention(model, attention):
            found[attention] = best_shape(model, work)
    attention = max(found, key=lambda name: found[name])
    shape = found[attention][1]
    limits = yardsticks(model, work, rows, shape, attention)
    results: dict[str, list[TimedRun]] = {name: [] for name in runs | limits}
    out_of_memory: list[str] = []
    # Rounds over all contenders, so that a slow moment of the machine does not fall on one of them.
    for number in range(repeats):
        for name, run in (runs | limits).items():
            if name not in results:
                continue
            say(f"round {number + 1}/{repeats}: {name}")
            # Another process measures its own memory, and the yardsticks' says nothing.
            # To measure takes memory away from this process, which is to have it back from then on.
            is_measured = number == 0 and name not in outside and name not in limits
            try:
                results[name].append(measured(run, model.device) if is_measured else run())
            except (RuntimeError, MemoryError) as error:
                # A rival that does not fit must not take the others' numbers with it.
                if name == TREE or name in limits or not is_out_of_memory(error):
                    raise
                out_of_memory.append(name)
                del results[name]
                say(f"{name}: out of memory")
    return RoundComparison(shape, attention, results, out_of_memory)
