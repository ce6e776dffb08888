"""Decode the uncommitted shards; retry in rounds while each round makes progress."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from fsspec.implementations.local import LocalFileSystem
from rich.console import Console

from hpd_core.models.model_files import portable_name
from pipelines.catalog.staging import STAGED
from pipelines.config.extraction import JobConfig
from pipelines.console.terminal import dollars
from pipelines.errors import BudgetError, ProcessesDiedError, UsageError
from pipelines.job.carryover import CarryIndex, CarryOver, is_independent
from pipelines.job.context import CarryOverRef, JobContext, SourceRef, code_digest
from pipelines.job.local_executor import LocalExecutor
from pipelines.job.preflight import PlannedJob
from pipelines.job.reviewed_answers import ReviewedAnswers
from pipelines.job.run_plan import PlannedFile
from pipelines.store.folders import Folder, open_filesystem
from pipelines.store.lease import RunLease
from pipelines.store.ledger import INPUT_FOLDER, Ledger
from pipelines.store.texts_in_run import left_out_note
from pipelines.store.totals import Totals

_SECONDS_TO_SHOW = 60.0
"""Time for a folder mounted over a network to show what another machine has written."""


def decode_pending(
    job: PlannedJob,
    ledger: Ledger,
    totals: Totals,
    counted: set[int],
    lease: RunLease,
    console: Console,
    executor: LocalExecutor,
) -> None:
    """Commit every shard that is not committed. Raises as `run_job`, or `BudgetError`.

    Every committed shard that is not in `counted` (the shards in `totals` already) is added to `totals`.
    """
    with executor.open(console):
        if job.config.base is not None and job.earlier is None:
            console.print(
                f"Note: {job.config.base} is not the run any more with which this one began: the rest is decoded."
            )
        try:
            carry_over = _carry_over(job, ledger, console, executor)
        except Exception as error:
            raise executor.explain(error) or error from error
        while True:
            lease.check()
            committed = ledger.committed()
            # Commits that this driver was not told of cost as much as any. They were made as a round broke off, or by a
            # task that outlived the session before.
            for manifest in ledger.manifests(committed - counted):
                ledger.count(manifest, totals)
            counted |= committed
            pending = [shard for shard in job.plan.shards if shard.id not in committed]
            if not pending:
                return
            if _is_spent(job.config, totals):
                raise BudgetError(_budget_message(job.config, totals))
            num_parts_done = _num_parts_done(job, ledger)
            try:
                with closing(executor.commit_shards(pending, job_context(job, ledger, carry_over))) as commits:
                    for shard, summary in commits:
                        _check_is_shared(job.output, ledger, shard)
                        totals.add(summary)
                        counted.add(shard)
                        if lease.is_lost or _is_spent(job.config, totals):
                            break
            except Exception as error:
                explained = executor.explain(error)
                if explained is None:
                    raise
                # Actors that have died too often end a round, and so does a storage that is away. Begin another round
                # while they make progress.
                has_committed = ledger.committed() != committed
                if isinstance(explained, ProcessesDiedError):
                    is_stuck = not has_committed and _num_parts_done(job, ledger) == num_parts_done
                else:
                    is_stuck = isinstance(explained, UsageError) or not has_committed
                    # Shards that were being decoded when the round ended have not failed.
                    ledger = Ledger(job.output, session=secrets.token_hex(4))
                if is_stuck:
                    raise explained from error


def _check_is_shared(output: Folder, ledger: Ledger, shard: int) -> None:
    """Raise `UsageError` if a shard that a task has committed is not in the output folder as the driver sees it. The
    folder is then another one on each machine, and the driver would have the shard decoded for ever."""
    if not output.is_local:
        return
    end = time.monotonic() + _SECONDS_TO_SHOW
    while not ledger.is_committed(shard):
        if time.monotonic() > end:
            raise UsageError(
                f"output: shard {shard} was committed, and is not to be seen in {output.uri}: it is another folder on "
                "each machine (name one that all nodes share, or s3://...), or was moved or removed meanwhile"
            )
        time.sleep(1)


def _num_parts_done(job: PlannedJob, ledger: Ledger) -> int:
    """Return the number of parts of shards that were finished, by either model."""
    done = ledger.num_parts_done()
    return done if job.config.cascade is None else done + job_context(job, ledger).larger.ledger.num_parts_done()


def _is_spent(config: JobConfig, totals: Totals) -> bool:
    """Return whether the budget stops the run: the cost has reached it, or the cost is not known."""
    budget = config.cost.max_usd
    return budget is not None and (totals.priced_shards < totals.shards or totals.metrics["cost_billed"] >= budget)


def _budget_message(config: JobConfig, totals: Totals) -> str:
    budget, cost = config.cost.max_usd, totals.metrics["cost_billed"]
    if totals.priced_shards < totals.shards:
        return f"there is a budget of ${budget:g} and no price: set cost.usd_per_hour to what a machine costs"
    return (
        f"the engines have cost {dollars(cost)} for {totals.rows:,} rows, the budget is ${budget:g} (--max-cost-usd). "
        f"Everything committed is kept"
    )


def _carry_over(job: PlannedJob, ledger: Ledger, console: Console, executor: LocalExecutor) -> CarryOverRef | None:
    """Return what is carried over from the run that `base` names; None if nothing is."""
    if (earlier := job.earlier) is None:
        return None
    reviewed = ReviewedAnswers.read(earlier.folder, earlier.normalised)
    for note in left_out_note(reviewed.left_out, earlier.folder.uri):
        console.print(f"Run {earlier.plan.run_id}: {note}.", markup=False, soft_wrap=True)
    of_models = _models_answers(job, ledger, console, executor)
    if of_models is None and not len(reviewed):
        return None
    if len(reviewed):
        console.print(
            f"Run {earlier.plan.run_id} has {len(reviewed):,} reviewed answers: kept where the text is the same."
        )
    carriable, index = of_models or ({}, CarryIndex.empty())
    carried = CarryOver(earlier.folder, carriable, index, reviewed, job.schemas, is_independent(job.config))
    return executor.share(earlier.plan.run_id, carried)


def _models_answers(
    job: PlannedJob, ledger: Ledger, console: Console, executor: LocalExecutor
) -> tuple[Mapping[str, frozenset[str]], CarryIndex] | None:
    """Return which answers of the base run's models are carried over, and the index to find them; None for none."""
    if job.earlier is None or job.earlier.obstacles(job.config):
        return None
    carriable = job.earlier.carriable(job.config, job.schemas)
    if not carriable:
        return None
    # Before the engine is loaded, so that its node does not wait, and is not given back, while a large run is read.
    console.print(f"Looking up what run {job.earlier.plan.run_id} has answered.")
    index = CarryIndex.build(job.earlier.folder)
    if not ledger.engine():
        console.print(f"Loading the engine once, to compare it with that of run {job.earlier.plan.run_id}.")
        ledger.check_engine(executor.describe_engine(_portable(job.config)))
    engines = [ledger.engine()]
    if job.config.cascade is not None:
        larger = job_context(job, ledger).larger
        if not larger.ledger.engine():
            console.print(f"Loading the larger model once, to compare it with that of run {job.earlier.plan.run_id}.")
            larger.ledger.check_engine(executor.describe_engine(larger.config))
        engines.append(larger.ledger.engine())
    if job.earlier.obstacles(job.config, *engines):
        return None
    return carriable, index


def job_context(job: PlannedJob, ledger: Ledger, carry_over: CarryOverRef | None = None) -> JobContext:
    """Return the context that every process of the run gets."""
    files = [_source(file, job.output) for file in job.plan.files]
    return JobContext(
        config=_portable(job.config),
        schemas=job.schemas,
        schema_hash=job.plan.schema_hash,
        run_id=job.plan.run_id,
        session=ledger.session,
        code=code_digest(),
        output=job.output,
        files=files,
        carry_over=carry_over,
        others=None if job.config.cascade is None else job.config.cascade.actors,
    )


def _source(file: PlannedFile, output: Folder) -> SourceRef:
    if file.staged is None:
        return SourceRef(file.name, _absolute(file.name), file.format, file.size, file.fingerprint)
    return SourceRef(file.name, f"{output.absolute_uri}/{INPUT_FOLDER}/{file.staged}", STAGED)


def _portable(config: JobConfig) -> JobConfig:
    """Return the configuration for a process with another working directory."""
    changes: dict[str, Any] = {}
    if config.adapter is not None:
        changes["adapter"] = portable_name(config.adapter)
    if config.cascade is not None and config.cascade.adapter is not None:
        adapter = portable_name(config.cascade.adapter)
        changes["cascade"] = config.cascade.model_copy(update={"adapter": adapter})
    return config.model_copy(update=changes)


def _absolute(name: str) -> str:
    filesystem, path = open_filesystem(name)
    return path if isinstance(filesystem, LocalFileSystem) else name
