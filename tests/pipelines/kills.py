"""Runs of the real command that are killed at given steps of the commit protocol or at random moments, watched all the
while as a reader of the public folders sees them, and started again until they are done."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from tests.pipelines.commands import ROOT, assert_same, command
from tests.pipelines.conftest import read_table

INJECTED = Path(__file__).parent / "killing"
ROW_TABLES = ("products", "dead_letter")
PUBLIC = ("attributes", "products", "dead_letter", "metrics")
TRIES_AGAIN = (1, -signal.SIGKILL)
"""Exit codes after which the same command is to be given again. A driver whose raylet is killed stops with 1, too."""
SECONDS_BETWEEN = 4
"""Of kills at random moments, on average."""


@dataclass(frozen=True)
class Kill:
    """At the `occurrence`-th time that any process of the run comes to `step`: the victim dies.

    Attributes:
        moment: before, after, "inside" (the object lies there under its temporary name), "torn" (half of it does).
        victim: "self", "driver", "raylet" (of this process), "node" (the raylet and all it has started), "machine" (the
            driver and everything below it) or "stop" (this process freezes).
    """

    step: str
    occurrence: int
    moment: str
    victim: str = "self"


class Onlooker:
    """Reads the public folders of a run again and again, and keeps what should not be there."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._seen: dict[Path, tuple[int, int]] = {}
        self._rows: dict[Path, set[tuple[str, int]]] = {}
        self.faults: list[str] = []
        self.looks = 0

    def look(self) -> None:
        """One look, after which `faults` holds all that was wrong with it."""
        # First the rows, then the books: what is public was committed before.
        paths = {table: sorted((self._output / table).glob("*.parquet")) for table in PUBLIC}
        for table, found in paths.items():
            for path in found:
                state = path.stat()
                if self._seen.get(path) != (state.st_ino, state.st_mtime_ns):
                    self._seen[path] = state.st_ino, state.st_mtime_ns
                    self._check(table, path)
        rows = Counter(row for table in ROW_TABLES for path in paths[table] for row in self._rows.get(path, ()))
        self.faults += [f"{row} is there {count} times" for row, count in rows.items() if count > 1]
        self.looks += 1

    def _check(self, table: str, path: Path) -> None:
        data = path.read_bytes()
        try:
            manifest = json.loads((self._output / "_shards" / f"{path.stem.removeprefix('part-')}.json").read_text())
        except FileNotFoundError:
            self.faults.append(f"{path} is public, its shard not committed")
            return
        if hashlib.sha256(data).hexdigest() != manifest["tables"][table]["sha256"]:
            self.faults.append(f"{path} is not what the shard's manifest names")
        if table in ROW_TABLES:
            read = pq.read_table(path, columns=["source_file", "source_row"]).to_pylist()
            self._rows[path] = {(row["source_file"], row["source_row"]) for row in read}
            if len(self._rows[path]) != len(read):
                self.faults.append(f"{path} has a row twice")


@dataclass
class KilledRun:
    """One run: its drivers one after the other, its kills, and who looks on."""

    config: Path
    output: Path
    kills: list[Kill] = field(default_factory=list)
    folder: Path = field(init=False)
    environment: dict[str, str] = field(init=False)
    exit_codes: list[int] = field(default_factory=list)
    random_kills: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not Path("/proc/self/environ").exists():
            pytest.skip("the processes of a killed run are found in /proc, which this system has not")
        self.folder = self.output.with_name(f"{self.output.name}.kills")
        for name in ("steps", "fired"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "plan.json").write_text(json.dumps([asdict(kill) for kill in self.kills]))
        path = os.pathsep.join([str(INJECTED), str(ROOT)])
        self.environment = os.environ | {"HPD_KILLS": str(self.folder), "PYTHONPATH": path}

    def __enter__(self) -> KilledRun:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes(self) -> list[int]:
        """Everything alive that one of the run's drivers has started, and that itself."""
        mark, found = f"HPD_KILLS={self.folder}\0".encode(), []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in path.read_bytes():
                    found.append(int(path.parent.name))
        return found

    def start(self) -> subprocess.Popen[bytes]:
        """A driver, in a process of its own."""
        code = (
            "import os, sys; open(os.path.join(os.environ['HPD_KILLS'], 'driver'), 'w').write(str(os.getpid())); "
            "os.execv(sys.argv[1], sys.argv[1:])"
        )
        with (self.folder / "log").open("ab") as log:
            arguments = [sys.executable, "-S", "-c", code, *command(self.config, "--json")]
            return subprocess.Popen(arguments, cwd=ROOT, env=self.environment, stdout=log, stderr=log)

    def drive(
        self,
        max_starts: int,
        moments: random.Random | None = None,
        max_random: int = 0,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Starts drivers until one succeeds. With `moments`, kills drawn processes at drawn moments besides."""
        onlooker = Onlooker(self.output)
        for _ in range(max_starts):
            driver = self.start()
            next_kill = time.monotonic() + (moments.expovariate(1 / SECONDS_BETWEEN) if moments else 0)
            while driver.poll() is None:
                onlooker.look()
                meanwhile()
                if moments and len(self.random_kills) < max_random and time.monotonic() > next_kill:
                    self._kill_one(moments)
                    next_kill = time.monotonic() + moments.expovariate(1 / SECONDS_BETWEEN)
                time.sleep(0.3)
            self.exit_codes.append(driver.returncode)
            onlooker.look()
            assert not onlooker.faults, self.explain(onlooker.faults[0])
            if driver.returncode == 0:
                assert onlooker.looks > 3
                return
            assert driver.returncode in TRIES_AGAIN, self.explain("an exit code that no kill explains")
        raise AssertionError(self.explain("too many starts"))

    def _kill_one(self, moments: random.Random) -> None:
        """Kills a process of the run, any kind with the same chance."""
        kinds: dict[str, list[int]] = {}
        for pid in self.processes():
            with suppress(OSError):
                kinds.setdefault(_kind(pid), []).append(pid)
        wanted = [kind for kind in sorted(kinds) if kind != "other"]
        # A driver that only starts is alone for long: without this it would get nearly all of the kills.
        if wanted and (wanted != ["driver"] or moments.random() < 0.1):
            kind = moments.choice(wanted)
            with suppress(ProcessLookupError):
                os.kill(moments.choice(sorted(kinds[kind])), signal.SIGKILL)
                self.random_kills.append(kind)

    def fired(self) -> list[dict[str, Any]]:
        """The kills of the plan that have hit somebody."""
        records = [json.loads(path.read_text()) for path in sorted((self.folder / "fired").iterdir())]
        return [record for record in records if record["victims"]]

    def count(self) -> Counter[str]:
        """Kills by kind."""
        return Counter([kill["victim"] for kill in self.fired()] + [f"random {kind}" for kind in self.random_kills])

    def explain(self, fault: str) -> str:
        """What is needed to see what happened."""
        log = (self.folder / "log").read_text(errors="replace")
        done = [(kill["step"], kill["occurrence"], kill["moment"], kill["victim"]) for kill in self.fired()]
        return (
            f"{fault}; exit codes {self.exit_codes}; kills {done} {self.random_kills}; the driver's last words:\n"
            + (log[-3000:])
        )


def _kind(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    if "pipelines/extract.py" in words:
        return "driver"
    if words[0].endswith("raylet/raylet"):
        return "raylet"
    if words[0].startswith("ray::"):
        return "actor" if "Decode" in words[0] else "task"
    return "other"


def check_finished(run: KilledRun, rows: int, undisturbed: Path) -> None:
    """Every row of the catalog is there once, as in the undisturbed run, and nothing else is."""
    output = run.output
    union = " union all ".join(
        f"select source_file, source_row from read_parquet('{output}/{table}/*.parquet')" for table in ROW_TABLES
    )
    found = duckdb.sql(f"select count(*), count(distinct (source_file, source_row)) from ({union})").fetchall()
    assert found == [(rows, rows)], run.explain("rows are lost or doubled")
    for table in ("products", "attributes", "dead_letter"):
        assert_same(read_table(undisturbed, table), read_table(output, table))
    shards = sorted(path.stem for path in (output / "_shards").glob("*.json"))
    planned = json.loads((output / "_plan.json").read_text())["shards"]
    assert shards == [f"{shard['id']:06d}" for shard in planned]
    for table in PUBLIC:
        assert sorted(path.name for path in (output / table).iterdir()) == [f"part-{shard}.parquet" for shard in shards]
    assert sorted(row["shard"] for row in read_table(output, "metrics")) == [shard["id"] for shard in planned]
    totals = json.loads((output / "manifest.json").read_text())["totals"]
    assert totals["rows"] == rows
    assert not (output / "_parts").exists(), run.explain("garbage is left")
