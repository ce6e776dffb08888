"""Driver of a run, from its plan to its manifest. The command line is `pipelines/extract.py`."""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rich.console import Console

from hpd_core import DocumentTokenizer, HPDError
from hpd_core.models.adapter_folder import open_adapter
from hpd_core.models.model_files import require_hub
from pipelines.catalog.listing import listed_names
from pipelines.catalog.staging import store_rows
from pipelines.config.extraction import JobConfig
from pipelines.console.progress import show_progress
from pipelines.errors import RunError, UsageError
from pipelines.job.carryover import Changes, find_changes
from pipelines.job.local_executor import LocalExecutor
from pipelines.job.named_models import check_named, confidence_notes, finished_notes, keep_confidence, wanted_confidence
from pipelines.job.preflight import PlannedJob
from pipelines.job.rounds import decode_pending, job_context
from pipelines.job.run_plan import Plan, check_resume, find_plan
from pipelines.quality.both_answers import larger_model
from pipelines.quality.run_confidence import run_confidence
from pipelines.store.lease import RunLease
from pipelines.store.ledger import MANIFEST_NAME, PLAN_NAME, Ledger, named_damage
from pipelines.store.no_run import store_schemas
from pipelines.store.totals import Totals


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Outcome of a run.

    Attributes:
        was_finished: whether the run was finished before, so that nothing was left to do.
        seconds: wall time of this session's work; 0 if there was none.
        products_per_second: speed of this session, loading included; None if there was none.
        discrepancy: counts that do not add up; None if all do.
        notes: notes for the user about the settings.
        changes: changes since the run that `base` names, if there is one.
    """

    plan: Plan
    totals: Totals
    was_finished: bool = False
    seconds: float = 0.0
    products_per_second: float | None = None
    discrepancy: str | None = None
    notes: Sequence[str] = ()
    changes: Changes | None = None


def run_job(job: PlannedJob, console: Console) -> RunOutcome:
    """Do the remaining work of the run. Raises `UsageError`, or `RunError` or `OSError` if a rerun must continue it."""
    ledger = Ledger(job.output, session=secrets.token_hex(4))
    if (manifest := ledger.finished()) is not None:
        return _finished(job, ledger, manifest)
    _check_model(job.config)
    if job.config.cascade is not None:
        _check_model(larger_model(job.config))
    if job.is_new:
        check_named(job.config, wanted_confidence(job.config))  # for their errors: before anything is stored
    job = _store_plan(job)
    with RunLease(job.output, job.config.retries.lease_seconds).hold(console) as lease:
        if (manifest := ledger.finished()) is not None:  # by the driver that held the lease before
            return _finished(job, ledger, manifest)
        return _work(job, ledger, lease, console)


def _finished(job: PlannedJob, ledger: Ledger, manifest: Mapping[str, Any]) -> RunOutcome:
    ledger.clean_up()
    with named_damage(job.output, MANIFEST_NAME):
        totals = Totals.from_dict(manifest["totals"])
        changes = Changes(**manifest["changes"]) if manifest.get("changes") else None
    if missing := ledger.missing(totals.shards):
        raise UsageError(
            f"run {job.plan.run_id} in {job.output.uri} was finished, and files of it are missing: "
            f"{listed_names(missing)}. Restore them from a copy of the run, or extract anew into another output folder"
        )
    notes = [*manifest.get("notes", ()), *finished_notes(job.output, job.config)]
    return RunOutcome(job.plan, totals, was_finished=True, notes=notes, changes=changes)


def _work(job: PlannedJob, ledger: Ledger, lease: RunLease, console: Console) -> RunOutcome:
    store_schemas(job.output, job.schemas)
    committed = ledger.committed()
    notes = keep_confidence(job.output, job.config, has_answers=bool(committed))
    store_rows(job.output, [file.staged for file in job.plan.files if file.staged is not None])
    totals = ledger.totals(ledger.manifests(committed))
    if totals.shards:
        console.print(f"Continuing run {job.plan.run_id}: {totals.rows:,} of {job.plan.num_rows:,} rows are done.")
    executor = make_executor(job, ledger, committed, console)
    with show_progress(console, totals, job.plan.num_rows, job.config.log_seconds, executor.watch) as speed:
        if totals.shards < len(job.plan.shards):
            decode_pending(job, ledger, totals, committed, lease, console, executor)
        pace = speed.products_per_second
        seconds = speed.elapsed
    return _finish(job, ledger, seconds, pace, notes)


def make_executor(job: PlannedJob, ledger: Ledger, committed: Collection[int], console: Console) -> LocalExecutor:
    """Return the executor that the job names, or the one that it needs."""
    config = job.config
    if config.executor == "local" or (config.executor == "auto" and not _wants_ray(job, ledger, committed, console)):
        return LocalExecutor(config)
    from pipelines.job.ray_executor import RayExecutor

    return RayExecutor(config, job.plan.run_id)


def _wants_ray(job: PlannedJob, ledger: Ledger, committed: Collection[int], console: Console) -> bool:
    """Return whether there is a cluster, or work for more than one process."""
    config = job.config
    if os.environ.get("RAY_ADDRESS") or config.cascade is not None or config.needs_ray is not None:
        return True
    if config.actors.max == "auto" and config.engine.device != "cpu":
        import torch  # takes seconds, and an engine in this process imports it anyway

        if torch.cuda.device_count() >= 2 * config.engine.tensor_parallel:
            return True
    # A record that kills its process is found by others that survive it.
    tries = {shard: count for shard, count in ledger.num_tries_without_end().items() if shard not in committed}
    if max(tries.values(), default=0) <= config.retries.max_attempts:
        return False
    shard = max(tries, key=tries.__getitem__)
    console.print(f"Shard {shard} was begun {tries[shard]} times without an end: Ray takes over.")
    return True


def _check_model(config: JobConfig) -> None:
    """Find (and download) tokenizer and adapter here, so that a wrong name costs seconds and not a cluster."""
    try:
        require_hub(config.model)
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


def _finish(
    job: PlannedJob, ledger: Ledger, seconds: float, pace: float | None, session_notes: Sequence[str]
) -> RunOutcome:
    """Publish what a killed session left unpublished, sum up, and mark the run finished if the counts add up."""
    totals = ledger.totals(ledger.publish_missing(ledger.manifests(ledger.committed())))
    discrepancy = totals.discrepancy(len(job.plan.shards), job.plan.num_rows)
    changes = None
    if discrepancy is None:
        if job.earlier is not None:
            engines = [ledger.engine(), *([larger] if (larger := _larger_engine(job, ledger)) is not None else [])]
            obstacles = job.earlier.obstacles(job.config, *engines)
            changes = find_changes(job.earlier, job.output, obstacles, totals.carried)
        ledger.finish(_run_manifest(job, ledger, totals, changes))
    notes = [*_notes(job, ledger), *session_notes]
    return RunOutcome(
        job.plan,
        totals,
        seconds=seconds,
        products_per_second=pace,
        discrepancy=discrepancy,
        notes=notes,
        changes=changes,
    )


def _notes(job: PlannedJob, ledger: Ledger) -> list[str]:
    """Return the notes about the settings, without duplicates where there are two models."""
    engines = [ledger.engine(), _larger_engine(job, ledger) or {}]
    notes = [note for each in engines for note in (*each.get("notes", ()), *confidence_notes(job.output, each))]
    return list(dict.fromkeys(notes))


def _larger_engine(job: PlannedJob, ledger: Ledger) -> dict[str, Any] | None:
    """Return the description of a cascade's larger engine; None without a cascade."""
    return None if job.config.cascade is None else job_context(job, ledger).larger.ledger.engine()


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
        "notes": _notes(job, ledger),
        "engine": engine,
        "cascade": _cascade(job, ledger),
        **run_confidence(job.output).describe(),
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in ("ray", "pyarrow")},
            **engine.get("versions", {}),
        },
        "input": [{"name": file.name, "size": file.size, "fingerprint": file.fingerprint} for file in plan.files],
        "totals": totals.to_dict(),
        "changes": dataclasses.asdict(changes) if changes is not None else None,
    }


def _cascade(job: PlannedJob, ledger: Ledger) -> dict[str, Any] | None:
    cascade, engine = job.config.cascade, _larger_engine(job, ledger)
    if cascade is None or engine is None:
        return None
    names = ("model_id", "model_revision", "adapter_revision", "prompt_hash")
    return {"below": cascade.below, **{name: engine.get(name) for name in names}, "engine": engine}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
