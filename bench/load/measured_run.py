"""One run of the real command, as it looks from outside: when what was there, and what it has used."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from bench.load.processes import ProcessUsage, watch
from pipelines.errors import RunError
from pipelines.store.tables import TABLES

_EXTRACT = Path(__file__).resolve().parents[2] / "pipelines" / "extract.py"
_SECONDS_TO_END = 30


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
        """From the loaded engine to the last commit."""
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
    """When each shard was committed (seconds since the epoch), and its rows; in order of time."""
    manifests = [path for path in (output / "_shards").glob("*.json") if not path.name.startswith(".")]
    return sorted(
        (path.stat().st_mtime, json.loads(path.read_text(encoding="utf-8"))["counts"]["rows"]) for path in manifests
    )


def _moment(commits: Sequence[tuple[float, int]], share: float) -> float:
    """When this share of the rows was committed."""
    left = share * sum(rows for _, rows in commits)
    for moment, rows in commits:
        left -= rows
        if left <= 0:
            return moment
    return commits[-1][0]
