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
import yaml
from pydantic import BaseModel

from pipelines.config.extraction import JobConfig
from pipelines.config.finetuning import FinetuneConfig
from pipelines.config.labelling import LabelConfig
from pipelines.config.loading import known_keys
from tests.pipelines.commands import ROOT

_COMMAND = re.compile(
    r"""(?: python3? [")]*,? [ ] "? pipelines/ | python[ ]-m[ ]pipelines\. | (?<=`) pipelines/ (?=\w+\.py[ ]-) )
    (?P<script>\w+) (?:\.py)?""",
    re.VERBOSE,
)
"""By a path or by a module's name; in backquotes, and where options follow, Python itself may be left out."""
_END = re.compile(r" {3}| \| | ?\d?> ?&?| && |;| #|\)\s*$")
"""What follows is no argument: a comment, another command, a redirection, the end of a shell's list."""
_OURS = re.compile(r"(?<![\w/])(?:configs|sample|adapters|docs|cluster)/[\w./-]+")
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

    In running text a command ends with its backquotes, elsewhere with its line; after a backslash, or folded in YAML
    (`>-`), it goes on.
    """
    text = path.read_text()
    for found in _COMMAND.finditer(text):
        line = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
        rest = text[found.end() :]
        if path.suffix == ".md" and line.count("`") % 2:
            rest = rest[: rest.index("`")].replace("\n", " ")
        else:
            if path.suffix == ".yaml" and not line.strip():
                rest = re.sub(rf"\n{line}(?=\S)", " ", rest)
            rest = re.sub(r"\\\n[# ]*", "", rest).split("\n", 1)[0]
            if path.name == "Dockerfile":
                rest = rest.replace('", "', " ").strip('"] ')
            rest = _END.split(rest.lstrip('"'), maxsplit=1)[0]
        try:
            yield found["script"], shlex.split(rest)
        except ValueError as error:
            raise AssertionError(f"{path.name}: {error}: {rest}") from error


def command(script: str, arguments: list[str]) -> tuple[Any, list[str]]:
    """What the script, or the subcommand that the arguments begin with, takes; and the arguments for it."""
    found: Any = typer.main.get_command(importlib.import_module(f"pipelines.{script}").app)
    if subcommands := getattr(found, "commands", None):
        name = arguments[0] if arguments else ""
        assert name in subcommands, f"pipelines/{script}.py has no command {name!r}"
        return subcommands[name], arguments[1:]
    return found, arguments


def changed_keys(arguments: list[str]) -> Iterator[str]:
    """The keys behind `--set`, those of a mapping as well."""
    for option, value in itertools.pairwise([*arguments, ""]):
        change = option.removeprefix("--set=") if option.startswith("--set=") else value
        if not option.startswith("--set") or change.startswith(("$", "key=")):
            continue
        key, _, text = change.partition("=")
        yield key
        if text.startswith("{") and not _UNKNOWN.search(text):
            yield from (f"{key}.{inner}" for inner in yaml.safe_load(text))


@pytest.mark.parametrize("path", list(documents()), ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_use_what_is_there(path: Path) -> None:
    for script, arguments in commands(path):
        shown = f"pipelines/{script}.py {' '.join(arguments)}"
        if not arguments and path.suffix != ".yaml":  # the name alone
            importlib.import_module(f"pipelines.{script}")
            continue
        parser, rest = command(script, arguments)
        if any(_UNKNOWN.search(argument) for argument in arguments):
            options = {name for parameter in parser.params for name in [*parameter.opts, *parameter.secondary_opts]}
            given = [argument.split("=")[0] for argument in rest if re.match(r"--?[a-z]", argument)]
            assert set(given) <= options, f"{shown}: no option {set(given) - options}"
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
    for name in (
        "README.md",
        "Makefile",
        "Dockerfile",
        "bench/reproduce.sh",
        "cluster/nightly.sh",
        "configs/demo.yaml",
    ):
        assert found[name], name
    behind_submit = ["--config", "configs/catalog.yaml", "--set", "output=s3://bucket/run", "--set", "actors.max=8"]
    assert ("extract", behind_submit) in found["README.md"]
    assert ("compare", ["RUN_A", "RUN_B"]) in found["README.md"], "in running text"
    assert found["cluster/kubernetes/rayjob.yaml"][0][1][::2] == ["--config", "--set"], "folded in YAML"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("python pipelines/evaluate.py RUN --gold GOLD --baseline X", "No such option"),
        ("python pipelines/extract.py --config configs/demo.yaml --set engine.lay=tree", "no key 'engine.lay'"),
        ("python pipelines/extract.py --config configs/no.yaml", "no file configs/no.yaml"),
        ("python pipelines/compare.py RUN", "run_b"),
        ("`python pipelines/extract.py\n--config configs/demo.yaml --lay $tree` is", "--lay"),
        ("ray job submit -- python pipelines/evaluate.py RUN MORE --gold G", "MORE"),
        ("python -m pipelines.extract --config $x --set=engine.lay=tree 2>&1 | tee log", "no key 'engine.lay'"),
        ("`pipelines/extract.py --confg job.yaml`", "--confg"),
        (
            "python3 pipelines/extract.py --config job.yaml --set 'shards={target_tokenz: 3}' # a comment",
            "target_tokenz",
        ),
        ("python pipelines/compare.py runs/a -z $b", "-z"),
        ("python pipelines/extract.py --config job.yaml --set output='x", "No closing quotation"),
    ],
)
def test_what_is_wrong_is_found(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"Run this: {line}\n")
    with pytest.raises((AssertionError, pytest.fail.Exception), match=re.escape(message)):
        test_commands_use_what_is_there(path)
