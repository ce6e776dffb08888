"""A run as one line of a comparison: quality and cost."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.errors import UsageError
from pipelines.reporting.cost_account import read_account
from pipelines.reporting.facts.cost import Account
from pipelines.reporting.facts.quality import ComparedRun, ReportQuality
from pipelines.reporting.gold_scores import read_gold_scores
from pipelines.store.run import Run


def read_compared(uri: str, this: Run, gold: str | None, usd_per_hour: float | None) -> tuple[ComparedRun, list[str]]:
    """Read another run to compare with `this`, the report's own. Raises `UsageError` if there is no run.

    Returns the run and notes on it. A run without gold labels has no scores, and a note.
    """
    run = Run.open(uri)
    account, machines = read_account(run.parts, usd_per_hour)
    notes = [*run.notes(), *_unlike(run, this), *machines.notes]
    quality = None
    if gold is not None:
        try:
            scores = read_gold_scores(run, gold)
            quality, notes = scores.quality, [*notes, *scores.notes]
        except UsageError as error:
            notes.append(f"Not scored: {error}.")
    return compared_run(run, account, quality, is_this=False), notes


def _unlike(run: Run, this: Run) -> Iterator[str]:
    """Yield notes on inputs or devices that make the numbers of the two runs differ in meaning."""
    read, read_here = (
        (sorted((file.fingerprint, file.num_rows) for file in each.plan.files), each.plan.limit) for each in (run, this)
    )
    if read != read_here:
        yield "It read other files, or another part of them, than the run of this report."
    if run.device is not None and this.device is not None and run.device != this.device:
        yield f"It ran on {run.device}, the run of this report on {this.device}."


def compared_run(run: Run, account: Account | None, quality: ReportQuality | None, *, is_this: bool) -> ComparedRun:
    """Return the comparison line of an opened run. `is_this`: it is the report's own."""
    billed = account.time.billed if account is not None and account.decoded else None
    return ComparedRun(
        uri=run.folder.uri,
        run_id=run.plan.run_id,
        state=run.status.state,
        is_this=is_this,
        model=str(run.engine.get("model_id") or "unknown"),
        adapter=run.engine.get("adapter_id"),
        layout=run.layout,
        products=run.status.totals.products,
        dead_letters=run.status.totals.dead_letters,
        num_scored=quality.num_products if quality is not None else None,
        f1=quality.f1 if quality is not None else None,
        usd_per_1k=account.money.per_1k if account is not None and account.money is not None else None,
        seconds_per_1k=billed / account.decoded * 1000 if account is not None and billed is not None else None,
        products_per_second=account.products_per_second if account is not None else None,
    )
