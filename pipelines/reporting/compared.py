"""A run as one line among others: quality beside cost."""

from __future__ import annotations

from pipelines.reporting.account import read_account
from pipelines.reporting.facts import Account, ComparedRun, Quality
from pipelines.reporting.opened import OpenedRun, open_run
from pipelines.reporting.quality import read_quality


def read_compared(uri: str, gold: str | None, usd_per_hour: float | None) -> ComparedRun:
    """Another run than the report's own. Raises `UsageError` if there is none, or gold does not belong to it."""
    run = open_run(uri)
    account, _ = read_account(run.parts, usd_per_hour)
    quality = None if gold is None else read_quality(uri, gold, is_finished=run.is_finished)[0]
    return compared_run(run, account, quality, is_this=False)


def compared_run(run: OpenedRun, account: Account | None, quality: Quality | None, *, is_this: bool) -> ComparedRun:
    """The line of an opened run. `is_this`: the report is its own."""
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
        f1=quality.f1 if quality is not None else None,
        usd_per_1k=account.money.per_1k if account is not None and account.money is not None else None,
        seconds_per_1k=billed / account.decoded * 1000 if account is not None and billed is not None else None,
        products_per_second=account.products_per_second if account is not None else None,
    )
