"""Driver of `pipelines/plan.py`: surveys, draws, runs, and computes the forecast; every step is stored.

Run of both models of a cascade over the products of a gold file, which need not be in the pilot.

<output>.pilot/gold-<hash>/run     the run over them; another gold file, or other rows of it, is another one
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Self

from rich.console import Console

from hpd_core import ErrorCode
from hpd_core.types import content_hash
from pipelines.catalog.rows import default_id, row_id
from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from pipelines.console.terminal import printable
from pipelines.errors import RunError, UsageError
from pipelines.job.job_run import run_job
from pipelines.job.preflight import PlannedJob, plan_job, unknown_lines
from pipelines.job.run_plan import describe_limit, differences, file_differences, find_finished
from pipelines.quality.both_answers import ALL, larger_model
from pipelines.quality.curve import CURVE_NAME, Curve
from pipelines.quality.gold import read_gold
from pipelines.reporting.cascade_forecast import CascadePilots, asked_earlier, with_larger
from pipelines.reporting.forecast import FORECAST_NAME, Forecast, forecast_name
from pipelines.reporting.forecast_builder import (
    EarlierCosts,
    forecast_from_earlier,
    forecast_from_pilots,
    on_other_machine,
    read_earlier,
)
from pipelines.reporting.forecast_text import SHARES, Backtest, backtest
from pipelines.reporting.machines import EFFICIENCY, find_gpu, is_same_gpu, unlike_machine
from pipelines.reporting.pilot import (
    SECOND_NAME,
    MeasuredRun,
    Pilot,
    certainty_of,
    check_second,
    find_pilot,
    identity,
    measured_job,
    read_costs,
    read_measured,
    run_pilot,
    second_draw,
    store_pilot,
    without_threshold,
)
from pipelines.reporting.strata import PilotDraw, draw_rows, make_strata
from pipelines.reporting.survey import Survey, planned_rows, survey_catalog
from pipelines.store.folders import Folder
from pipelines.store.ledger import pilot_folder

_TRIALS = 200


@dataclass(slots=True)
class Planner:
    """Planner for one catalog and its pilot folder."""

    job: PlannedJob
    folder: Folder
    console: Console
    _pilots: Sequence[tuple[Pilot, MeasuredRun]] = ()
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

    def from_pilot(self, num_rows: int, num_more: int, seed: int, utilisation: float | None) -> Forecast:
        """Draw, run and measure the rest of the pilots. Raises `UsageError`, or `RunError` if it can be resumed."""
        self._pilots = self._run_pilots(num_rows, num_more, seed)
        if self.job.config.cascade is None:
            return forecast_from_pilots(self.job.config, self._pilots, self.folder.uri, utilisation)
        return self._cascade_pilots(utilisation).at(self.job.config.cascade.below)

    def _cascade_pilots(self, utilisation: float | None) -> CascadePilots:
        return CascadePilots(self.job.config, self._pilots, self.folder.uri, utilisation)

    def _run_pilots(self, num_rows: int, num_more: int, seed: int) -> list[tuple[Pilot, MeasuredRun]]:
        folder = Folder(self.folder.describe(SECOND_NAME))
        wanted = identity(self.job, num_rows, seed)
        wanted_then = identity(self.job, num_more, seed) | {"after": num_rows}
        first, second = find_pilot(self.folder, wanted), find_pilot(folder, wanted_then) if num_more else None
        survey: Survey | None = None
        if first is None or (num_more and second is None):
            survey = self._survey(seed, num_rows + num_more)
            strata = make_strata(survey, num_rows)
            if num_more:
                # Before the first one is paid.
                check_second(strata, num_rows, num_more)
        if first is None and survey is not None:
            first = _pilot(wanted, survey, draw_rows(strata, num_rows, seed))
            store_pilot(self.folder, first, self.job)
        assert first is not None
        pilots = [(first, self._run(self.folder, first))]
        if num_more:
            if second is None and survey is not None:
                second = _pilot(wanted_then, survey, second_draw(strata, first, pilots[0][1], num_more, seed))
                store_pilot(folder, second, self.job)
            assert second is not None
            pilots.append((second, self._run(folder, second)))
        self._engine = pilots[0][1].engine
        if (larger := pilots[0][1].larger) is not None:
            self._larger_engine = larger.engine
        return pilots

    def check_gold(self, gold: str) -> None:
        """Check the gold file before the pilot runs. Raises `UsageError` without a cascade or if it cannot be read."""
        if self.job.config.cascade is None:
            raise UsageError("--gold goes with `cascade`, of which it finds the threshold; the configuration has none")
        read_gold(gold, self.job.schemas)

    def curve(self, gold: str, utilisation: float | None) -> Curve:
        """Compute the F1 of a cascade against its cost, from both models' answers to the gold file's products.

        Call `from_pilot` first. The curve is stored beside the forecast, for the report. Raises `UsageError`, or
        `RunError` if it can be resumed.
        """
        run = run_gold(self.job, gold, self.folder, self.console)
        curve = self._cascade_pilots(utilisation).curve(run, gold)
        try:
            self.folder.write(CURVE_NAME, json.dumps(curve.to_dict(), ensure_ascii=False, indent=2).encode())
        except OSError as error:
            raise UsageError(f"cannot write to {self.folder.uri}: {error}") from error
        return curve

    def _survey(self, seed: int, keep: int) -> Survey:
        """Survey the catalog. Raises `UsageError` if no row of it can be extracted."""
        total = self.job.plan.num_rows
        with self.console.status(f"Reading {total:,} rows ...") as status:
            survey = survey_catalog(
                self.job, seed, keep, lambda rows: status.update(f"Reading the catalog: {rows:,} of {total:,} rows")
            )
        num_unknown = survey.dead[ErrorCode.NO_SCHEMA]
        unknown = list(unknown_lines(survey.unknown_categories, num_unknown, self.job.schemas))
        if not survey.cells:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in survey.dead.most_common())
            raise UsageError("\n  ".join([f"no row of the catalog can be extracted: {reasons}", *unknown]))
        for line in unknown:
            self.console.print(f"Note: {printable(line)}", highlight=False, markup=False, soft_wrap=True)
        return survey

    def _run(self, folder: Folder, pilot: Pilot) -> MeasuredRun:
        return read_measured(run_pilot(folder, pilot, self.job.config, self.console))

    def from_run(self, uri: str, utilisation: float | None) -> Forecast:
        """Forecast from an earlier run's metrics and a count of the catalog. Raises `UsageError`."""
        earlier = read_earlier(uri)
        before, now = earlier.plan.result_config, self.job.plan.result_config
        for key in ("model", "adapter", "decoding", "engine", "cascade"):
            if changes := differences({key: before.get(key)}, {key: now.get(key)}):
                raise UsageError(f"--from-run: run {earlier.run_id} was decoded otherwise: {changes[0]}; run a pilot")
        self._check_asked_by(earlier)
        survey = self._survey(seed=0, keep=1)
        rows: Counter[str] = Counter()
        for cell, count in survey.cells.items():
            rows[cell.category] += count.rows
        text_bytes = sum(count.text_bytes for count in survey.cells.values()) / rows.total()
        self._engine = earlier.engine

        def forecast(config: JobConfig, costs: EarlierCosts, num_others: int) -> Forecast:
            return forecast_from_earlier(
                config,
                costs,
                rows,
                text_bytes,
                survey.dead.total(),
                uri,
                utilisation,
                num_others,
                is_same_schemas=earlier.plan.schema_hash == self.job.plan.schema_hash,
                is_dealt_alike=earlier.plan.is_clustered == self.job.plan.is_clustered,
            )

        config, cascade = self.job.config, self.job.config.cascade
        if cascade is None:
            return forecast(config, earlier, 0)
        of_larger = read_earlier(uri, 2)
        self._larger_engine = of_larger.engine
        first = forecast(config, earlier, cascade.actors.max)
        larger = forecast(larger_model(config), of_larger, config.actors.max)
        return with_larger(first, larger, asked_earlier(cascade.below, earlier))

    def _check_asked_by(self, earlier: EarlierCosts) -> None:
        """Raise `UsageError` if the calibration differs, because then other answers would be asked again."""
        wanted = certainty_of(self.job.config).get("calibration")
        if self.job.config.cascade is None or wanted == earlier.asked_by:
            return
        there, here = (f"calibration {each}" if each else "no calibration" for each in (earlier.asked_by, wanted))
        raise UsageError(
            f"--from-run: run {earlier.run_id} found out by {there} of its first model what the larger one is asked, "
            f"here it would be by {here}; run a pilot"
        )

    def backtest(self, uri: str) -> list[Backtest]:
        """Try pilots on this catalog, using the cost of every row in the run at `uri`. Raises `UsageError`."""
        folder, plan, _ = find_finished(uri, "--backtest")
        if changes := file_differences(plan.files, self.job.plan.files):
            raise UsageError(f"--backtest: run {plan.run_id} is not of this catalog: {changes[0]}")
        if (plan.limit, plan.is_spread) != (self.job.plan.limit, self.job.plan.is_spread):
            asked = f"not {describe_limit(self.job.plan)}"
            raise UsageError(f"--backtest: run {plan.run_id} was begun {describe_limit(plan)}, {asked}")
        numbers = {file.name: index for index, file in enumerate(self.job.plan.files)}
        seconds: dict[tuple[int, int], float] = {}
        for name in folder.list("products"):
            part = read_costs(folder, name, ["source_file", "source_row"])
            if part["engine_seconds"].null_count:
                raise UsageError(f"--backtest: run {plan.run_id} has taken over answers, which say nothing about costs")
            for row in part.to_pylist():
                seconds[numbers[row["source_file"]], row["source_row"]] = row["engine_seconds"] or 0.0
        if not any(seconds.values()):
            raise UsageError(f"--backtest: run {plan.run_id} took no engine time, so there is no cost to forecast")
        survey = self._survey(seed=0, keep=self.job.plan.num_rows)
        tried = [backtest(survey, seconds, share, _TRIALS) for share in SHARES]
        if not any(tried):
            raise UsageError(f"--backtest: a tenth of {survey.num_rows} rows is too small for a pilot")
        return [each for each in tried if each is not None]

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


def _pilot(wanted: Mapping[str, Any], survey: Survey, draw: PilotDraw) -> Pilot:
    cells = survey.cells.values()
    return Pilot(
        wanted, sum(cell.rows for cell in cells), sum(cell.text_bytes for cell in cells), dict(survey.dead), draw
    )


def run_gold(job: PlannedJob, gold: str, pilot: Folder, console: Console) -> str:
    """Run the rest of the run over the gold file's products, and return its folder.

    Raises `UsageError` if the catalog has none of them, `RunError` if counts differ, and as `run_job`.
    """
    rows = _gold_rows(job, gold)
    if not rows:
        raise UsageError(f"{gold} does not belong to this catalog: it has none of its products")
    name = content_hash([rows, without_threshold(job.plan.result_config) | certainty_of(job.config)])
    config = _gold_config(job.config, pilot.describe(f"gold-{name}/run"))
    console.print(f"Both models answer the {sum(map(len, rows.values())):,} products of {gold}.", highlight=False)
    outcome = run_job(plan_job(config, only=rows), console)
    if outcome.discrepancy is not None:
        raise RunError(f"the counts of the run over {gold} do not add up: {outcome.discrepancy}")
    return config.output


def _gold_rows(job: PlannedJob, gold: str) -> dict[str, list[int]]:
    """Return input file -> numbers of its rows that the gold file labels, ascending."""
    products = read_gold(gold, job.schemas)
    ids = {product.product_id for product in products if product.product_id is not None}
    numbers = {product.row for product in products if product.product_id is None}
    name_of_gold = PurePosixPath(gold).name
    found: defaultdict[str, list[int]] = defaultdict(list)
    for file, row in planned_rows(job):
        if row.values is None:
            continue
        name = job.plan.files[file].name
        own = default_id(name, row.number) if job.config.input.id is None else row_id(row.values, job.config.input)
        # Lines without ids belong to the rows of the same number, where the job reads the gold file itself.
        if own in ids or (row.number in numbers and PurePosixPath(name).name == name_of_gold):
            found[name].append(row.number)
    return {name: sorted(rows) for name, rows in found.items()}


def _gold_config(config: JobConfig, output: str) -> JobConfig:
    assert config.cascade is not None
    return measured_job(config, output, cascade=config.cascade.model_copy(update={"below": ALL}))
