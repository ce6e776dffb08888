"""An export takes the place of nothing that belongs to its run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.catalog.staging import measure
from pipelines.store.folders import open_filesystem
from tests.pipelines.evaluating.made_runs import Row
from tests.pipelines.exporting.made_runs import ask, write_normalised_run

ROWS = [Row("aa", {"Brand": "Acme"}, "Acme", "Bags", 0)]
TEXTS = {"a/x.csv": "Handle,Title\naa,A\n", "b/x.csv": "Handle,Title\nbb,B\n", "b/products-000007.csv": "Handle\ncc\n"}


@pytest.fixture
def run(tmp_path: Path) -> str:
    """A run that has read all of the files."""
    for name, text in TEXTS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    names = [str(tmp_path / name) for name in TEXTS]
    settings = {"path": names, "id": "Handle", "fields": {"title": "Title"}}
    config = {"model": "m", "input": settings}
    uri = write_normalised_run(tmp_path / "run", ROWS, files=dict.fromkeys(names, ""), config=config)
    plan = json.loads((tmp_path / "run" / "_plan.json").read_text())
    for file in plan["files"]:
        size, fingerprint = measure(*open_filesystem(file["name"]))
        file |= {"format": "shopify", "size": size, "fingerprint": fingerprint}
    (tmp_path / "run" / "_plan.json").write_text(json.dumps(plan))
    return uri


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", ["csv", "shopify", "akeneo", "google"])
@pytest.mark.parametrize(
    "place",
    [
        lambda folder: folder / "a",
        lambda folder: folder / "b",
        lambda folder: folder / "a" / "x.csv",
        lambda folder: folder / "a" / ".." / "a" / "x.csv",
        lambda folder: folder / "run",
        lambda folder: folder / "run" / "attributes",
        lambda folder: folder / "run" / "attributes" / "part-000000.csv",
        lambda folder: f"file://{folder}/b",
    ],
)
def test_what_the_run_read_and_holds_stays(
    run: str, tmp_path: Path, kind: str, place: Callable[[Path], object]
) -> None:
    """The export is refused, or goes beside them under another name."""
    before = contents(tmp_path)
    code, _, error = ask(run, "--to", kind, "--out", str(place(tmp_path)))
    after = contents(tmp_path)
    assert {name: after.get(name) for name in before} == before
    assert code == 0 or (after == before and error.startswith("Error: ")), error
    if "/run" in str(place(Path("/"))):
        assert code == 2
