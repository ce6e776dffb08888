"""Commands in documents, configs and scripts: the scripts, arguments, keys and files that they name exist."""

from __future__ import annotations

import importlib
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import BaseModel

from pipelines.config import JobConfig
from pipelines.config_file import known_keys
from pipelines.labelling.config import LabelConfig
from pipelines.training.config import FinetuneConfig
from tests.pipelines.commands import ROOT

_COMMAND = re.compile(r"""python[")]*,?[ ]["]?pipelines/(?P<script>\w+)\.py""")
_OURS = re.compile(r"(?:configs|sample|adapters|docs|cluster)/[\w./-]+")
"""Paths that the repository must have; others are the reader's own."""
_UNKNOWN = re.compile(r"\$|\.\.\.|…")
"""Stands for arguments that only the reader or the shell knows."""
_CONFIGS: dict[str, type[BaseModel]] = {"finetune": FinetuneConfig, "label": LabelConfig}


def documents() -> Iterator[Path]:
    for pattern in (
        *("*.md", "docs/*.md", "docs/*.sh", "configs/*", "adapters/*/*.md", "pipelines/*.py"),
        *("cluster/*", "cluster/*/*", "sample/*.md", "Makefile", "Dockerfile"),
    ):
        yield from sorted(path for path in ROOT.glob(pattern) if path.is_file())


def commands(path: Path) -> Iterator[tuple[str, list[str]]]:
    """(script, its arguments) for every command in the file.

    In running text a command ends with its backquotes, elsewhere with its line; after a backslash it goes on.
    """
    text = path.read_text()
    for found in _COMMAND.finditer(text):
        line = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
        rest = text[found.end() :]
        if path.suffix == ".md" and line.count("`") % 2:
            rest = rest[: rest.index("`")].replace("\n", " ")
        else:
            rest = re.split(r"(?<!\\)\n", rest, maxsplit=1)[0]
            rest = re.sub(r"\\\n[# ]*", "", rest)
            if path.name == "Dockerfile":
                rest = rest.replace('", "', " ").strip('"] ')
            # What follows is no argument: a comment, another command, a redirection, the end of a shell's list.
            rest = re.split(r" {3}| \| | ?> ?| && |\)\s*$", rest.lstrip('"'), maxsplit=1)[0]
        yield found["script"], shlex.split(rest)


def command(script: str, arguments: list[str]) -> tuple[Any, list[str]]:
    """What the script, or the subcommand that the arguments begin with, takes; and the arguments for it."""
    found: Any = typer.main.get_command(importlib.import_module(f"pipelines.{script}").app)
    if subcommands := getattr(found, "commands", None):
        name = arguments[0] if arguments else ""
        assert name in subcommands, f"pipelines/{script}.py has no command {name!r}"
        return subcommands[name], arguments[1:]
    return found, arguments


def changed_keys(arguments: list[str]) -> Iterator[str]:
    for option, value in itertools.pairwise(arguments):
        if option == "--set" and not value.startswith(("$", "key=")):
            yield value.split("=")[0]


@pytest.mark.parametrize("path", list(documents()), ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_use_what_is_there(path: Path) -> None:
    for script, arguments in commands(path):
        shown = f"pipelines/{script}.py {' '.join(arguments)}"
        if not arguments:  # the name alone
            importlib.import_module(f"pipelines.{script}")
            continue
        parser, rest = command(script, arguments)
        if any(_UNKNOWN.search(argument) for argument in arguments):
            options = {name for parameter in parser.params for name in [*parameter.opts, *parameter.secondary_opts]}
            unknown = [argument for argument in rest if argument.startswith("--") and argument not in options]
            assert not unknown, shown
        else:
            try:
                parser.make_context(script, list(rest))
            except typer.Exit:  # --help
                pass
            except Exception as error:
                pytest.fail(f"{shown}: {error}")
        keys = set(known_keys(_CONFIGS.get(script, JobConfig)))
        for key in changed_keys(arguments):
            assert key in keys, f"{shown}: no key {key!r}"
        for name in _OURS.findall(" ".join(arguments)):
            assert (ROOT / name).exists(), f"{shown}: no file {name}"


def test_commands_are_found() -> None:
    """The test above would pass where it finds no command at all."""
    found = {path.relative_to(ROOT).as_posix(): list(commands(path)) for path in documents()}
    scripts = {script for part in found.values() for script, _ in part}
    assert scripts >= {"extract", "evaluate", "compare", "finetune", "label", "plan", "report", "schema", "benchmark"}
    assert sum(len(part) for part in found.values()) > 100
    for name in ("README.md", "Makefile", "Dockerfile", "docs/reproduce.sh", "cluster/nightly.sh", "configs/demo.yaml"):
        assert found[name], name
    behind_submit = ["--config", "configs/catalog.yaml", "--set", "output=s3://bucket/run", "--set", "actors.max=8"]
    assert ("extract", behind_submit) in found["README.md"]
    assert ("compare", ["RUN_A", "RUN_B"]) in found["README.md"], "in running text"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("python pipelines/evaluate.py RUN --gold GOLD --baseline X", "No such option"),
        ("python pipelines/extract.py --config configs/demo.yaml --set engine.lay=tree", "no key 'engine.lay'"),
        ("python pipelines/extract.py --config configs/no.yaml", "no file configs/no.yaml"),
        ("python pipelines/compare.py RUN", "run_b"),
        ("`python pipelines/extract.py\n--config configs/demo.yaml --lay $tree` is", "--lay"),
        ("ray job submit -- python pipelines/evaluate.py RUN MORE --gold G", "MORE"),
    ],
)
def test_what_is_wrong_is_found(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"Run this: {line}\n")
    with pytest.raises((AssertionError, pytest.fail.Exception), match=re.escape(message)):
        test_commands_use_what_is_there(path)
