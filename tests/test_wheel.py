"""The built wheel: everything a job needs is in it, and it runs the demo where there is no checkout.

A build, an environment, and one job over three products: 44 seconds on 2 cores that others used as well, most of it
the job's. The build needs hatchling from the package index; without one, these tests are skipped.

The environment is what `pip install 'WHEEL[pipelines]'` makes of an empty one: the wheel, and what its metadata asks
for, one requirement after the other. These are gigabytes that lie here already, so that they are linked, not installed
again. The checkout, which this environment has as "editable", is not among them.
"""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PLACES = {"hpd_core": "hpd_core", "pipelines": "pipelines"} | {
    folder: f"pipelines/shipped/{folder}" for folder in ("sample", "adapters", "configs")
}
"""Folder of the checkout -> where it is in the wheel."""
NOT_SHIPPED = ("sample/source/", "sample/build.py", "adapters/recipe/", "adapters/__init__.py")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode and "hatchling" in built.stderr:
        pytest.skip(f"hatchling, which builds the wheel, cannot be fetched: {built.stderr.splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def hpd(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `hpd` of an environment that has the wheel and what its extra `pipelines` needs."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run(pip, check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for needed in (*dependencies(wheel), distribution("pip")):
        here = Path(str(needed.locate_file("")))
        for name in {file.parts[0] for file in needed.files or ()} - {"..", "__pycache__"}:
            if not (site / name).exists():
                (site / name).symlink_to(here / name)
    return folder / "bin" / "hpd"


def dependencies(wheel: Path) -> list[Distribution]:
    """The packages that pip would install beside the wheel for its extra `pipelines`."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = email.message_from_bytes(archive.read(metadata)).get_all("Requires-Dist", [])
    found: dict[str, Distribution] = {}
    left = [(lines, frozenset({"pipelines"}))]
    seen = set()
    while left:
        lines, extras = left.pop()
        for requirement in map(Requirement, lines):
            name, asked = canonicalize_name(requirement.name), frozenset(requirement.extras)
            marker = requirement.marker
            if (name, asked) in seen or not (
                marker is None or any(marker.evaluate({"extra": e}) for e in ("", *extras))
            ):
                continue
            seen.add((name, asked))
            found[name] = distribution(name)
            left.append((found[name].requires or [], asked))
    return list(found.values())


def shipped() -> dict[str, Path]:
    """Name in the wheel -> file, for every file that has to be there: all that git knows or would take."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", *PLACES]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    found = {}
    for name in filter(None, names):
        folder, rest = name.split("/", 1)
        if not name.startswith(NOT_SHIPPED) and (ROOT / name).is_file():
            found[f"{PLACES[folder]}/{rest}"] = ROOT / name
    return found


@pytest.mark.skipif(not (ROOT / ".git").exists() or shutil.which("git") is None, reason="git says what belongs here")
def test_the_wheel_has_every_file_and_no_other(wheel: Path) -> None:
    expected = shipped()
    kinds = {Path(name).suffix for name in expected}
    assert kinds >= {".py", ".cpp", ".h", ".j2", ".css", ".js", ".csv", ".yaml", ".jsonl", ".parquet", ".safetensors"}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert names == expected.keys()
        assert [name for name, path in expected.items() if archive.read(name) != path.read_bytes()] == []


def run(hpd: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([str(hpd), *arguments], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.full
def test_the_demo_runs_where_there_is_no_checkout(hpd: Path, tmp_path: Path) -> None:
    result = run(hpd, tmp_path, "demo", "--limit", "3")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert any(line.startswith("3 products of 3 rows extracted") for line in lines), result.stdout
    assert any("3 products" in line and "exact match" in line for line in lines), result.stdout
    assert lines[-1] == "Report: runs/demo/report.html"
    assert (tmp_path / "runs" / "demo" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "runs" / "demo" / "manifest.json").exists()
