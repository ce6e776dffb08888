"""One run of the real command, as it looks from outside: when what was there, and what its processes have used."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import yaml
from rich.console import Console
from rich.table import Table

from pipelines.errors import RunError
from pipelines.store.tables import TABLES

DRIVER, ENGINE, TASKS, RAY = "driver", "engine", "tasks", "ray"
KINDS = (DRIVER, ENGINE, TASKS, RAY)
_EXTRACT = Path(__file__).resolve().parents[2] / "pipelines" / "extract.py"
_SECONDS_TO_END = 30


@dataclass(slots=True)
class ProcessUsage:
    """Use of one kind of process.

    Attributes:
        cpu_seconds: user and system time of all of them together.
        peak_bytes: of the largest one: resident memory, without what it shares (the object store, libraries).
        peak_bytes_together: of all of them at one moment.
        num_processes: seen over the whole time.
    """

    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    peak_bytes_together: int = 0
    num_processes: int = 0


@dataclass(slots=True)
class _Seen:
    kind: str
    cpu_seconds: float = 0.0
    peak_bytes: int = 0


@dataclass(slots=True)
class Watch:
    """Samples of a process and of those it has started."""

    root: int
    _seen: dict[tuple[int, float], _Seen] = field(default_factory=dict)
    _together: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def look(self) -> None:
        """Take one sample."""
        try:
            parent = psutil.Process(self.root)
            processes = [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        now: dict[str, int] = defaultdict(int)
        for process in processes:
            try:
                with process.oneshot():
                    key, memory, cpu = (process.pid, process.create_time()), process.memory_info(), process.cpu_times()
                    kind = DRIVER if process.pid == self.root else _kind(process.cmdline())
            except psutil.Error:
                continue  # it has ended
            seen = self._seen.setdefault(key, _Seen(kind))
            # A worker gets its name with its first work, and keeps one engine for life.
            seen.kind = ENGINE if ENGINE in (seen.kind, kind) else kind
            own = max(0, memory.rss - getattr(memory, "shared", 0))
            seen.cpu_seconds = cpu.user + cpu.system
            seen.peak_bytes = max(seen.peak_bytes, own)
            now[seen.kind] += own
        for kind, num_bytes in now.items():
            self._together[kind] = max(self._together[kind], num_bytes)

    def usage(self) -> dict[str, ProcessUsage]:
        """Return what was used, by kind of process."""
        found = {kind: ProcessUsage(peak_bytes_together=self._together[kind]) for kind in KINDS}
        for seen in self._seen.values():
            kind = found[seen.kind]
            kind.cpu_seconds += seen.cpu_seconds
            kind.peak_bytes = max(kind.peak_bytes, seen.peak_bytes)
            kind.num_processes += 1
        return found


@contextmanager
def watch(root: int, every: float = 0.5) -> Iterator[Watch]:
    """Sample the process `root` and all below it until the block ends."""
    watched, stop = Watch(root), threading.Event()

    def run() -> None:
        while not stop.wait(every):
            watched.look()

    thread = threading.Thread(target=run, name="watch", daemon=True)
    thread.start()
    try:
        yield watched
    finally:
        stop.set()
        thread.join()


def _kind(command: list[str]) -> str:
    """Return what a process below the driver is for, by the name that Ray gives it."""
    name = command[0] if command else ""
    if "Decode" in name:
        return ENGINE
    return TASKS if name.startswith("ray::") else RAY


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A finished run.

    Attributes:
        startup_seconds: from the start of the command until the engine was loaded: imports, plan, Ray, engine.
        first_commit_seconds, work_seconds: from the loaded engine to the first and the last committed shard.
        tail_seconds: of work_seconds: the last twentieth of the rows.
        end_seconds: from the last commit to the end of the command.
        row_counts: rows of each table, as its files say.
        bytes_read: of the input, as stored.
        bytes_written: by table, as stored.
    """

    totals: Mapping[str, Any]
    startup_seconds: float
    first_commit_seconds: float
    work_seconds: float
    tail_seconds: float
    end_seconds: float
    row_counts: Mapping[str, int]
    bytes_read: int
    bytes_written: Mapping[str, int]
    usage: Mapping[str, ProcessUsage]

    @property
    def products_per_second(self) -> float:
        """Return the rate from the loaded engine to the last commit."""
        return float(self.totals["products"]) / self.work_seconds

    @property
    def is_complete(self) -> bool:
        """Whether every row that went in came out once."""
        return bool(self.totals["rows"] == self.row_counts["products"] + self.row_counts["dead_letter"])


def run_measured(document: Mapping[str, Any], folder: Path, options: Sequence[str] = ()) -> LoadedRun:
    """Run the job `document` (its output must be local) on Ray, by the command a user would start, with its options.

    Raises `RunError` if it does not end well.
    """
    config = folder / "job.yaml"
    config.write_text(yaml.safe_dump({**document, "executor": "ray"}, sort_keys=False), encoding="utf-8")
    command = [sys.executable, str(_EXTRACT), "--config", str(config), "--json", *options]
    started = time.time()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, watch(process.pid) as watched:
        assert process.stdout is not None
        try:
            lines = process.stdout.read().splitlines()
            process.wait()
        except BaseException:
            # Whoever ends the measurement ends the job as well: nobody would know of it any more.
            _end(process)
            raise
    ended = time.time()
    if process.returncode != 0 or not lines:
        raise RunError(f"the job ended with exit code {process.returncode}")
    output = Path(document["output"])
    loaded = (output / "_engine.json").stat().st_mtime
    commits = _commits(output)
    last = commits[-1][0]
    parts = {name: sorted((output / name).glob("*.parquet")) for name in TABLES}
    manifest = json.loads((output / "manifest.json").read_text(encoding="utf-8"))
    totals = manifest["totals"]
    return LoadedRun(
        totals=totals,
        startup_seconds=loaded - started,
        first_commit_seconds=commits[0][0] - loaded,
        work_seconds=last - loaded,
        tail_seconds=last - _moment(commits, 0.95),
        end_seconds=ended - last,
        row_counts={name: sum(pq.read_metadata(path).num_rows for path in paths) for name, paths in parts.items()},
        bytes_read=int(totals["metrics"]["bytes_read"]),
        bytes_written={name: sum(path.stat().st_size for path in paths) for name, paths in parts.items()},
        usage=watched.usage(),
    )


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()


def _commits(output: Path) -> list[tuple[float, int]]:
    """Return when each shard was committed (seconds since the epoch), and its rows; in order of time."""
    manifests = [path for path in (output / "_shards").glob("*.json") if not path.name.startswith(".")]
    return sorted(
        (path.stat().st_mtime, json.loads(path.read_text(encoding="utf-8"))["counts"]["rows"]) for path in manifests
    )


def _moment(commits: Sequence[tuple[float, int]], share: float) -> float:
    """Return when this share of the rows was committed."""
    left = share * sum(rows for _, rows in commits)
    for moment, rows in commits:
        left -= rows
        if left <= 0:
            return moment
    return commits[-1][0]


def report_run(run: LoadedRun) -> dict[str, Any]:
    """Print what a run on Ray took, and return it as plain data."""
    products = int(run.totals["products"])
    table = make_table(f"{run.totals['rows']:,} rows on Ray", "", "")
    for name, text in (
        ("products/s, loaded engine to last commit", f"{run.products_per_second:,.0f}"),
        ("start to loaded engine", f"{run.startup_seconds:.1f} s"),
        ("loaded engine to first commit", f"{run.first_commit_seconds:.1f} s"),
        ("loaded engine to last commit", f"{run.work_seconds:.1f} s"),
        ("of it, the last 5% of the rows", f"{run.tail_seconds:.1f} s"),
        ("last commit to the command's end", f"{run.end_seconds:.1f} s"),
        ("shards", f"{run.totals['shards']:,}"),
        ("rows in", f"{run.totals['rows']:,}"),
        ("products + dead letters out", f"{run.row_counts['products']:,} + {run.row_counts['dead_letter']:,}"),
        ("attribute rows", f"{run.row_counts['attributes']:,}"),
        ("read, written", f"{run.bytes_read / 1e6:,.1f} MB, {sum(run.bytes_written.values()) / 1e6:,.1f} MB"),
    ):
        table.add_row(name, text)
    processes = make_table(
        "processes", "", "number", "CPU s", "CPU ms/product", "peak MB, largest", "peak MB, together"
    )
    for kind, usage in run.usage.items():
        processes.add_row(
            kind,
            str(usage.num_processes),
            f"{usage.cpu_seconds:.1f}",
            f"{1000 * usage.cpu_seconds / max(1, products):.3f}",
            f"{usage.peak_bytes / 1e6:,.0f}",
            f"{usage.peak_bytes_together / 1e6:,.0f}",
        )
    print_tables(table, processes)
    return dataclasses.asdict(run) | {"products_per_second": run.products_per_second, "is_complete": run.is_complete}


def make_table(title: str, *columns: str) -> Table:
    """Make a table whose columns of numbers are right-aligned."""
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="left" if not column else "right")
    return table


def print_tables(*what: Any) -> None:
    """Print tables and lines."""
    # Without a terminal, tables are not squeezed to 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 120)
    for each in what:
        console.print(each, highlight=False)
