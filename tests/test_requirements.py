"""The pinned requirements: they are what pyproject.toml asks for, and `make requirements` wrote them last."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.tables import table

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
GROUPS = PROJECT["dependency-groups"]


def pins(name: str) -> dict[str, Version]:
    lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
    matches = [re.fullmatch(r"([\w.-]+)==([\w.]+)", line) for line in lines]
    assert all(matches), "a name and a version: no index, no path, no build of one platform"
    return {canonicalize_name(match[1]): Version(match[2]) for match in matches if match}


def wanted(name: str) -> list[str]:
    """What pyproject.toml says of a file: the package with its extras, or a group."""
    if group := name.removeprefix("requirements").removesuffix(".txt").removeprefix("-"):
        return list(GROUPS[group])
    extras = PROJECT["project"]["optional-dependencies"].values()
    return [*PROJECT["project"]["dependencies"], *(each for extra in extras for each in extra)]


@table("name", sorted(path.name for path in ROOT.glob("requirements*.txt")))
def test_what_is_pinned_is_what_is_asked_for(name: str) -> None:
    pinned = pins(name)
    for requirement in map(Requirement, wanted(name)):
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement}: make requirements"
        assert requirement.specifier.contains(version), f"{requirement} is pinned to {version}: make requirements"


def test_nothing_installs_the_package_hpd_of_pypi() -> None:
    """It is another project's: the distribution of this one has its own name."""
    foreign = re.compile(r"hpd\[[a-z]|pip3? install[^\n]*?[ '\"]hpd(?=['\" =<>~]|$)", re.MULTILINE)
    assert all(foreign.search(text) for text in ("pip install hpd", "pip install -q 'hpd'", "see 'hpd[serving]'"))
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    texts = {name: (ROOT / name).read_bytes().decode(errors="replace") for name in listed if "tests/" not in name}
    assert {name: found for name, text in texts.items() if (found := foreign.findall(text))} == {}
    assert PROJECT["project"]["name"] != "hpd"
