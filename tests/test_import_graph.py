"""The rooms: packages import downwards only, and never in a circle.

python -m tests.test_import_graph        prints the rooms, from the top floor down
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import hpd_core
from pipelines.cli import COMMANDS
from tests.tables import table

ROOT = Path(__file__).parents[1]
HOUSES = ("hpd_core", "pipelines", "bench")

LOOKS_AT = {"hpd_core": {"hpd_core"}, "pipelines": {"hpd_core", "pipelines"}, "bench": set(HOUSES)}
"""What each house may import of the others: the engine knows nothing of jobs, and jobs nothing of measurements."""

Graph = Mapping[str, set[str]]


LAZY = ("hpd_core", "pipelines.cli")
"""Who imports by a module's name as a text: the engine's face, and the command that calls the others."""


@cache
def modules() -> dict[str, Path]:
    """Every module of the houses by its dotted name; a package's own file has the package's."""
    paths = [path for house in HOUSES for path in (ROOT / house).rglob("*.py")]
    named = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    # A house is no room. The engine hands on names of all its rooms: who imports one is seen to import its home.
    return {name: path for name, path in named.items() if name not in HOUSES}


def homes() -> dict[str, str]:
    """The module of each name that `hpd_core` hands on."""
    return {f"hpd_core.{name}": f"hpd_core.{module}" for name, module in hpd_core._HOMES.items()}


def imports_of(source: str, module: str, *, is_package: bool = False) -> set[str]:
    """The modules that a source imports anywhere, in functions and for the type checker, too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: -node.level + is_package or None] if node.level else []
            origin = ".".join([*above, *filter(None, [node.module])])
            found.add(origin)
            found.update(f"{origin}.{alias.name}" for alias in node.names)
    found = {homes().get(name, name) for name in found}
    return (found & modules().keys()) - {module}


def imported(module: str, path: Path) -> set[str]:
    """The modules that a module imports."""
    return imports_of(path.read_text(encoding="utf-8"), module, is_package=path.name == "__init__.py")


@cache
def module_graph() -> Graph:
    """Module -> the modules that it imports."""
    return {name: imported(name, path) for name, path in modules().items()}


def room(module: str) -> str:
    """The package of a house that a module is in; a module beside the packages is a room of its own."""
    return ".".join(module.split(".")[:2])


@cache
def room_graph() -> Graph:
    """Room -> the other rooms that it imports from."""
    graph: dict[str, set[str]] = {}
    for module, others in module_graph().items():
        graph.setdefault(room(module), set()).update(room(other) for other in others if room(other) != room(module))
    return graph


def circle(graph: Graph) -> list[str]:
    """One circle of the graph, if there is one."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def floors(graph: Graph) -> list[list[str]]:
    """The rooms from the ground floor up: each stands above all that it imports."""
    sorter = TopologicalSorter(graph)
    sorter.prepare()
    found = []
    while sorter.is_active():
        ready = sorter.get_ready()
        found.append(sorted(ready))
        sorter.done(*ready)
    return found


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert circle(module_graph()) == []


def test_no_room_imports_itself_by_way_of_others() -> None:
    assert circle(room_graph()) == []


@table("house", HOUSES)
def test_a_house_imports_only_what_it_may(house: str) -> None:
    of_house = {module: others for module, others in module_graph().items() if module.startswith(f"{house}.")}
    others = {other.split(".")[0] for others in of_house.values() for other in others}
    assert others <= LOOKS_AT[house]


def test_no_module_imports_a_command() -> None:
    """Commands are called by users; what two of them share is in a room. `hpd` calls each when it is asked for it."""
    commands = {name for name, path in modules().items() if path.parent == ROOT / "pipelines"} - {"pipelines.errors"}
    assert "pipelines.extract" in commands
    importers = {module for module, others in module_graph().items() if others & commands}
    assert importers <= {"pipelines.cli"}


def test_nobody_else_imports_by_a_text() -> None:
    texts = {name for name, path in modules().items() if "import_module" in path.read_text(encoding="utf-8")}
    assert texts <= set(LAZY)


def _print(lines: Iterable[str]) -> None:
    print("\n".join(lines))


if __name__ == "__main__":
    graph = room_graph()
    for number, rooms in reversed(list(enumerate(floors(graph), start=1))):
        _print(f"floor {number:2}  {name}  <- {' '.join(sorted(graph.get(name, ())))}" for name in rooms)


def test_commands_that_read_runs_start_without_torch_and_ray() -> None:
    """They take seconds to import: a module that needs them imports them where it does."""
    commands = ", ".join(f"pipelines.{name}" for group in COMMANDS.values() for name in group)
    program = f"import sys, {commands}; print(sorted(sys.modules.keys() & {{'torch', 'transformers', 'ray'}}))"
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.stdout.strip() == "[]", ended.stderr
