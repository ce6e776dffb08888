"""Pilots: a drawn sample of the catalog, run through the real engine by the same job as the catalog itself.

<output>.pilot/draw.json      counts of the catalog, and the drawn rows
<output>.pilot/sample.jsonl   these rows, in the order in which they run
<output>.pilot/run/           the run over them, one shard per batch
<output>.pilot/second/...     the same for a second pilot, where the first one found the largest spread
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from rich.console import Console

from hpd_core.decoding.memory import Limits
from pipelines.catalog.cells import field_text
from pipelines.catalog.paths import value_at
from pipelines.catalog.readers import pick_rows
from pipelines.catalog.rows import row_id, row_json
from pipelines.catalog.sharding import RowRange, Shard
from pipelines.config.catalog_input import InputConfig
from pipelines.config.extraction import JobConfig
from pipelines.config.operation import CostConfig
from pipelines.errors import RunError, UsageError
from pipelines.job.job_run import run_job
from pipelines.job.named_models import wanted_confidence
from pipelines.job.preflight import PlannedJob, plan_job
from pipelines.job.run_plan import differences
from pipelines.quality.both_answers import ALL, asked_answers
from pipelines.quality.curve import AskedProduct
from pipelines.reporting.strata import MIN_ROWS, PilotDraw, Stratum, draw_rows
from pipelines.reporting.survey import merged_pieces
from pipelines.store.folders import Folder
from pipelines.store.ledger import Ledger
from pipelines.store.run_tables import published_tables
from pipelines.store.tables import open_part, read_part

DRAW_NAME = "draw.json"
SAMPLE_NAME = "sample.jsonl"
SECOND_NAME = "second"
PILOT_RUN = "run"
"""Name of the pilot's run, in its folder."""

# A shard of the real run holds many more products than a batch: with more batches in it the engine is as full.
_LEAST_IN_FLIGHT, _MOST_IN_FLIGHT = 4, 16


@dataclass(frozen=True, slots=True)
class Pilot:
    """Drawn pilot, stored before it runs.

    Attributes:
        identity: inputs and settings of the draw. A pilot with another identity is another one.
        rows, text_bytes: totals of the catalog, without the rows in `dead`.
        dead: reason -> number of rows that cannot be extracted.
    """

    identity: Mapping[str, Any]
    rows: int
    text_bytes: int
    dead: Mapping[str, int]
    draw: PilotDraw

    def to_json(self) -> bytes:
        """Encode it as stored."""
        return json.dumps(asdict(self) | {"draw": self.draw.to_dict()}, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Restore a pilot from the parsed data of `to_json`."""
        return cls(**{**data, "draw": PilotDraw.from_dict(data["draw"])})


def identity(job: PlannedJob, num_rows: int, seed: int) -> dict[str, Any]:
    """Return everything a pilot depends on: the catalog, settings that decide results, schemas, its size and seed."""
    return {
        "files": [asdict(file) for file in job.plan.files],
        "limit": job.plan.limit,
        "config": without_threshold(job.plan.result_config),
        "schema_hash": job.plan.schema_hash,
        "num_rows": num_rows,
        "seed": seed,
        **certainty_of(job.config),
    }


def certainty_of(config: JobConfig) -> dict[str, str]:
    """Return the hash of the calibration of a cascade's first model, if any. Raises `UsageError` for a damaged one."""
    if config.cascade is None:
        return {}
    hashes = [each.calibration.hash for each in wanted_confidence(config).calibrations if not each.of_larger]
    return {"calibration": hashes[0]} if hashes else {}


def without_threshold(config: Mapping[str, Any]) -> dict[str, Any]:
    """Replace a cascade's threshold in the settings by `ALL`, because in a pilot both models answer everything."""
    cascade = config.get("cascade")
    return dict(config) | ({} if cascade is None else {"cascade": cascade | {"below": ALL}})


def find_pilot(folder: Folder, wanted: Mapping[str, Any]) -> Pilot | None:
    """Return the pilot in the folder, or None. Raises `UsageError` if it is not the wanted one."""
    data = folder.read_json(DRAW_NAME)
    if data is None:
        return None
    pilot = Pilot.from_json(data)
    if changes := differences(dict(pilot.identity), dict(wanted)):
        shown = "; ".join(line if len(line) < 120 else line[:117] + "..." for line in changes[:3])
        raise UsageError(
            f"{folder.uri} holds another pilot: {shown}. Name another folder (--folder), or remove that one"
        )
    return pilot


def store_pilot(folder: Folder, pilot: Pilot, job: PlannedJob) -> None:
    """Write the sample, then the draw, so that a stored draw has its sample. Raises `UsageError` if writing fails."""
    lines = _sample_lines(pilot.draw, job)
    try:
        folder.write(SAMPLE_NAME, b"".join(line + b"\n" for line in lines))
        folder.write(DRAW_NAME, pilot.to_json())
    except OSError as error:
        raise UsageError(f"cannot write to {folder.uri}: {error}") from error


def _sample_lines(draw: PilotDraw, job: PlannedJob) -> list[bytes]:
    """Read the drawn rows as JSONL lines, in order, with only the mapped columns. Raises `RunError` if one is gone."""
    wanted: dict[int, set[int]] = defaultdict(set)
    for row in draw.rows:
        wanted[row.file].add(row.row)
    config, found = job.config.input, {}
    for piece in merged_pieces(job):
        numbers = {number for number in wanted[piece.file] if piece.start <= number < piece.stop}
        if not numbers:
            continue
        source = job.plan.files[piece.file]
        picked = pick_rows(*source.rows, piece, numbers, config.columns, anonymous=config.anonymous)
        for read in picked:
            if read.values is not None:
                values = {path: _plain(value_at(read.values, path), config) for path in config.columns}
                if config.id is not None and config.id.column is not None:
                    values[config.id.column] = row_id(read.values, config)
                found[piece.file, read.number] = row_json(values).encode()
    missing = [row for row in draw.rows if (row.file, row.row) not in found]
    if missing:
        name = job.plan.files[missing[0].file].name
        raise RunError(f"{name} has changed while the pilot was drawn: row {missing[0].row} is gone")
    return [found[row.file, row.row] for row in draw.rows]


def _plain(value: Any, config: InputConfig) -> Any:
    """Convert a cell to JSON data that yields the same text."""
    if isinstance(value, list):
        return [field_text(item, config.list_separator) for item in value]
    return field_text(value, config.list_separator)


def run_pilot(folder: Folder, pilot: Pilot, config: JobConfig, console: Console) -> str:
    """Run the rest of the pilot and return the run's folder. Raises as `run_job`, and `RunError` if counts differ."""
    place = folder.absolute_uri
    in_flight = batches_in_flight(pilot.draw, config)
    job = plan_job(_pilot_config(config, f"{place}/{SAMPLE_NAME}", f"{place}/{PILOT_RUN}", in_flight))
    if job.is_new:
        shards = _batches(pilot.draw, folder.read(SAMPLE_NAME))
        job = dataclasses.replace(job, plan=dataclasses.replace(job.plan, shards=shards))
    outcome = run_job(job, console)
    if outcome.discrepancy is not None:
        raise RunError(f"the pilot's counts do not add up: {outcome.discrepancy}")
    return job.output.uri


def batches_in_flight(draw: PilotDraw, config: JobConfig) -> int:
    """Return the number of batches in flight that hold twice the products that the engine decodes at a time."""
    per_batch = len(draw.rows) / draw.num_batches
    # Whether a cluster has GPUs is not known before it is joined; with more batches than it needs, a CPU is as full.
    on_gpu = config.actors.num_gpus != 0 and (torch.cuda.is_available() or "RAY_ADDRESS" in os.environ)
    limits = Limits.of(config.engine, torch.device("cuda" if on_gpu else "cpu"))
    wanted = math.ceil(2 * limits.max_prompts_per_cohort / per_batch)
    return max(config.actors.max_in_flight, min(_MOST_IN_FLIGHT, max(_LEAST_IN_FLIGHT, wanted)))


def _pilot_config(config: JobConfig, sample: str, output: str, in_flight: int) -> JobConfig:
    source = config.input.model_copy(update={"path": (sample,), "format": "jsonl", "anonymous": False})
    # One engine: with several, few batches would be left for each, and all of them would be filling or draining.
    actors = config.actors.model_copy(update={"min": 1, "max": 1, "max_in_flight": in_flight})
    cascade = config.cascade
    if cascade is not None:
        of_larger = cascade.actors.model_copy(update={"min": 1, "max": 1, "max_in_flight": in_flight})
        cascade = cascade.model_copy(update={"actors": of_larger, "below": ALL})
    return measured_job(config, output, input=source, actors=actors, cascade=cascade)


def measured_job(config: JobConfig, output: str, **changes: Any) -> JobConfig:
    """Return a job that measures what `config` will take: everything is decoded, in shards as they stand."""
    common = {
        "output": output,
        "shards": config.shards.model_copy(update={"cluster_by_category": False}),
        "run_id": None,
        # What can be carried over is not what a product costs.
        "base": None,
        "retry_failed": None,
        # The machines that are planned for need not be the one that it runs on, which says itself what it is.
        "cost": CostConfig(),
        # Many dead letters are a result, too.
        "max_dead_letter_share": 1.0,
    }
    return config.model_copy(update=common | changes)


def _batches(draw: PilotDraw, sample: bytes) -> list[Shard]:
    """Return one shard per batch, in order."""
    sizes = [len(line) for line in sample.splitlines(keepends=True)]
    counts = Counter(row.batch for row in draw.rows)
    shards, row, offset = [], 0, 0
    for batch in range(draw.num_batches):
        stop = row + counts[batch]
        end = offset + sum(sizes[row:stop])
        piece = RowRange(0, row, stop, stop - row, offset, end)
        shards.append(Shard(batch, (piece,), stop - row, end - offset))
        row, offset = stop, end
    return shards


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """Measurements of the engine in a finished run's tables.

    Attributes:
        seconds: row number -> engine seconds; 0 for rows without a cost.
        metrics: one row per shard.
        engine: description of the engine.
        larger: measurements of a cascade's larger model.
    """

    seconds: Mapping[int, float]
    metrics: list[dict[str, Any]]
    engine: Mapping[str, Any]
    larger: LargerRun | None = None


@dataclass(frozen=True, slots=True)
class LargerRun:
    """Measurements of a cascade's larger model in a finished run's tables.

    Attributes:
        products: row number -> its seconds, and the answers that were asked again.
        metrics: one row per shard.
        engine: description of the engine.
    """

    products: Mapping[int, AskedProduct]
    metrics: list[dict[str, Any]]
    engine: Mapping[str, Any]


def read_costs(folder: Folder, name: str, columns: list[str]) -> pa.Table:
    """Read `engine_seconds` and those of `columns` that a part of the products has.

    Raises `UsageError` if the run did not record costs, `RunError` if it cannot be read.
    """
    with open_part(folder, f"products/{name}") as file:
        part = pq.ParquetFile(file)
        if "engine_seconds" not in part.schema_arrow.names:
            raise UsageError(f"the run in {folder.uri} is from before the cost of a product was kept; run a pilot")
        return part.read(columns=[*columns, "engine_seconds"])


def read_metrics(folder: Folder, number: int = 1) -> list[dict[str, Any]]:
    """Read the metrics of a run, one row per shard. Raises `RunError` if a part cannot be read.

    Args:
        number: 1, or 2 for a cascade's larger model.
    """
    rows = [row for name in folder.list("metrics") for row in read_part(folder, f"metrics/{name}").to_pylist()]
    return [row for row in rows if (row.get("pass") or 1) == number]


def read_measured(uri: str) -> MeasuredRun:
    """Read the measurements of a finished run. Raises `RunError` if a table cannot be read."""
    folder = Folder(uri)
    seconds: dict[int, float] = {}
    of_larger: dict[int, float] = {}
    for name in folder.list("products"):
        for row in read_costs(folder, name, ["source_row", "cascade_seconds"]).to_pylist():
            seconds[row["source_row"]] = row["engine_seconds"] or 0.0
            of_larger[row["source_row"]] = row.get("cascade_seconds") or 0.0
    manifest = Ledger(folder, "").finished() or {}
    larger = None
    if (cascade := manifest.get("cascade")) is not None:
        asked = {key.source_row: answers for key, answers in asked_answers(published_tables(uri)).items()}
        products = {row: AskedProduct(of_larger[row], asked.get(row, ())) for row in of_larger}
        larger = LargerRun(products, read_metrics(folder, 2), cascade["engine"])
    return MeasuredRun(seconds, read_metrics(folder), Ledger(folder, "").engine(), larger)


# Half of the rows go where the work is, whatever the first pilot found: what it found of a few rows may be luck.
_SHARE_BY_SPREAD = 0.5


def check_second(strata: Sequence[Stratum], num_first: int, num_rows: int) -> None:
    """Raise `UsageError` if a second pilot of `num_rows` rows cannot be drawn."""
    if num_rows < MIN_ROWS:
        raise UsageError(f"--second-pilot {num_rows} says nothing; take at least {MIN_ROWS}")
    least = 2 * len(strata)
    if num_rows < least:
        raise UsageError(f"--second-pilot {num_rows}: there are {len(strata)} strata, take at least {least} rows")
    rows = sum(stratum.num_rows for stratum in strata)
    if rows < num_first + MIN_ROWS:
        raise UsageError(f"--second-pilot: the first one takes {num_first} of {rows} rows, nearly all there are")


def second_draw(strata: Sequence[Stratum], first: Pilot, measured: MeasuredRun, num_rows: int, seed: int) -> PilotDraw:
    """Draw rows that the first pilot does not have; half of them by rows x spread of the cost (Neyman's allocation).

    Raises `UsageError` if the catalog has changed since the first pilot.
    """
    if [dict(stratum.rows) for stratum in strata] != [dict(rows) for rows in first.draw.strata_rows]:
        raise UsageError("the catalog has changed since the first pilot; begin anew in another folder (--folder)")
    costs: list[list[float]] = [[] for _ in strata]
    for number, row in enumerate(first.draw.rows):
        costs[row.stratum].append(measured.seconds.get(number, 0.0))
    return draw_rows(strata, num_rows, seed + 1, _weights(strata, costs), [len(each) for each in costs])


def _weights(strata: Sequence[Stratum], costs: Sequence[Sequence[float]]) -> list[float]:
    spread = [float(np.std(each, ddof=1)) if len(each) > 1 else 0.0 for each in costs]
    by_spread = [stratum.num_rows * each for stratum, each in zip(strata, spread, strict=True)]
    by_size = [stratum.size for stratum in strata]
    total, size = sum(by_spread) or 1.0, sum(by_size)
    return [
        _SHARE_BY_SPREAD * one / total + (1 - _SHARE_BY_SPREAD) * other / size
        for one, other in zip(by_spread, by_size, strict=True)
    ]
