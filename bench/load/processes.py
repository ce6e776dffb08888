"""The processes of a job, watched from outside: memory at its highest, CPU seconds by what the process is for."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

# Ray carries psutil along and puts it on the path.
import ray  # noqa: F401  # isort: skip
import psutil  # isort: skip

DRIVER, ENGINE, TASKS, RAY = "driver", "engine", "tasks", "ray"
KINDS = (DRIVER, ENGINE, TASKS, RAY)


@dataclass(slots=True)
class ProcessUsage:
    """What one kind of process has used.

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
    """What was seen so far of a process and of those it has started."""

    root: int
    _seen: dict[tuple[int, float], _Seen] = field(default_factory=dict)
    _together: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def look(self) -> None:
        """Takes one sample."""
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
        """By kind of process."""
        found = {kind: ProcessUsage(peak_bytes_together=self._together[kind]) for kind in KINDS}
        for seen in self._seen.values():
            kind = found[seen.kind]
            kind.cpu_seconds += seen.cpu_seconds
            kind.peak_bytes = max(kind.peak_bytes, seen.peak_bytes)
            kind.num_processes += 1
        return found


@contextmanager
def watch(root: int, every: float = 0.5) -> Iterator[Watch]:
    """Samples the process `root` and all below it until the block ends."""
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
    """What a process below the driver is for, by the name that Ray gives it."""
    name = command[0] if command else ""
    if "Decode" in name:
        return ENGINE
    return TASKS if name.startswith("ray::") else RAY
