"""A job beside the bare engine: the same shards once as one `extract` in one process, and once through the job."""

from __future__ import annotations

import dataclasses
import multiprocessing
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch

from bench.load.measured_run import LoadedRun, make_table, print_tables, run_measured
from hpd_core import HPDError, Record
from hpd_core.system.device import num_cpus
from pipelines.catalog.readers import read_piece
from pipelines.catalog.rows import to_record
from pipelines.config.extraction import JobConfig
from pipelines.errors import RunError, UsageError
from pipelines.job.decode_stage import load_engine
from pipelines.job.preflight import PlannedJob, plan_job

MIN_SHARDS = 10


@dataclass(frozen=True, slots=True)
class CoreRun:
    """One `extract` of everything with a loaded engine, tokenization included; CPU seconds of all its threads."""

    num_records: int
    seconds: float
    cpu_seconds: float
    num_threads: int


@dataclass(frozen=True, slots=True)
class JobComparison:
    """The same products, model and threads on both sides.

    Attributes:
        job_seconds: from the first shard's tokenization and admission to the last commit.
    """

    core: CoreRun
    job: LoadedRun
    job_seconds: float

    @property
    def ratio(self) -> float:
        """Return the job's speed as a share of the bare engine's."""
        return self.core.seconds / self.job_seconds


def compare(config: JobConfig, folder: Path) -> JobComparison:
    """Run both, one after the other, each with a freshly loaded engine. `config.output` must be a new local folder.

    Raises `UsageError` or `RunError`.
    """
    job = plan_job(config)
    if len(job.plan.shards) < MIN_SHARDS:
        raise UsageError(
            f"the job has {len(job.plan.shards)} shards, {MIN_SHARDS} are needed: lower shards.target_tokens"
        )
    # A process of its own, as the job's engine has: threads and memory are its alone.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        core = pool.submit(run_core, job).result()
    measured = run_measured(config.model_dump(mode="json", exclude_none=True), folder)
    if measured.row_counts["products"] != core.num_records:
        raise RunError(f"the job extracted {measured.row_counts['products']} products of {core.num_records}")
    return JobComparison(core, measured, _admit_to_commit(Path(config.output)))


def run_core(job: PlannedJob) -> CoreRun:
    """Read the catalog, load the engine, then take the time of one `extract`."""
    config = job.config
    records = read_records(job)
    num_threads = config.actors.num_threads or max(1, num_cpus() // config.actors.most())
    torch.set_num_threads(num_threads)
    try:
        with load_engine(config) as engine:
            started, cpu = time.perf_counter(), time.process_time()
            engine.extract(records, job.schemas)
            seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    except HPDError as error:
        raise UsageError(str(error)) from error
    return CoreRun(len(records), seconds, cpu, num_threads)


def read_records(job: PlannedJob) -> list[Record]:
    """Return the plan's records in order. Raise `UsageError` if a row is none: the two sides would not do the same."""
    files, given = job.plan.files, job.config.input
    found: list[Record] = []
    for shard in job.plan.shards:
        for piece in shard.pieces:
            file = files[piece.file]
            for row in read_piece(*file.rows, piece, given.columns, anonymous=given.anonymous):
                values: Mapping[str, object] = row.values or {}
                record = to_record(values, str(row.number), given, job.schemas)
                if not isinstance(record, Record):
                    raise UsageError(f"row {row.number} of {file.name}: {record.message}")
                found.append(record)
    return found


def _admit_to_commit(output: Path) -> float:
    """Return the seconds from the first admission to the last commit, plus the first shard's preparation."""
    admissions = {path: path.stat().st_mtime for path in (output / "_attempts").glob("*/*.json")}
    first = min(admissions, key=admissions.__getitem__)
    commits = [path.stat().st_mtime for path in (output / "_shards").glob("*.json")]
    metrics = pq.read_table(output / "metrics" / f"part-{first.parent.name}.parquet", columns=["prepare_seconds"])
    return max(commits) - admissions[first] + float(metrics.column(0)[0].as_py())


def report_comparison(found: JobComparison) -> dict[str, Any]:
    """Print how much of the bare engine's speed a job keeps, and return it as plain data."""
    bare, job = found.core, found.job
    title = f"{bare.num_records:,} products, {job.totals['shards']} shards, {bare.num_threads} threads"
    table = make_table(title, "", "s", "products/s", "CPU s")
    cpu = sum(usage.cpu_seconds for usage in job.usage.values())
    for name, seconds, cpu_seconds in (
        ("one extract, tokenization included", bare.seconds, bare.cpu_seconds),
        ("the job, first admission to last commit", found.job_seconds, None),
        ("the job from start to end", job.startup_seconds + job.work_seconds + job.end_seconds, cpu),
    ):
        text = "" if cpu_seconds is None else f"{cpu_seconds:.1f}"
        table.add_row(name, f"{seconds:.1f}", f"{bare.num_records / seconds:.2f}", text)
    print_tables(table, f"The job has {found.ratio:.1%} of the bare engine's speed.")
    return dataclasses.asdict(found) | {"ratio": found.ratio}
