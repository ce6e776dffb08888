"""A run from its plan to its manifest. The command line is `pipelines/extract.py`."""

from __future__ import annotations

import dataclasses
import datetime
import json
import platform
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem
from rich.console import Console

from hpd_core import CategorySchema, DocumentTokenizer, HPDError
from hpd_core.adapters import open_adapter
from pipelines.carryover import CarryIndex, CarryOver, EarlierRun, has_wildcard, newest_run, store_schemas
from pipelines.changes import Changes, find_changes
from pipelines.config import JobConfig
from pipelines.context import CarryOverRef, JobContext, SourceRef
from pipelines.errors import BudgetError, ProcessesDiedError, RunError, UsageError
from pipelines.failed import FailedRows
from pipelines.folders import Folder, open_filesystem
from pipelines.lease import RunLease
from pipelines.ledger import Ledger
from pipelines.plan import PLAN_NAME, Plan, check_resume, find_plan, make_plan, planned_files
from pipelines.progress import show_progress
from pipelines.schemas import load_schemas
from pipelines.sources import scan_sources
from pipelines.totals import Totals


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Attributes:
        was_finished: nothing was left to do.
        seconds: wall time of this session's work; 0 if there was none.
        products_per_second: of this session, loading included; None if there was none.
        discrepancy: what does not add up; None if everything does.
        notes: what the user should know about the settings.
        changes: against the run that `base` names, if there is one.
    """

    plan: Plan
    totals: Totals
    was_finished: bool = False
    seconds: float = 0.0
    products_per_second: float | None = None
    discrepancy: str | None = None
    notes: Sequence[str] = ()
    changes: Changes | None = None


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job that is checked and planned; nothing has been written for a new one.

    Attributes:
        earlier: the run that `base` names, whose answers are taken over where nothing has changed.
    """

    config: JobConfig
    schemas: dict[str, CategorySchema]
    output: Folder
    plan: Plan
    is_new: bool
    earlier: EarlierRun | None = None


def plan_job(config: JobConfig, limit: int | None = None) -> PlannedJob:
    """Checks everything that can be checked before any work. Raises `UsageError`."""
    schemas = load_schemas(config.schemas)
    output = Folder(config.output)
    try:
        stored = find_plan(output)
    except OSError as error:
        raise UsageError(f"cannot read output folder {output.uri}: {error}") from error
    config = _with_base(config, stored, output)
    files = scan_sources(config.input)
    if stored is not None:
        check_resume(stored, make_plan(config, schemas, files, limit), config, output)
        return PlannedJob(config, schemas, output, stored, is_new=False, earlier=_reopen(config, stored, output))
    earlier = EarlierRun.open(config.base, output) if config.base is not None else None
    only = None
    if config.retry_failed is not None:
        failed = FailedRows.read(config.retry_failed)
        failed.check_input(planned_files(files))
        only = failed.rows
    plan = make_plan(config, schemas, files, limit, only, earlier.plan.run_id if earlier is not None else None)
    return PlannedJob(config, schemas, output, plan, is_new=True, earlier=earlier)


def _reopen(config: JobConfig, stored: Plan, output: Folder) -> EarlierRun | None:
    """The base of a run that is continued. One that is gone is done without: what was not taken over yet is decoded."""
    if config.base is None:
        return None
    try:
        earlier = EarlierRun.open(config.base, output)
    except UsageError:
        return None
    return earlier if earlier.plan.run_id == stored.base_run_id else None


def _with_base(config: JobConfig, stored: Plan | None, output: Folder) -> JobConfig:
    """The configuration with one run for its `base`: a pattern is the newest run that it matches, if there is one."""
    if config.base is None or not has_wildcard(config.base):
        return config
    # A run that is continued keeps the base that it began with.
    base = newest_run(config.base, output) if stored is None else stored.result_config.get("base")
    return config.model_copy(update={"base": base})


def run_job(job: PlannedJob, console: Console) -> Outcome:
    """Does what is left of the run. Raises `UsageError`, or `RunError` or `OSError` if a rerun has to continue it."""
    ledger = Ledger(job.output, session=secrets.token_hex(4))
    if (manifest := ledger.finished()) is not None:
        return _finished(job, manifest)
    _check_model(job.config)
    job = _store_plan(job)
    with RunLease(job.output, job.config.retries.lease_seconds).hold(console) as lease:
        if (manifest := ledger.finished()) is not None:  # by the driver that held the lease before
            return _finished(job, manifest)
        return _work(job, ledger, lease, console)


def _finished(job: PlannedJob, manifest: Mapping[str, Any]) -> Outcome:
    totals = Totals.from_dict(manifest["totals"])
    changes = Changes.from_dict(manifest["changes"]) if manifest.get("changes") else None
    return Outcome(job.plan, totals, was_finished=True, notes=manifest.get("notes", ()), changes=changes)


def _work(job: PlannedJob, ledger: Ledger, lease: RunLease, console: Console) -> Outcome:
    store_schemas(job.output, job.schemas)
    totals = Totals()
    for shard in ledger.manifests(sorted(ledger.committed())):
        totals.add(shard)
    if totals.shards:
        console.print(f"Continuing run {job.plan.run_id}: {totals.rows:,} of {job.plan.num_rows:,} rows are done.")
    with show_progress(console, totals, job.plan.num_rows, job.config.log_seconds) as speed:
        if totals.shards < len(job.plan.shards):
            _decode_pending(job, ledger, totals, lease, console)
        pace = speed.products_per_second
        seconds = speed.elapsed
    return _finish(job, ledger, seconds, pace)


def _check_model(config: JobConfig) -> None:
    """Finds (and downloads) tokenizer and adapter here, so that a wrong name costs seconds and not a cluster."""
    try:
        DocumentTokenizer.from_pretrained(config.model, config.engine)
    except HPDError as error:
        raise UsageError(f"model {config.model!r}: {error}") from error
    if config.adapter is not None:
        try:
            with open_adapter(config.adapter):
                pass
        except HPDError as error:
            raise UsageError(str(error)) from error


def _store_plan(job: PlannedJob) -> PlannedJob:
    try:
        if not job.is_new or job.output.create(PLAN_NAME, job.plan.to_json()):
            return job
    except OSError as error:
        raise UsageError(f"cannot write to output folder {job.output.uri}: {error}") from error
    # Another driver was faster with the same folder: work on its plan, if it is the same work.
    stored = find_plan(job.output)
    if stored is None:
        raise RunError(f"the plan in {job.output.uri} has vanished")
    check_resume(stored, job.plan, job.config, job.output)
    return dataclasses.replace(job, plan=stored, is_new=False)


def _decode_pending(job: PlannedJob, ledger: Ledger, totals: Totals, lease: RunLease, console: Console) -> None:
    # Ray takes seconds to import: runs that are refused or finished do without.
    from pipelines.cluster import explain, num_gpus_per_actor, ray_cluster, resource_note
    from pipelines.stages import build_dataset

    with ray_cluster(job.config.actors.max * job.config.actors.num_cpus):
        num_gpus = num_gpus_per_actor(job.config.actors)
        if (note := resource_note(job.config.actors)) is not None:
            console.print(note)
        if job.config.base is not None and job.earlier is None:
            console.print(
                f"Note: {job.config.base} is not the run any more with which this one began: the rest is decoded."
            )
        try:
            carry_over = _carry_over(job, ledger, num_gpus, console)
        except Exception as error:
            raise explain(error) or error from error
        while True:
            lease.check()
            committed = ledger.committed()
            pending = [shard for shard in job.plan.shards if shard.id not in committed]
            if not pending:
                return
            if _is_spent(job.config, totals):
                raise BudgetError(_budget_message(job.config, totals))
            num_parts_done = ledger.num_parts_done()
            try:
                for row in build_dataset(pending, _context(job, ledger, carry_over), num_gpus).iter_rows():
                    totals.add(json.loads(row["summary"]))
                    if lease.is_lost or _is_spent(job.config, totals):
                        break
            except Exception as error:
                explained = explain(error)
                if explained is None:
                    raise
                # Actors that have died too often end a round, and so does a storage that is away. As long as rounds get
                # on, begin another.
                has_committed = ledger.committed() != committed
                if isinstance(explained, ProcessesDiedError):
                    is_stuck = not has_committed and ledger.num_parts_done() == num_parts_done
                else:
                    is_stuck = isinstance(explained, UsageError) or not has_committed
                    # What was being decoded when the round ended has not failed.
                    ledger = Ledger(job.output, session=secrets.token_hex(4))
                if is_stuck:
                    raise explained from error


def _is_spent(config: JobConfig, totals: Totals) -> bool:
    """Whether the run may not go on for its cost: it is too high, or there is a budget and nobody knows the cost."""
    budget = config.cost.max_usd
    return budget is not None and (totals.priced_shards < totals.shards or totals.metrics["cost_billed"] >= budget)


def _budget_message(config: JobConfig, totals: Totals) -> str:
    budget, cost = config.cost.max_usd, totals.metrics["cost_billed"]
    if totals.priced_shards < totals.shards:
        return f"there is a budget of ${budget:g} and no price: set cost.usd_per_hour to what a machine costs"
    return (
        f"the engines have cost ${cost:,.2f} for {totals.rows:,} rows, the budget is ${budget:g} (--max-cost-usd). "
        f"Everything committed is kept"
    )


def _carry_over(job: PlannedJob, ledger: Ledger, num_gpus: float, console: Console) -> CarryOverRef | None:
    """What can be taken over from the run that `base` names; None if nothing can."""
    import ray

    from pipelines.stages import describe_engine

    if job.earlier is None or job.earlier.obstacles(job.config):
        return None
    if not ledger.engine():
        console.print(f"Loading the engine once, to compare it with that of run {job.earlier.plan.run_id}.")
        ledger.check_engine(describe_engine(_portable(job.config), num_gpus))
    carriable = job.earlier.carriable(job.config, job.schemas)
    if job.earlier.obstacles(job.config, ledger.engine()) or not carriable:
        return None
    console.print(f"Looking up what run {job.earlier.plan.run_id} has answered.")
    found = CarryOver(job.earlier.folder, carriable, CarryIndex.build(job.earlier.folder))
    return CarryOverRef(job.earlier.plan.run_id, ray.put(found))


def _context(job: PlannedJob, ledger: Ledger, carry_over: CarryOverRef | None = None) -> JobContext:
    files = [SourceRef(file.name, _absolute(file.name), file.format) for file in job.plan.files]
    return JobContext(
        config=_portable(job.config),
        schemas=job.schemas,
        schema_hash=job.plan.schema_hash,
        run_id=job.plan.run_id,
        session=ledger.session,
        output=job.output,
        files=files,
        carry_over=carry_over,
    )


def _portable(config: JobConfig) -> JobConfig:
    """The configuration for a process with another working directory."""
    if config.adapter is None or not (folder := Path(config.adapter).expanduser()).is_dir():
        return config
    return config.model_copy(update={"adapter": str(folder.absolute())})


def _absolute(name: str) -> str:
    filesystem, path = open_filesystem(name)
    return path if isinstance(filesystem, LocalFileSystem) else name


def _finish(job: PlannedJob, ledger: Ledger, seconds: float, pace: float | None) -> Outcome:
    """Publishes what a killed session left behind, adds up and declares the run finished."""
    manifests = ledger.manifests(sorted(ledger.committed()))
    for manifest in ledger.unpublished(manifests):
        ledger.publish(manifest)
    totals = Totals()
    for manifest in manifests:
        totals.add(manifest)
    discrepancy = totals.discrepancy(len(job.plan.shards), job.plan.num_rows)
    changes = None
    if discrepancy is None:
        if job.earlier is not None:
            obstacles = job.earlier.obstacles(job.config, ledger.engine())
            changes = find_changes(job.earlier, job.output, obstacles, totals.carried)
        ledger.finish(_run_manifest(job, ledger, totals, changes))
    return Outcome(
        job.plan,
        totals,
        seconds=seconds,
        products_per_second=pace,
        discrepancy=discrepancy,
        notes=ledger.engine().get("notes", ()),
        changes=changes,
    )


def _run_manifest(job: PlannedJob, ledger: Ledger, totals: Totals, changes: Changes | None) -> dict[str, Any]:
    plan, engine = job.plan, ledger.engine()
    return {
        "run_id": plan.run_id,
        "created_at": plan.created_at,
        "finished_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "config": job.config.model_dump(mode="json"),
        "config_hash": plan.config_hash,
        "limit": plan.limit,
        "schema_hash": plan.schema_hash,
        "schema_hashes": {category: schema.hash for category, schema in job.schemas.items()},
        "prompt_hash": engine.get("prompt_hash"),
        "model_id": engine.get("model_id"),
        "model_revision": engine.get("model_revision"),
        "adapter_id": job.config.adapter,
        "adapter_revision": engine.get("adapter_revision"),
        "notes": engine.get("notes", []),
        "engine": engine,
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in ("ray", "pyarrow")},
            **engine.get("versions", {}),
        },
        "input": [{"name": file.name, "size": file.size, "fingerprint": file.fingerprint} for file in plan.files],
        "totals": totals.to_dict(),
        "changes": changes.to_dict() if changes is not None else None,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
