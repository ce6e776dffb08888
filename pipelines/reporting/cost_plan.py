"""Driver of `hpd plan`: runs a pilot, or takes an earlier run, and computes the forecast.

A pilot is a run over evenly spaced rows, in <output>.pilot/run: killed, it is continued; finished, it is only read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from rich.console import Console

from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from pipelines.config.operation import ActorConfig, CostConfig
from pipelines.console.terminal import printable
from pipelines.errors import RunError, UsageError
from pipelines.job.job_run import run_job
from pipelines.job.preflight import PlannedJob, count_categories, plan_job, unknown_lines
from pipelines.job.run_plan import differences
from pipelines.quality.both_answers import larger_model
from pipelines.reporting.forecast import FORECAST_NAME, Forecast, forecast_name
from pipelines.reporting.machines import EFFICIENCY, find_gpu, is_same_gpu, unlike_machine
from pipelines.reporting.measured_costs import MeasuredCosts, forecast_of, on_other_machine, read_costs, with_larger
from pipelines.store.folders import Folder
from pipelines.store.ledger import PLAN_NAME, pilot_folder

PILOT_RUN = "run"
"""Name of the pilot's run, in its folder."""
MIN_ROWS = 20
"""Fewest rows of a pilot."""
# As many batches as give the interval enough degrees of freedom, but none of fewer rows than this.
_MAX_BATCHES, _MIN_BATCH_ROWS = 22, 4
# With so many batches at a time the engine is as full as in a long run, whose shards hold more products.
_IN_FLIGHT = 16


@dataclass(slots=True)
class Planner:
    """Planner for one catalog and its pilot folder."""

    job: PlannedJob
    folder: Folder
    console: Console
    _engine: Mapping[str, Any] = field(default_factory=dict)
    _larger_engine: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        config: str,
        changes: Sequence[str],
        limit: int | None,
        folder: str | None,
        on: str | None,
        console: Console,
        *,
        has_pilot: bool = True,
    ) -> Self:
        """Check and plan the job; its models must be available here only with `has_pilot`. Raises `UsageError`."""
        named = [] if on is None else [f"cost.instance_type={on}", "cost.usd_per_hour=null"]
        if on is not None:
            find_gpu(on)
        # Before what is set by hand: the file's price is of the file's machine.
        loaded = load_config(JobConfig, config, [*named, *changes])
        place = Folder(folder or pilot_folder(loaded.output))
        place.require()
        if any(character in place.uri for character in "*?["):
            raise UsageError(
                f"{place.uri}: the pilot's folder must not have any of *?[ in its name; name one (--folder)"
            )
        # Plan the whole catalog from its beginning: answers of earlier runs are not subtracted, and a run in progress
        # does not matter. Nothing is written to this output.
        whole = {"base": None, "retry_failed": None, "run_id": None, "output": place.describe("catalog")}
        job = plan_job(loaded.model_copy(update=whole), limit, is_to_run=has_pilot, is_spread=limit is not None)
        return cls(job, place, console)

    def from_pilot(self, num_rows: int, utilisation: float | None) -> Forecast:
        """Run what is left of the pilot, and forecast from it. Raises `UsageError`, or `RunError` if it can go on."""
        if min(num_rows, self.job.plan.num_rows) < MIN_ROWS:
            raise UsageError(
                f"a pilot needs at least {MIN_ROWS} rows, of a catalog of as many (it has {self.job.plan.num_rows:,}): "
                f"go on with `hpd extract`, whose report says what a run of so few costs"
            )
        rows = self._rows()
        config = _pilot_config(self.job.config, f"{self.folder.absolute_uri}/{PILOT_RUN}")
        batches = max(2, min(_MAX_BATCHES, num_rows // _MIN_BATCH_ROWS))
        try:
            pilot = plan_job(config, num_rows, is_spread=True, num_shards=batches)
        except UsageError as error:
            if not Folder(config.output).exists(PLAN_NAME):
                raise
            raise UsageError(
                f"{error}. That is an earlier pilot: name another folder (--folder), or remove it"
            ) from error
        outcome = run_job(pilot, self.console)
        if outcome.discrepancy is not None:
            raise RunError(f"the pilot's counts do not add up: {outcome.discrepancy}")
        return self._forecast(read_costs(config.output, "--pilot", is_pilot=True), *rows, utilisation, is_pilot=True)

    def from_run(self, uri: str, utilisation: float | None) -> Forecast:
        """Forecast from an earlier run's costs. Raises `UsageError`."""
        costs = read_costs(uri, "--from-run")
        self._check_alike(costs)
        return self._forecast(costs, *self._rows(), utilisation, is_pilot=False)

    def _forecast(
        self, costs: MeasuredCosts, rows: Mapping[str, int], num_dead: int, utilisation: float | None, *, is_pilot: bool
    ) -> Forecast:
        self._engine = costs.engine

        def forecast(config: JobConfig, costs: MeasuredCosts, num_others: int) -> Forecast:
            is_same_schemas = costs.plan.schema_hash == self.job.plan.schema_hash
            options = {"is_pilot": is_pilot, "is_same_schemas": is_same_schemas}
            return forecast_of(config, costs, rows, num_dead, utilisation, num_others, **options)

        config, cascade = self.job.config, self.job.config.cascade
        if cascade is None:
            return forecast(config, costs, 0)
        of_larger = read_costs(costs.uri, "--pilot" if is_pilot else "--from-run", 2, is_pilot=is_pilot)
        self._larger_engine = of_larger.engine
        first = forecast(config, costs, cascade.actors.most())
        larger = forecast(larger_model(config), of_larger, config.actors.most())
        return with_larger(first, larger, cascade.below, costs)

    def _rows(self) -> tuple[dict[str, int], int]:
        """Count the catalog's rows by category, and those that no engine will see. Raises `UsageError` if all are."""
        schemas = self.job.schemas
        total = self.job.plan.num_rows
        with self.console.status(f"Counting {total:,} rows by category ..."):
            counts = count_categories(self.job.plan, self.job.config.input, schemas)
        rows = {name: count for name, count in counts.categories.items() if name in schemas}
        unknown = Counter({name: count for name, count in counts.categories.items() if name not in rows})
        dead = Counter(null_category=unknown.pop("", 0)) + counts.dead.rows
        dead["no_schema"] = unknown.total()
        num_dead = dead.total() + round(sum(counts.dead_in_sample.rows.values()) / max(1, counts.checked) * total)
        lines = list(unknown_lines(unknown, dead["no_schema"], schemas))
        if not rows or num_dead >= total:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in dead.most_common() if count)
            raise UsageError("\n  ".join([f"no row of the catalog can be extracted: {reasons}", *lines]))
        for line in lines:
            self.console.print(f"Note: {printable(line)}", highlight=False, markup=False, soft_wrap=True)
        # Rows that are refused for their texts are not counted by category: each category loses its share.
        taken = (total - num_dead) / sum(rows.values())
        return {name: round(count * taken) for name, count in rows.items()}, num_dead

    def _check_alike(self, costs: MeasuredCosts) -> None:
        """Raise `UsageError` if the run's settings, or what decided what a larger model was asked, were others."""
        before, now = costs.plan.result_config, self.job.plan.result_config
        for key in ("model", "adapter", "decoding", "engine", "cascade"):
            if changes := differences({key: before.get(key)}, {key: now.get(key)}):
                raise UsageError(
                    f"--from-run: run {costs.plan.run_id} was decoded otherwise: {changes[0]}; run a pilot"
                )

    def store(self, forecast: Forecast, on: str | None, efficiency: float | None) -> tuple[Forecast, str]:
        """Store the forecast, converted to machine `on` if given. Return it and its place.

        A forecast for another machine is stored beside the measured one. Raises `UsageError`.
        """
        name = FORECAST_NAME
        if on is not None:
            gpu = find_gpu(on)
            if not is_same_gpu(gpu.name, forecast.device):
                share = EFFICIENCY if efficiency is None else efficiency
                larger = forecast.larger
                if larger is not None:
                    larger = on_other_machine(larger, larger_model(self.job.config), self._larger_engine, gpu, share)
                moved = on_other_machine(forecast.alone, self.job.config, self._engine, gpu, share)
                forecast = replace(moved, larger=larger, asked=forecast.asked)
                name = forecast_name(on)
        elif (unlike := unlike_machine(forecast.price, forecast.device)) is not None:
            forecast = replace(forecast, assumed=[*forecast.assumed, unlike])
        try:
            self.folder.write(name, forecast.to_json())
        except OSError as error:
            raise UsageError(f"cannot write to {self.folder.uri}: {error}") from error
        return forecast, self.folder.describe(name)


def _pilot_config(config: JobConfig, output: str) -> JobConfig:
    """Return the job of a pilot: everything is decoded, by one engine of each model."""

    def alone(actors: ActorConfig) -> ActorConfig:
        # With several engines, few batches would be left for each, and all of them would be filling or draining.
        most = max(actors.max_in_flight, _IN_FLIGHT)
        return actors.model_copy(update={"min": 1, "max": 1, "max_in_flight": most})

    cascade = config.cascade
    return config.model_copy(
        update={
            "output": output,
            "run_id": None,
            # What can be carried over is not what a product costs.
            "base": None,
            "retry_failed": None,
            "actors": alone(config.actors),
            "cascade": None if cascade is None else cascade.model_copy(update={"actors": alone(cascade.actors)}),
            # The machines that are planned for need not be the one that it runs on, which says itself what it is.
            "cost": CostConfig(),
            # Many dead letters are a result, too.
            "max_dead_letter_share": 1.0,
        }
    )
