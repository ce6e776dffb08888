"""Commands in documents are what the scripts take, links lead somewhere, the reference is the code's."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pydantic import BaseModel

from pipelines.cli import COMMANDS
from pipelines.config.extraction import JobConfig
from pipelines.config.finetuning import FinetuneConfig
from pipelines.config.labelling import LabelConfig
from pipelines.config.loading import known_keys
from tests.pipelines.commands import ROOT
from tests.tables import table

pytestmark = pytest.mark.docs

_SCRIPT = re.compile(
    r"""(?: python3? [")]*,? [ ] "? (?P<folder>pipelines|bench)/ | python[ ]-m[ ](?P<package>pipelines|bench)\.
    | (?<=`) (?P<bare>pipelines|bench)/ (?=\w+\.py[ ]-) ) (?P<name>[a-z_]+\b) (?:\.py)?""",
    re.VERBOSE,
)
"""By a path or by a module's name; in backquotes, and where options follow, Python itself may be left out."""
_HPD = re.compile(
    r"(?: ^[ \t]* (?:\#[ ]+)? (?:\$[ ])? (?:[\w.$()]+/)* | (?<=`) ) hpd [ ] (?P<name>[a-z]+)", re.VERBOSE | re.MULTILINE
)
"""`hpd NAME`, at the beginning of a line (by a path as well) or of what is in backquotes."""
_END = re.compile(r" {3}| \| | ?\d?> ?&?| && |;| #|\)\s*$")
"""What follows is no argument: a comment, another command, a redirection, the end of a shell's list."""
_OURS = re.compile(r"(?<![\w/])(?:configs|sample|adapters|docs|cluster)/[\w./-]+")
"""Paths that the repository must have; others are the reader's own."""
_UNKNOWN = re.compile(r"\$|\.\.\.|…")
"""Stands for arguments that only the reader or the shell knows."""
_CONFIGS: dict[str, type[BaseModel]] = {
    "finetune": FinetuneConfig,
    "label": LabelConfig,
}
_LINK = re.compile(r"(?<!`)\]\((?P<target>[^)\s]+)(?: \"[^\"]*\")?\)")
_FILE = re.compile(
    r"(?<![\w/.-])(?:bench|cluster|configs|docs|hpd_core|pipelines|sample|tests)/[a-z0-9_/.-]+"
    r"\.(?:csv|json|jsonl|md|png|py|sh|svg|ya?ml)\b"
)
"""A file of the repository, as running text and commands name it."""
_HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```\s*$", re.MULTILINE | re.DOTALL)


def documents() -> Iterator[Path]:
    """Every file that names commands."""
    for pattern in (
        *("*.md", "docs/*.md", "docs/*/*.md", "configs/*", "adapters/*/*.md", "pipelines/*.py", "bench/*"),
        *("cluster/*", "cluster/*/*", "sample/*.md", "Makefile", "Dockerfile"),
    ):
        yield from sorted(path for path in ROOT.glob(pattern) if path.is_file())


def pages() -> list[Path]:
    """Every page in Markdown."""
    return [path for path in documents() if path.suffix == ".md"]


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# Commands


def commands(path: Path) -> Iterator[tuple[str, list[str]]]:
    """(`hpd.NAME` or a script's module, its arguments) for every command in the file.

    In running text a command ends with its backquotes, elsewhere with its line; after a backslash, or folded in YAML
    (`>-`), it goes on.
    """
    text = path.read_text()
    for found in sorted([*_SCRIPT.finditer(text), *_HPD.finditer(text)], key=lambda match: match.start()):
        line = text[text.rfind("\n", 0, found.end()) + 1 : found.start()]
        rest = text[found.end() :]
        if text[found.start() - 1] == "`" or (path.suffix == ".md" and line.count("`") % 2):
            rest = rest[: rest.index("`")].replace("\n", " ")
        else:
            if path.suffix == ".yaml" and not line.strip():
                rest = re.sub(rf"\n{line}(?=\S)", " ", rest)
            rest = re.sub(r"\\\n[# ]*", "", rest).split("\n", 1)[0]
            if path.name == "Dockerfile":
                rest = rest.replace('", "', " ").strip('"] ')
            rest = _END.split(rest.lstrip('"'), maxsplit=1)[0]
        groups = found.groupdict()
        package = next((groups[key] for key in ("folder", "package", "bare") if groups.get(key)), "hpd")
        try:
            yield f"{package}.{found['name']}", shlex.split(rest)
        except ValueError as error:
            raise AssertionError(f"{path.name}: {error}: {rest}") from error


def command(module: str, arguments: list[str]) -> tuple[Any, list[str]]:
    """What the script, or the subcommand that the arguments begin with, takes; and the arguments for it."""
    package, name = module.split(".")
    if package == "hpd":
        assert any(name in group for group in COMMANDS.values()), f"there is no command hpd {name}"
        package = "pipelines"
    assert importlib.util.find_spec(f"{package}.{name}"), f"there is no script {package}/{name}.py"
    found: Any = typer.main.get_command(importlib.import_module(f"{package}.{name}").app)
    if subcommands := getattr(found, "commands", None):
        name = arguments[0] if arguments else ""
        assert name in subcommands, f"{module} has no command {name!r}"
        return subcommands[name], arguments[1:]
    return found, arguments


def changed_keys(arguments: list[str]) -> Iterator[str]:
    """The keys behind `--set`, those of a mapping as well."""
    for option, value in itertools.pairwise([*arguments, ""]):
        change = option.removeprefix("--set=") if option.startswith("--set=") else value
        if not (option == "--set" or option.startswith("--set=")) or change.startswith(("$", "key=")):
            continue
        key, _, text = change.partition("=")
        yield key
        if text.startswith("{") and not _UNKNOWN.search(text):
            yield from (f"{key}.{inner}" for inner in yaml.safe_load(text))


def check_commands(path: Path) -> None:
    """Every command in the file is there, and takes the options and keys that it is given."""
    for module, arguments in commands(path):
        shown = f"{module} {' '.join(arguments)}"
        parser, rest = command(module, arguments)
        if not rest and (path.suffix != ".yaml" or module.startswith("hpd.")):  # the name alone
            continue
        if any(_UNKNOWN.search(argument) for argument in arguments):
            options = {name for parameter in parser.params for name in [*parameter.opts, *parameter.secondary_opts]}
            given = [argument.split("=")[0] for argument in rest if re.match(r"--?[a-z]", argument)]
            assert set(given) <= options, f"{shown}: no option {set(given) - options}"
        else:
            try:
                parser.make_context(module, list(rest))
            except typer.Exit:  # --help
                pass
            except Exception as error:
                pytest.fail(f"{shown}: {error}")
        keys = set(known_keys(_CONFIGS.get(module.split(".")[1], JobConfig)))
        for key in changed_keys(arguments):
            assert key in keys, f"{shown}: no key {key!r}"
        for name in _OURS.findall(" ".join(arguments)):
            assert (ROOT / name).exists(), f"{shown}: no file {name}"


# The log's commands are those of the day.
@table("path", [path for path in documents() if path.name != "log.md"])
def test_commands_use_what_is_there(path: Path) -> None:
    check_commands(path)


def test_commands_are_found() -> None:
    """The test above would pass where it finds no command at all."""
    found = {named(path): list(commands(path)) for path in documents()}
    modules = {module for part in found.values() for module, _ in part}
    assert modules >= {f"hpd.{name}" for group in COMMANDS.values() for name in group}
    assert modules >= {"pipelines.extract", "bench.benchmark", "bench.load_test"}
    assert sum(len(part) for part in found.values()) > 150
    for name in (
        *("README.md", "Makefile", "Dockerfile", "docs/fine-tune.md", "docs/reference/commands.md"),
        *("bench/reproduce.sh", "cluster/nightly.sh", "configs/demo.yaml"),
    ):
        assert found[name], name
    behind_submit = ["--config", "configs/catalog.yaml", "--set", "output=s3://bucket/run"]
    assert ("pipelines.extract", behind_submit) in found["docs/s3-and-clusters.md"]
    assert ("hpd.evaluate", ["RUN_A", "RUN_B"]) in found["README.md"], "in running text"
    assert found["cluster/kubernetes/rayjob.yaml"][0][1][::2] == ["--config", "--set"], "folded in YAML"


# Links


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    found: Counter[str] = Counter()
    names = set()
    for heading in _HEADING.findall(_FENCED.sub("", path.read_text())):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")
        names.add(f"{slug}-{found[slug]}" if found[slug] else slug)
        found[slug] += 1
    return frozenset(names)


def broken_links(path: Path) -> Iterator[str]:
    """What is wrong with the page's relative links."""
    for found in _LINK.finditer(_FENCED.sub("", path.read_text())):
        target = found["target"]
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(file):
            yield f"{target}: no such heading"
        elif ROOT / "docs" in path.parents and ROOT / "docs" not in file.parents:
            yield f"{target}: the site has only what is in docs/"


@table("path", pages())
def test_links_lead_somewhere(path: Path) -> None:
    assert list(broken_links(path)) == []


@table("path", [path for path in pages() if path.name != "log.md"])
def test_files_that_a_page_names_are_there(path: Path) -> None:
    assert [name for name in _FILE.findall(path.read_text()) if not (ROOT / name).exists()] == []


def test_every_page_of_the_site_is_in_its_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    listed = re.findall(r"[\w/-]+\.md$", navigation, re.MULTILINE)
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert len(listed) == len(set(listed))
    assert set(listed) == there


# What the pages are


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


@table("path", sorted({*(ROOT / "docs").glob("*.md")} - {ROOT / "docs" / "log.md"}))
def test_pages_for_users_are_short(path: Path) -> None:
    assert len(path.read_text().split()) <= 2200


def test_the_log_is_one_page_of_8000_words() -> None:
    assert len((ROOT / "docs" / "log.md").read_text().split()) <= 8000


def test_all_pages_together_are_a_short_book() -> None:
    assert sum(len(path.read_text().split()) for path in (ROOT / "docs").rglob("*.md")) <= 45_000


def test_the_reference_says_what_the_code_says() -> None:
    spec = importlib.util.spec_from_file_location("generate_reference", ROOT / "docs" / "generate_reference.py")
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    assert reference.stale() == [], "python docs/generate_reference.py"
    for name, text in reference.pages().items():
        assert not re.search(r"\| *\|$", text, re.MULTILINE), f"{name}: a key, column or option without a description"
