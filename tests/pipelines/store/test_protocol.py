"""The commit protocol as a state machine: attempts, zombies, drivers and deaths in every order that hypothesis finds.

docs/reliability.md draws the states. Each process here is a thread that waits before every change of the storage until
it is told to make it, to die there, or to die in the middle of it; the code is the real one, on a real folder. Real
processes are killed in test_kills.py.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pipelines.store.folders import Folder
from pipelines.store.ledger import Ledger
from tests.examples import examples
from tests.pipelines.store.test_ledger import TABLES, CrashError, commit, recover

SHARDS = range(3)
_PATIENCE = 600.0


class Process:
    """Some work on the run's folder, change by change."""

    def __init__(self, folder: Path, work: Callable[[Ledger], None]) -> None:
        self.is_over = False
        self.error: BaseException | None = None
        self._fate = "go on"
        self._turn, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=[folder, work], daemon=True)
        self._thread.start()
        self._wait()

    def _run(self, folder: Path, work: Callable[[Ledger], None]) -> None:
        try:
            work(Ledger(SteppedFolder(str(folder), self), "s"))
        except CrashError:
            pass
        except BaseException as error:
            self.error = error
        self.is_over = True
        self._paused.release()

    def pause(self) -> str:
        """Called by the process before a change. Returns how it is to be made, or dies."""
        self._paused.release()
        self._turn.acquire()
        if self._fate == "die before":
            raise CrashError
        return self._fate

    def step(self, fate: str = "go on") -> None:
        """Until its next change, or its end."""
        self._fate = fate
        self._turn.release()
        self._wait()

    def _wait(self) -> None:
        assert self._paused.acquire(timeout=_PATIENCE), "it hangs"


class SteppedFolder(Folder):
    """Asks its process before every change."""

    def __init__(self, uri: str, process: Process) -> None:
        super().__init__(uri)
        self._process = process

    def write(self, name: str, data: bytes) -> None:
        self._change(name, data)
        super().write(name, data)

    def create(self, name: str, data: bytes) -> bool:
        if self._change(name, data) == "lose the answer":
            # A storage that did it, a connection that broke, and a client that asked again.
            super().create(name, data)
        return super().create(name, data)

    def copy(self, source: str, target: str) -> None:
        self._change(target, b"a part of a part")
        super().copy(source, target)

    def remove(self, folder: str) -> None:
        self._change(f"{folder}/nothing", b"")
        super().remove(folder)

    def _change(self, name: str, data: bytes) -> str:
        fate = self._process.pause()
        if fate == "die within":
            # As a process leaves it that dies while it writes: half of it, under the temporary name.
            path = Path(self.path(self._temporary(name)))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data[: len(data) // 2])
            raise CrashError
        return fate


class Protocol(RuleBasedStateMachine):
    """A run of three shards."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hpd-protocol-"))
        self.ledger = Ledger(Folder(str(self.folder)), "s")
        self.running: list[Process] = []
        self.winners: dict[int, dict[str, Any]] = {}
        self.num_attempts = 0

    # What may happen.

    @rule(shard=st.sampled_from(SHARDS))
    def attempt(self, shard: int) -> None:
        """Another attempt at a shard has been decoded, while earlier ones may still be about to commit."""
        self.num_attempts += 1
        name = f"attempt{self.num_attempts}"
        self.running.append(Process(self.folder, lambda ledger: commit(ledger, shard, name)))

    @rule()
    def driver_starts(self) -> None:
        """One that takes the run over: publishes what is committed and, where that is all, finishes."""
        self.running.append(Process(self.folder, drive))

    @precondition(lambda self: self.running)
    @rule(
        data=st.data(),
        changes=st.integers(0, 7),
        fate=st.sampled_from(["go on", "lose the answer", "die before", "die within"]),
    )
    def go_on(self, data: st.DataObject, changes: int, fate: str) -> None:
        """One process makes so many changes, and then one more or dies at it, while all others stand still."""
        process = data.draw(st.sampled_from(self.running))
        for each in ["go on"] * changes + [fate]:
            if not process.is_over:
                process.step(each)

    # What must hold, whatever has happened.

    @invariant()
    def nobody_fails_who_was_not_killed(self) -> None:
        for process in self.running:
            if process.error is not None:
                raise process.error
        self.running = [process for process in self.running if not process.is_over]

    @invariant()
    def a_commit_is_for_ever(self) -> None:
        for shard in self.ledger.committed():
            manifest = self.ledger.manifest(shard)
            assert self.winners.setdefault(shard, manifest) == manifest

    @invariant()
    def the_public_rows_are_those_of_the_winner(self) -> None:
        for shard, attempts in self.published().items():
            assert self.ledger.is_committed(shard)
            assert set(attempts) == {self.ledger.manifest(shard)["attempt_id"]}

    @invariant()
    def what_is_finished_is_complete(self) -> None:
        if self.ledger.finished() is not None:
            self.is_complete()

    def teardown(self) -> None:
        """The machine goes down, and the next session ends the run."""
        for process in self.running:
            process.step("die before")
            assert process.is_over
        for shard in SHARDS:
            if not self.ledger.is_committed(shard):
                commit(self.ledger, shard, "last")
        drive(self.ledger)
        self.ledger.clean_up()  # as every later start does
        assert self.ledger.finished() is not None
        self.is_complete()
        garbage = [path for path in self.folder.rglob("*") if path.name.startswith(".") and path.is_file()]
        assert not [path for path in garbage if path.parent.name in TABLES]
        assert not (self.folder / "_parts").exists()
        shutil.rmtree(self.folder)

    def is_complete(self) -> None:
        found = self.published()
        assert sorted(found) == list(SHARDS)
        assert all(len(attempts) == len(TABLES) for attempts in found.values())

    def published(self) -> dict[int, list[str]]:
        """Shard -> the attempts that its public rows come from, one per table."""
        found: dict[int, list[str]] = {}
        for name in TABLES:
            for path in sorted(self.folder.glob(f"{name}/part-*.parquet")):
                for row in pq.read_table(path).to_pylist():
                    found.setdefault(row["shard"], []).append(row["attempt"])
        return found


def drive(ledger: Ledger) -> None:
    """What a driver does with the run's books when nothing is left to decode, or it is not its turn to."""
    committed = ledger.committed()
    recover(ledger)
    if committed == set(SHARDS):
        ledger.finish({"done": True})


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(max_examples=examples(60), stateful_step_count=20, deadline=None)
