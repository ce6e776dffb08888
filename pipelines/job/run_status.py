"""Progress of a run, read from its output folder alone: no cluster is asked, the job need not be alive."""

from __future__ import annotations

import datetime
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape

from pipelines.console.progress import describe_counts, format_seconds
from pipelines.console.terminal import dollars, print_lines, quoted_markup
from pipelines.errors import RunError, UsageError
from pipelines.job.context import CASCADE_FOLDER
from pipelines.job.preflight import unknown_in_run
from pipelines.job.run_plan import find_run
from pipelines.store.folders import Folder
from pipelines.store.lease import RunLease
from pipelines.store.ledger import Ledger
from pipelines.store.no_run import read_schemas
from pipelines.store.totals import Totals, loading_note

State = Literal["finished", "running", "stopped"]
_WINDOW = datetime.timedelta(minutes=15)
_LEAST_SECONDS = 10.0
"""Time between two commits that says something of the pace: shards that are decoded together end together."""


@dataclass(frozen=True, slots=True)
class Status:
    """Progress of a run.

    Attributes:
        state: "running" if a driver renews its lease on the run, "stopped" if none does and it is not finished.
        driver: the driver that holds or last held the run.
        committed: ids of the committed shards, ascending.
        totals: totals of the committed shards.
        shards_tried: shards begun and not committed, with the number of tries; with a cascade, of the model that took
            more.
        products_per_second: speed in the last quarter of an hour before the last commit; None if it cannot be told, as
            with fewer than two commits.
        seconds_left: remaining time at that speed; None if it is not known or nothing is left.
        last_commit: time of the last shard's commit, in UTC.
        without_schema: a line for each of the most frequent categories without a schema.
    """

    uri: str
    run_id: str
    state: State
    driver: str | None
    planned_shards: int
    planned_rows: int
    committed: Sequence[int]
    totals: Totals
    shards_tried: Mapping[int, int]
    products_per_second: float | None
    seconds_left: float | None
    last_commit: datetime.datetime | None
    without_schema: Sequence[str] = ()


def read_status(uri: str) -> Status:
    """Return the progress of the run at `uri`. Raises `UsageError` if there is no run, or it cannot be read."""
    folder, plan = find_run(uri)
    ledger = Ledger(folder, session="")
    try:
        finished = ledger.finished()
        committed = ledger.committed()
        lease = RunLease(folder, seconds=1)
        driver, is_held = (None, False) if finished is not None else lease.holder()
        if finished is None and not is_held:
            # It may have come to its end while all this was read.
            finished = ledger.finished()
            committed = committed if finished is None else ledger.committed()
        totals, ends = _read_manifests(ledger, committed)
        lines = _without_schema(folder, totals)
        tried = _num_tries(folder) if finished is None else {}
    except (OSError, RunError, ValueError, KeyError, TypeError, AttributeError) as error:
        # The last four: one of its JSON files is damaged.
        raise UsageError(f"cannot read {uri}: {type(error).__name__}: {error}") from error
    pace = _pace(ends)
    rows_left = plan.num_rows - totals.rows
    return Status(
        uri=uri,
        run_id=plan.run_id,
        state="finished" if finished is not None else "running" if is_held else "stopped",
        driver=driver,
        planned_shards=len(plan.shards),
        planned_rows=plan.num_rows,
        committed=sorted(committed),
        totals=totals,
        shards_tried={shard: number for shard, number in tried.items() if shard not in committed},
        products_per_second=pace,
        seconds_left=rows_left / pace if pace and rows_left else None,
        last_commit=ends[-1][0] if ends else None,
        without_schema=lines,
    )


def _num_tries(folder: Folder) -> Counter[int]:
    """Return tries by shard. A cascade's models have ledgers of their own: the larger model's first try is not a second
    try."""
    first, larger = (Ledger(Folder(uri), "").num_tries() for uri in (folder.uri, folder.describe(CASCADE_FOLDER)))
    return Counter(first) | Counter(larger)


def _without_schema(folder: Folder, totals: Totals) -> list[str]:
    if not totals.unknown_categories:
        return []
    schemas = read_schemas(folder) or {}
    return list(unknown_in_run(totals, schemas))


def _read_manifests(ledger: Ledger, shards: Collection[int]) -> tuple[Totals, list[tuple[datetime.datetime, int]]]:
    """Return sums over the shards, and each shard's end and number of products, in order of time."""
    totals, ends = Totals(), []
    for manifest in ledger.manifests(shards):
        ledger.count(manifest, totals)
        if "finished_at" in manifest:
            ends.append((datetime.datetime.fromisoformat(manifest["finished_at"]), manifest["counts"]["products"]))
    return totals, sorted(ends)


def _pace(ends: Sequence[tuple[datetime.datetime, int]]) -> float | None:
    """Return products a second, from the ends of shards and their numbers of products; None if it cannot be told."""
    recent = [(end, count) for end, count in ends if end >= ends[-1][0] - _WINDOW]
    seconds = (recent[-1][0] - recent[0][0]).total_seconds() if recent else 0.0
    # The first one marks only the start of the time.
    return sum(count for _, count in recent[1:]) / seconds if seconds >= _LEAST_SECONDS else None


def print_status(console: Console, status: Status) -> None:
    """Print the progress for people."""
    totals, carried = status.totals, status.totals.carried["products"]
    share = totals.rows / status.planned_rows if status.planned_rows else 1.0
    shards = f"{totals.shards:,} of {status.planned_shards:,} shards"
    lines = [
        f"[bold]{status.state}[/]: run {escape(status.run_id)} in {quoted_markup(status.uri)}",
        f"  rows         {totals.rows:,} of {status.planned_rows:,} ({share:.1%}), {shards}",
        f"  products     {totals.products:,}" + (f", {carried:,} carried over" if carried else ""),
        *totals_lines(totals, status.without_schema),
    ]
    if status.last_commit is not None:
        ago = max(0.0, time.time() - status.last_commit.timestamp())
        lines.append(f"  last commit  {status.last_commit:%Y-%m-%d %H:%M:%S} UTC, {format_seconds(ago)} ago")
    if status.state != "finished":
        if status.products_per_second is not None:
            left = f", {format_seconds(status.seconds_left)} left" if status.seconds_left is not None else ""
            lines.append(f"  speed        {status.products_per_second:,.1f} products/s{left}")
        failed = {shard: number for shard, number in status.shards_tried.items() if number > 1}
        lines.append(f"  begun        {len(status.shards_tried):,} shards, {len(failed):,} of them more than once")
        if status.driver is not None:
            lines.append(f"  driver       {quoted_markup(status.driver)}")
    if status.state == "stopped":
        lines.append("Nobody works on it. The job's own command continues it.")
    print_lines(console, lines)


def totals_lines(totals: Totals, without_schema: Iterable[str]) -> Iterator[str]:
    """Yield what became of the committed rows, and what it cost, in lines with markup.

    Args:
        without_schema: lines about categories without a schema.
    """
    yield f"  values       {describe_counts(totals.statuses)}"
    if totals.decisions:
        yield f"  decisions    {describe_counts(totals.decisions)}"
    yield f"  dead letters {describe_counts(totals.reasons)}"
    yield from (f"    {quoted_markup(line)}" for line in without_schema)
    if totals.cascade:
        yield f"  second look  {second_look(totals.cascade)}"
    if shared := totals.metrics["document_tokens_shared"]:
        share = shared / (shared + totals.metrics["document_tokens"])
        yield f"  shared text  {shared:,} tokens of texts ({share:.0%}) were computed once for several products"
    if totals.retried_shards:
        yield f"  retries      {totals.retries}"
    if totals.priced_shards:
        yield f"  cost         {describe_cost(totals)}"


def status_json(status: Status) -> dict[str, Any]:
    """Return the progress as plain data, for JSON output."""
    data = asdict(status) | {"totals": status.totals.to_dict()}
    # The list is as long as the run has shards; `totals` has their number.
    del data["committed"]
    data["last_commit"] = status.last_commit.isoformat() if status.last_commit is not None else None
    return data


def second_look(counts: Mapping[str, int]) -> str:
    """Describe how many answers a larger model was asked again, and the result.

    `counts`: a run's (quality/both_answers.py).
    """
    answers, asked = counts.get("answers", 0), counts.get("asked", 0)
    share = asked / answers if answers else 0.0
    text = f"{asked:,} of {answers:,} answers ({share:.0%}) asked again, {counts.get('changed', 0):,} changed"
    kept = counts.get("kept", 0)
    return text + (f"; {kept:,} stay, as the larger model has none" if kept else "")


def describe_cost(totals: Totals) -> str:
    """Return the cost of the committed shards that have a price; at least one must have one."""
    billed, useful = totals.metrics["cost_billed"], totals.metrics["cost_useful"]
    text = f"{dollars(billed)} for the engines, {dollars(useful)} of it computing"
    if (usd_per_1k := totals.usd_per_1k) is not None:
        text += f"; {dollars(usd_per_1k)} per 1,000 decoded products"
        if note := loading_note(totals.metrics["load_seconds"], totals.metrics["billed_seconds"]):
            text += f" ({note})"
    if totals.priced_shards < totals.shards:
        text += f" (only {totals.priced_shards:,} of {totals.shards:,} shards have a price)"
    return text
