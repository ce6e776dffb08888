"""Kills a run at the steps of its protocol. Python imports this file by itself in every process on whose path it lies.

The folder in HPD_KILLS says what to do (tests/pipelines/kills.py writes and reads it):

plan.json        the kills: [{"step": "commit", "occurrence": 3, "moment": "inside", "victim": "machine"}, ...]
driver           process id of the driver
steps/<step>     a line for each time that a process came to the step, in all processes of the run together
fired/<n>.json   kill n of the plan has happened

Only the storage operations of the production code are wrapped, from outside, when the module that has them is imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

_LINE = 40
_KILLS = Path(os.environ["HPD_KILLS"]) if "HPD_KILLS" in os.environ else None
_now = threading.local()


class _Patch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module and wraps what it has."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != "pipelines.store.folders":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        self._loader: Any = spec.loader
        spec.loader = self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        kind = module.__dict__["Folder"]
        for name in ("write", "create", "copy", "remove"):
            setattr(kind, name, _watched(name, getattr(kind, name)))
        kind._write_temporary = _after_temporary(kind._write_temporary)
        kind._copy_temporary = _after_copy(kind._copy_temporary)


def step_of(operation: str, name: str, *, is_driver: bool) -> str | None:
    """The protocol's name for changing an object; None for what is only tidying."""
    folder, _, leaf = name.partition("/")
    if operation == "remove":
        return "clean" if folder == "_parts" else None
    if operation == "copy":
        return f"{'repair' if is_driver else 'publish'} {folder}"
    if folder == "_parts":
        return f"part {leaf.partition('/')[0]}"
    if folder == "_attempts":
        return "end" if leaf.endswith((".done.json", ".error.json")) else "begin"
    return {
        "_plan.json": "plan",
        "_lease": "lease",
        "_schemas.json": "schemas",
        "_engine.json": "engine",
        "_shards": "commit",
        "manifest.json": "finish",
        "result.json": "result",
    }.get(folder)


def _watched(operation: str, do: Callable[..., Any]) -> Callable[..., Any]:
    def change(folder: Any, name: str, *arguments: Any) -> Any:
        step = step_of(operation, arguments[0] if operation == "copy" else name, is_driver=_is_driver())
        if step is None:
            return do(folder, name, *arguments)
        kills = _kills_of(step, _count(step))
        _fire(kills, "before")
        _now.kills = kills
        if operation == "remove" and any(kill["moment"] == "inside" for kill in kills.values()):
            next(Path(folder.path(name)).rglob("*.parquet")).unlink()
            _fire(kills, "inside")
        try:
            answer = do(folder, name, *arguments)
        finally:
            _now.kills = {}
        _fire(kills, "after")
        return answer

    return change


def _after_temporary(do: Callable[..., str]) -> Callable[..., str]:
    def write(folder: Any, name: str, data: bytes) -> str:
        path = do(folder, name, data)
        kills = getattr(_now, "kills", {})
        if any(kill["moment"] == "torn" for kill in kills.values()):
            # A process that dies while it writes leaves a part of the file.
            os.truncate(path, len(data) // 2)
            _fire(kills, "torn")
            # Whoever else was hit: nobody goes on with half an object.
            os.kill(os.getpid(), signal.SIGKILL)
        _fire(kills, "inside")
        return path

    return write


def _after_copy(do: Callable[..., str]) -> Callable[..., str]:
    def copy(*arguments: Any) -> str:
        path = do(*arguments)
        _fire(getattr(_now, "kills", {}), "inside")
        return path

    return copy


def _count(step: str) -> int:
    """How often processes of the run have come to this step, this time included."""
    assert _KILLS is not None
    file = os.open(_KILLS / "steps" / step, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{os.getpid()}".ljust(_LINE - 1).encode() + b"\n")
        # Where this process's own line ends, even if another one has written since.
        return os.lseek(file, 0, os.SEEK_CUR) // _LINE
    finally:
        os.close(file)


def _kills_of(step: str, occurrence: int) -> dict[int, dict[str, Any]]:
    assert _KILLS is not None
    plan = json.loads((_KILLS / "plan.json").read_text())
    return {n: kill for n, kill in enumerate(plan) if (kill["step"], kill["occurrence"]) == (step, occurrence)}


def _fire(kills: dict[int, dict[str, Any]], moment: str) -> None:
    assert _KILLS is not None
    for number, kill in kills.items():
        if kill["moment"] == moment:
            victims = [pid for pid in _victims(kill["victim"]) if _is_alive(pid)]
            record = kill | {"by": os.getpid(), "victims": victims}
            (_KILLS / "fired" / f"{number}.json").write_text(json.dumps(record))
            if kill["victim"] == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            for victim in victims:
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    continue


def _victims(kind: str) -> list[int]:
    """The processes to kill, this one last."""
    if kind == "stop":
        return []
    if kind == "self":
        return [os.getpid()]
    if kind == "driver":
        return [_driver()]
    below = _children()
    raylets = [pid for pid in [os.getppid(), *below.get(_driver(), [])] if _is_raylet(pid)][:1]
    if kind == "raylet":
        # A process that sees its raylet die may still get some steps further: nobody stops it at this one.
        return raylets
    top = _driver() if kind == "machine" else raylets[0]
    found = [top]
    for pid in found:
        found.extend(below.get(pid, []))
    return [pid for pid in found if pid != os.getpid()] + [os.getpid()] * (os.getpid() in found)


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        found.setdefault(parent, []).append(int(path.parent.name))
    return found


def _is_raylet(pid: int) -> bool:
    try:
        return b"raylet/raylet" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    except OSError:
        return False


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _driver() -> int:
    assert _KILLS is not None
    return int((_KILLS / "driver").read_text())


def _is_driver() -> bool:
    return _driver() == os.getpid()


if _KILLS is not None:
    sys.meta_path.insert(0, _Patch())
