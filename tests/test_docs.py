"""Commands in documents and configs: the scripts, options and files that they name exist."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.pipelines.commands import ROOT

_COMMAND = re.compile(r"^[#$\s>|]*(?:[A-Z_]+=\S+ )*(?:\.venv/bin/|\"\$)?python\"? (pipelines/(\w+)\.py.*)$")
_OURS = re.compile(r"(?:configs|sample|adapters|docs|cluster)/[\w./-]+")
"""Paths that the repository must have; others are the reader's own."""


def documents() -> Iterator[Path]:
    for pattern in ("*.md", "docs/*.md", "configs/*", "adapters/*/*.md", "pipelines/*.py"):
        yield from sorted(ROOT.glob(pattern))


def commands(path: Path) -> Iterator[tuple[str, list[str]]]:
    """(script, its arguments) for every command line in the file; lines that end in a backslash go on."""
    lines = iter(path.read_text().splitlines())
    for line in lines:
        if (found := _COMMAND.match(line)) is None:
            continue
        text = found[1]
        while text.endswith("\\"):
            text = text[:-1] + next(lines).lstrip("# ")
        lexer = shlex.shlex(text.split("   ")[0].split(" | ")[0].split(" > ")[0], posix=True, punctuation_chars=False)
        lexer.whitespace_split = True
        yield found[2], list(lexer)[1:]


def known_options(script: str, arguments: list[str]) -> set[str]:
    command: Any = typer.main.get_command(importlib.import_module(f"pipelines.{script}").app)
    if commands := getattr(command, "commands", None):
        name = next(word for word in arguments if not word.startswith("-"))
        assert name in commands, f"pipelines/{script}.py has no command {name!r}"
        command = commands[name]
    return {name for parameter in command.params for name in [*parameter.opts, *parameter.secondary_opts]}


@pytest.mark.parametrize("path", list(documents()), ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_use_what_is_there(path: Path) -> None:
    for script, arguments in commands(path):
        shown = f"pipelines/{script}.py {' '.join(arguments)}"
        options = known_options(script, arguments)
        for argument in arguments:
            if argument.startswith("--"):
                assert argument.split("=")[0] in options, f"{shown}: no option {argument}"
            for name in _OURS.findall(argument):
                assert (ROOT / name).exists(), f"{shown}: no file {name}"


def test_commands_are_found() -> None:
    """The test above would pass where it finds no command at all."""
    found = [script for path in documents() for script, _ in commands(path)]
    assert {"extract", "evaluate", "compare", "finetune", "label", "plan", "report", "schema", "benchmark"} <= set(
        found
    )
    assert len(found) > 40
