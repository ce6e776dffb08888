"""The driver of `pipelines/plan.py`: surveys, draws, runs, and computes the forecast; every step is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from rich.console import Console

from pipelines.config import JobConfig
from pipelines.config_file import load_config
from pipelines.costing.backtest import SHARES, Backtest, backtest
from pipelines.costing.draw import Draw, draw_rows
from pipelines.costing.earlier import read_earlier
from pipelines.costing.forecast import FORECAST_NAME, Forecast, pilot_folder
from pipelines.costing.forecasting import forecast_from_earlier, forecast_from_pilots, on_other_machine
from pipelines.costing.machines import EFFICIENCY, find_gpu
from pipelines.costing.pilot import (
    SECOND_NAME,
    MeasuredRun,
    Pilot,
    find_pilot,
    identity,
    read_measured,
    run_pilot,
    store_pilot,
)
from pipelines.costing.strata import Stratum, make_strata
from pipelines.costing.survey import Survey, survey_catalog
from pipelines.errors import UsageError
from pipelines.folders import Folder
from pipelines.planned import PlannedJob, plan_job
from pipelines.run_plan import file_differences, find_finished
from pipelines.tables import read_part

_TRIALS = 200


@dataclass(slots=True)
class Planner:
    """One catalog and its pilot folder."""

    job: PlannedJob
    folder: Folder
    console: Console
    _engine: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        config: str,
        changes: Sequence[str],
        limit: int | None,
        folder: str | None,
        on: str | None,
        console: Console,
    ) -> Self:
        """Checks the job and plans it. Raises `UsageError`."""
        named = [] if on is None else [f"cost.instance_type={on}"]
        if on is not None:
            find_gpu(on)
        loaded = load_config(JobConfig, config, [*changes, *named])
        place = Folder(folder or pilot_folder(loaded.output))
        place.require()
        # The catalog as a whole and from its beginning, whatever has been done of it: what an earlier run has answered
        # is not taken off, and a run that is under way does not matter. Nothing is written to this output.
        whole = {"base": None, "retry_failed": None, "run_id": None, "output": place.describe("catalog")}
        return cls(plan_job(loaded.model_copy(update=whole), limit), place, console)

    def from_pilot(self, num_rows: int, num_more: int, seed: int, utilisation: float | None) -> Forecast:
        """Draws, runs and measures what is left of the pilots. Raises `UsageError`, or `RunError` to be continued."""
        strata: list[Stratum] | None = None
        wanted = identity(self.job, num_rows, seed)
        first = find_pilot(self.folder, wanted)
        if first is None:
            survey = self._survey(seed, num_rows + num_more)
            strata = make_strata(survey, num_rows)
            first = _pilot(wanted, survey, draw_rows(strata, num_rows, seed))
            store_pilot(self.folder, first, self.job)
        pilots = [(first, self._run(self.folder, first))]
        if num_more:
            folder = Folder(self.folder.describe(SECOND_NAME))
            wanted = identity(self.job, num_more, seed) | {"after": num_rows}
            second = find_pilot(folder, wanted)
            if second is None:
                survey = self._survey(seed, num_rows + num_more)
                strata = make_strata(survey, num_rows)
                draw = _second_draw(strata, *pilots[0], num_more, seed)
                second = _pilot(wanted, survey, draw)
                store_pilot(folder, second, self.job)
            pilots.append((second, self._run(folder, second)))
        self._engine = pilots[0][1].engine
        return forecast_from_pilots(self.job.config, pilots, self.folder.uri, utilisation)

    def _survey(self, seed: int, keep: int) -> Survey:
        """Reads the catalog. Raises `UsageError` if no row of it can be decoded."""
        total = self.job.plan.num_rows
        with self.console.status(f"Reading {total:,} rows ...") as status:
            survey = survey_catalog(
                self.job, seed, keep, lambda rows: status.update(f"Reading the catalog: {rows:,} of {total:,} rows")
            )
        if not survey.cells:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in survey.dead.most_common())
            raise UsageError(f"no row of the catalog can be extracted: {reasons}")
        return survey

    def _run(self, folder: Folder, pilot: Pilot) -> MeasuredRun:
        return read_measured(run_pilot(folder, pilot, self.job.config, self.console))

    def from_run(self, uri: str, utilisation: float | None) -> Forecast:
        """From an earlier run's metrics, and a count of the catalog. Raises `UsageError`."""
        earlier = read_earlier(uri)
        survey = self._survey(seed=0, keep=1)
        rows: Counter[str] = Counter()
        for cell, count in survey.cells.items():
            rows[cell.category] += count.rows
        text_bytes = sum(count.text_bytes for count in survey.cells.values()) / rows.total()
        self._engine = earlier.engine
        return forecast_from_earlier(self.job.config, earlier, rows, text_bytes, survey.dead.total(), uri, utilisation)

    def backtest(self, uri: str) -> list[Backtest]:
        """Pilots tried on this catalog, whose every row's cost is in the run. Raises `UsageError`."""
        folder, plan, _ = find_finished(uri, "--backtest")
        if changes := file_differences(plan.files, self.job.plan.files):
            raise UsageError(f"--backtest: run {plan.run_id} is not of this catalog: {changes[0]}")
        numbers = {file.name: index for index, file in enumerate(self.job.plan.files)}
        seconds: dict[tuple[int, int], float] = {}
        for name in folder.list("products"):
            part = read_part(folder, f"products/{name}", ["source_file", "source_row", "engine_seconds"])
            for row in part.to_pylist():
                seconds[numbers[row["source_file"]], row["source_row"]] = row["engine_seconds"] or 0.0
        survey = self._survey(seed=0, keep=self.job.plan.num_rows)
        tried = [backtest(survey, seconds, share, _TRIALS) for share in SHARES]
        if not any(tried):
            raise UsageError(f"--backtest: a tenth of {survey.num_rows} rows is too small for a pilot")
        return [each for each in tried if each is not None]

    def store(self, forecast: Forecast, on: str | None, efficiency: float | None) -> Forecast:
        """Keeps the forecast, moved to another machine if one is named. Raises `UsageError`."""
        if on is not None:
            gpu = find_gpu(on)
            if gpu.name not in forecast.device:
                share = EFFICIENCY if efficiency is None else efficiency
                forecast = on_other_machine(forecast, self.job.config, self._engine, gpu, share)
        try:
            self.folder.write(FORECAST_NAME, forecast.to_json())
        except OSError as error:
            raise UsageError(f"cannot write to {self.folder.uri}: {error}") from error
        return forecast


def _pilot(wanted: Mapping[str, Any], survey: Survey, draw: Draw) -> Pilot:
    cells = survey.cells.values()
    return Pilot(
        wanted, sum(cell.rows for cell in cells), sum(cell.text_bytes for cell in cells), dict(survey.dead), draw
    )


def _second_draw(strata: Sequence[Stratum], first: Pilot, measured: MeasuredRun, num_rows: int, seed: int) -> Draw:
    """More rows where rows x spread of the cost is largest (Neyman's allocation), on top of those that are drawn."""
    if [dict(stratum.rows) for stratum in strata] != [dict(rows) for rows in first.draw.strata_rows]:
        raise UsageError("the catalog has changed since the first pilot; begin anew in another folder (--folder)")
    costs: list[list[float]] = [[] for _ in strata]
    for number, row in enumerate(first.draw.rows):
        costs[row.stratum].append(measured.seconds.get(number, 0.0))
    taken = [len(each) for each in costs]
    spread = [float(np.std(each, ddof=1)) if len(each) > 1 else 0.0 for each in costs]
    weights = [stratum.num_rows * each for stratum, each in zip(strata, spread, strict=True)]
    total = sum(weights) or 1.0
    wanted = [weight / total * (sum(taken) + num_rows) for weight in weights]
    missing = [max(0.0, ideal - have) for ideal, have in zip(wanted, taken, strict=True)]
    return draw_rows(strata, num_rows, seed + 1, missing if any(missing) else None, taken)
