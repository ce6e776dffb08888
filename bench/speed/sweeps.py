"""The same work again and again, changed in one thing: `benchmark.py --sweep NAME`.

    stack        prompts decoded at once, for stacked with several J and for tree (the paper's Figure 4)
    document     tokens of the documents
    attributes   attributes of every category
    value        tokens of every value, and K_max with them
    catalog      products: an eighth of the workload, a quarter, half, all of it. Cost per product must stay flat

Each of `stack`'s batches is decoded to its end before the next begins, as the paper does; the engine by itself refills.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from bench.speed.contenders import GENERATE, TREE, Contenders, Run, chosen, contenders, run_engine
from bench.speed.peak_memory import measured
from bench.workloads.workload import Workload
from hpd_core import EngineConfig
from pipelines.errors import UsageError

STACK_SIZES = (1, 2, 4, 6)
"""J of the sweep `stack`."""

_USUAL = (GENERATE, "stacked J=6", TREE)
"""Who runs in the other sweeps unless `--only` says otherwise."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """One of the sweeps.

    Attributes:
        label: what is changed, with its unit.
        points: the values it takes, rising.
        measure: what is shown of a point.
    """

    name: str
    label: str
    points: tuple[int, ...]
    measure: Literal["products/s", "ms per product"] = "ms per product"


CATALOG = "catalog"
_SWEEPS = (
    Sweep("stack", "prompts decoded at once", (1, 2, 4, 8, 16, 32), "products/s"),
    Sweep("document", "tokens of a document", (32, 64, 128, 256, 512, 1024)),
    Sweep("attributes", "attributes of a product", (4, 8, 16, 32, 64)),
    Sweep("value", "tokens of a value (K_max)", (1, 2, 4, 8, 16, 32)),
    Sweep(CATALOG, "products", (1, 2, 4, 8)),
)


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep has found.

    Attributes:
        xs: the points as they are shown.
        num_records: products decoded, by point.
        runs: contender -> by point, a run for every round.
    """

    sweep: Sweep
    xs: list[int]
    num_records: list[int]
    runs: dict[str, list[list[Run]]]

    def rates(self, contender: str) -> list[list[float]]:
        """By point, every round's products/s or ms per product."""
        per_second = self.sweep.measure == "products/s"
        return [
            [count / run.seconds if per_second else 1000 * run.seconds / count for run in runs]
            for count, runs in zip(self.num_records, self.runs[contender], strict=True)
        ]


def find_sweep(name: str, points: Sequence[int] | None) -> Sweep:
    """The sweep of that name, at its own points or these.

    Raises:
        UsageError: no such sweep, or points that are not rising from 1.
    """
    found = {sweep.name: sweep for sweep in _SWEEPS}
    if name not in found:
        raise UsageError(f"--sweep {name!r}: there are {', '.join(map(repr, found))}")
    sweep = found[name]
    if points is None:
        return sweep
    if not points or min(points) < 1 or list(points) != sorted(set(points)):
        raise UsageError(f"--points {','.join(map(str, points))}: rising numbers from 1 are needed, as in 1,2,4")
    return Sweep(sweep.name, sweep.label, tuple(points), sweep.measure)


def run_sweep(
    sweep: Sweep,
    model: Any,
    workload: Workload,
    config: EngineConfig,
    batch_size: int,
    repeats: int,
    only: Sequence[str] | None,
    say: Callable[[str], object],
) -> Swept:
    """Everybody at every point, in rounds over all of them.

    Raises:
        UsageError: no such contender, too few records, or a record that no longer fits the model.
    """
    points = [_point(sweep, point, workload, config) for point in sweep.points]
    entrants = [_entrants(sweep, point, model, batch_size, only) for point in points]
    for point, ready in zip(points, entrants, strict=True):
        point.workload.refuse_unfit(model.config, point.config, ready)
    # What happens once only, the first touch of weights that are mapped from their file above all.
    for run in entrants[0].values():
        run()
    runs: dict[str, list[list[Run]]] = {name: [[] for _ in points] for name in entrants[0]}
    for number in range(repeats):
        for index, (point, ready) in enumerate(zip(points, entrants, strict=True)):
            for name, run in ready.items():
                say(f"round {number + 1}/{repeats}, {point.x} {sweep.label}: {name}")
                runs[name][index].append(measured(run, model.device))
    return Swept(sweep, [point.x for point in points], [len(point.workload.records) for point in points], runs)


@dataclass(frozen=True, slots=True)
class _Point:
    x: int
    workload: Workload
    config: EngineConfig
    at_once: int | None = None


def _point(sweep: Sweep, value: int, workload: Workload, config: EngineConfig) -> _Point:
    if sweep.name == "stack":
        return _Point(value, workload, config.model_copy(update={"max_prompts_per_cohort": value}), value)
    if sweep.name == "document":
        # Longer documents that begin alike would share more.
        return _Point(value, workload.with_documents_of(value), config.model_copy(update={"share_text": False}))
    if sweep.name == "attributes":
        return _Point(value, workload.with_attributes(value), config)
    if sweep.name == "value":
        return _Point(value, workload.with_values_of(value), config.model_copy(update={"max_value_tokens": value}))
    part = _share(workload, value, sweep.points[-1])
    return _Point(len(part.records), part, config)


def _share(workload: Workload, share: int, of: int) -> Workload:
    """`share` of `of` equal parts, from all over the catalog: its categories stay as they are mixed."""
    total = len(workload.records)
    if total < of:
        raise UsageError(f"--sweep catalog cuts the records in {of} parts, and there are {total}; raise --limit")
    count = total * share // of
    return workload.part([number * total // count for number in range(count)])


def _entrants(sweep: Sweep, point: _Point, model: Any, batch_size: int, only: Sequence[str] | None) -> Contenders:
    if sweep.name != "stack":
        # Engines of all points at a time would be many.
        everybody = contenders(model, point.workload, point.config, batch_size, keeps_engines=False)
        return chosen(everybody, only or _USUAL)

    def engine(**settings: Any) -> Callable[[], Run]:
        config = point.config.model_copy(update=settings)
        return partial(run_engine, model, point.workload, config, at_once=point.at_once)

    stacked = {f"stacked J={size}": engine(layout="stacked", stack_size=size) for size in STACK_SIZES}
    return chosen(stacked | {TREE: engine(layout="tree")}, only)
