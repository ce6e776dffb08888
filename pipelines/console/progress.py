"""Progress: a live bar on a terminal, one plain line every few seconds elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from pipelines.store.totals import Totals


class Speed:
    """How fast this session is, and what is left. What an earlier session did counts as done, not as fast."""

    def __init__(self, totals: Totals, planned_rows: int, waits_for: Callable[[], str] = lambda: "first shards"):
        """`waits_for`: what there is to wait for before the first shard, asked again and again."""
        self._totals = totals
        self._planned_rows = planned_rows
        self._waits_for = waits_for
        self._started = time.monotonic()
        self._products_before, self._rows_before = totals.products, totals.rows
        self._first_commit: tuple[float, int] | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since this session began."""
        return time.monotonic() - self._started

    @property
    def products_per_second(self) -> float | None:
        """Products extracted by this session per second, loading included; None before the first shard."""
        done = self._totals.products - self._products_before
        return done / self.elapsed if done and self.elapsed > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """At the pace since the first shard was there, for the time of loading says nothing about the rest."""
        rows, now = self._totals.rows, time.monotonic()
        if self._first_commit is None:
            if rows > self._rows_before:
                self._first_commit = (now, rows)
            return None
        since, rows_then = self._first_commit
        return (self._planned_rows - rows) * (now - since) / (rows - rows_then) if rows > rows_then else None

    def describe(self) -> str:
        """For people."""
        speed, left = self.products_per_second or 0.0, self.seconds_left
        if self._totals.rows > self._rows_before:
            pace = f"{speed:,.1f} products/s"
        else:
            # What is under way in an engine is not counted until its shard is committed.
            pace = f"starting: {self._waits_for()}, {format_seconds(self.elapsed)}"
        remaining = f", {format_seconds(left)} left" if left is not None else ""
        return f"{pace}{remaining}, {self._totals.dead_letters:,} dead-lettered"


@contextmanager
def show_progress(
    console: Console,
    totals: Totals,
    planned_rows: int,
    log_seconds: float,
    waits_for: Callable[[], str] = lambda: "first shards",
) -> Iterator[Speed]:
    """Shows how `totals` grow until the block ends, and before the first shard what is waited for."""
    speed = Speed(totals, planned_rows, waits_for)
    if console.is_terminal:
        with _live(console, totals, planned_rows, speed):
            yield speed
        return
    stop = threading.Event()
    thread = threading.Thread(
        target=_log, args=(console, totals, planned_rows, speed, log_seconds, stop), name="progress", daemon=True
    )
    thread.start()
    try:
        yield speed
    finally:
        stop.set()
        thread.join()


@contextmanager
def _live(console: Console, totals: Totals, planned_rows: int, speed: Speed) -> Iterator[None]:
    progress = Progress(
        SpinnerColumn(),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("products"),
        TextColumn("{task.fields[pace]}"),
        console=console,
        expand=True,
    )
    task = progress.add_task("extract", total=planned_rows, pace="starting")

    def render() -> Progress:
        progress.update(task, completed=totals.rows, pace=speed.describe())
        return progress

    with Live(get_renderable=render, console=console, refresh_per_second=4):
        yield


def _log(
    console: Console, totals: Totals, planned_rows: int, speed: Speed, every: float, stop: threading.Event
) -> None:
    while not stop.wait(every):
        console.print(progress_line(totals, planned_rows, speed), highlight=False, soft_wrap=True)


def progress_line(totals: Totals, planned_rows: int, speed: Speed) -> str:
    """One plain line, with the time of day."""
    share = totals.rows / planned_rows if planned_rows else 1.0
    now = time.strftime("%H:%M:%S")
    return f"{now}  {totals.rows:,} of {planned_rows:,} products ({share:.0%}), {speed.describe()}"


def format_seconds(seconds: float) -> str:
    """3725 -> "1 h 02 min"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def describe_counts(counts: Mapping[str, Any]) -> str:
    """{"value": 3, "absent": 1} -> "3 value, 1 absent", the most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {name}" for name, count in ordered) or "none"
