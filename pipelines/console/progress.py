"""Progress: a live bar on a terminal, one plain line every few seconds elsewhere.

JSON logs of a run, one object a line.

On Ray they are in each worker's log files, else in one file in the temporary folder. Each line names its run and, where
they apply, shard, attempt, node and actor. So a log collector can assemble a shard's history from all machines that
had it.
"""

from __future__ import annotations

import functools
import logging
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pythonjsonlogger.json import JsonFormatter
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn


class Watched(NamedTuple):
    """Progress of the engines: a message, and the products decoded of shards that are not committed yet."""

    said: str
    num_decoded: int = 0


class Done(Protocol):
    """Counts of the rows that are done, as they grow."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def products(self) -> int:
        """Number of rows with a result."""

    @property
    def dead_letters(self) -> int:
        """Number of the others."""


class Speed:
    """Speed of this session, and the time left. Work of earlier sessions counts as done, but not towards the speed."""

    def __init__(
        self, totals: Done, planned_rows: int, watch: Callable[[], Watched], dead: str = "dead-lettered"
    ) -> None:
        """Create the speed; `watch` is called repeatedly for the progress that is not committed yet.

        `dead`: what rows without a result are called.
        """
        self._dead = dead
        self._totals = totals
        self._planned_rows = planned_rows
        self._watch = watch
        self._started = time.monotonic()
        self._products_before, self._rows_before, self._dead_before = totals.products, totals.rows, totals.dead_letters
        self._first_rows: tuple[float, int] | None = None
        self._rows = 0

    @property
    def elapsed(self) -> float:
        """Seconds since this session began."""
        return time.monotonic() - self._started

    @property
    def rows(self) -> int:
        """Rows that are done, including those of open shards. The number never falls."""
        # A shard that ends is for a moment neither in the engine nor committed.
        self._rows = max(self._rows, min(self._planned_rows, self._totals.rows + self._watch().num_decoded))
        return self._rows

    @property
    def products_per_second(self) -> float | None:
        """Products committed by this session per second, loading included; None before the first shard."""
        done = self._totals.products - self._products_before
        return done / self.elapsed if done and self.elapsed > 0 else None

    def describe(self, rows: int) -> str:
        """Return pace and time left in words, with `rows` done."""
        dead = f"{self._totals.dead_letters:,} {self._dead}"
        if rows == self._rows_before:
            return f"starting: {self._watch().said}, {format_seconds(self.elapsed)}, {dead}"
        left = self._seconds_left(rows)
        remaining = f", {format_seconds(left)} left" if left is not None else ""
        products = rows - self._rows_before - (self._totals.dead_letters - self._dead_before)
        return f"{products / max(1e-9, self.elapsed):,.1f} products/s{remaining}, {dead}"

    def _seconds_left(self, rows: int) -> float | None:
        """Estimate the seconds left from the pace since the first products; loading is left out."""
        now = time.monotonic()
        if self._first_rows is None:
            self._first_rows = (now, rows)
        since, rows_then = self._first_rows
        return (self._planned_rows - rows) * (now - since) / (rows - rows_then) if rows > rows_then else None


@contextmanager
def show_progress(
    console: Console,
    totals: Done,
    planned_rows: int,
    log_seconds: float,
    watch: Callable[[], Watched],
    dead: str = "dead-lettered",
) -> Iterator[Speed]:
    """Show the growth of `totals` until the block ends and, before the first products, what is being waited for."""
    speed = Speed(totals, planned_rows, watch, dead)
    if console.is_terminal:
        with _live(console, planned_rows, speed):
            yield speed
        return
    stop = threading.Event()
    arguments = (console, planned_rows, speed, log_seconds, stop)
    thread = threading.Thread(target=_log, args=arguments, name="progress", daemon=True)
    thread.start()
    try:
        yield speed
    finally:
        stop.set()
        thread.join()


@contextmanager
def _live(console: Console, planned_rows: int, speed: Speed) -> Iterator[None]:
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
        rows = speed.rows
        progress.update(task, completed=rows, pace=speed.describe(rows))
        return progress

    with Live(get_renderable=render, console=console, refresh_per_second=4):
        yield


def _log(console: Console, planned_rows: int, speed: Speed, every: float, stop: threading.Event) -> None:
    while not stop.wait(every):
        console.print(progress_line(planned_rows, speed), highlight=False, soft_wrap=True)


def progress_line(planned_rows: int, speed: Speed) -> str:
    """Return one plain progress line, with the time of day."""
    rows = speed.rows
    share = rows / planned_rows if planned_rows else 1.0
    return f"{time.strftime('%H:%M:%S')}  {rows:,} of {planned_rows:,} products ({share:.0%}), {speed.describe(rows)}"


def format_seconds(seconds: float) -> str:
    """Format seconds as a duration: 3725 -> "1 h 02 min"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def describe_counts(counts: Mapping[str, Any]) -> str:
    """Format counts, the most frequent first: {"value": 3, "absent": 1} -> "3 value, 1 absent"."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {name}" for name, count in ordered) or "none"


_LOGGERS = ("pipelines", "hpd_core")
_FIELDS = ("asctime", "levelname", "name", "message")
_NAMES = {"asctime": "time", "levelname": "level", "name": "logger"}


@functools.cache
def log_as_json(run_id: str) -> None:
    """Set up this process of a cluster, once: what the project logs goes to stderr, which Ray keeps in a file."""
    static = {"run": run_id}
    # Where there is no Ray (load_test.py takes shards through the stages without), the question alone would start one,
    # or wait for the last one of this machine.
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        context = ray.get_runtime_context()
        static |= {"node": context.get_node_id(), "worker": context.get_worker_id()}
        if actor := context.get_actor_id():
            static["actor"] = actor
    _log_to(logging.StreamHandler(sys.stderr), static)


@contextmanager
def log_to_file(run_id: str) -> Iterator[None]:
    """Write what the project logs to a file of the run in the temporary folder, for a block."""
    handler: logging.Handler = logging.NullHandler()
    with suppress(OSError):  # a log is no reason to stop a run
        handler = logging.FileHandler(Path(tempfile.gettempdir(), f"hpd-{run_id}.jsonl"), encoding="utf-8")
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger.handlers, logger.level, logger.propagate) for logger in loggers]
    _log_to(handler, {"run": run_id})
    try:
        yield
    finally:
        for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
        handler.close()


def _log_to(handler: logging.Handler, static: Mapping[str, str]) -> None:
    formatter = JsonFormatter(_FIELDS, rename_fields=_NAMES, static_fields=dict(static), json_ensure_ascii=False)
    handler.setFormatter(formatter)
    for logger in map(logging.getLogger, _LOGGERS):
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)
        # Ray's own handler would write it again, as plain text.
        logger.propagate = False


def about(shard: int, **facts: Any) -> dict[str, Any]:
    """Return the `extra` of a log line about a shard."""
    return {"shard": shard, **{name: value for name, value in facts.items() if value is not None}}
