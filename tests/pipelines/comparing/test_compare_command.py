"""The command: its line of JSON, other storages, and one line for what cannot be compared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import fsspec

from tests.pipelines.commands import ROOT
from tests.pipelines.comparing.comparisons import ask, write_gold
from tests.pipelines.comparing.made_runs import ABSENT, Row, write_run


def test_the_command_ends_with_one_line_of_json(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", [Row("p0", {"Brand": "[red]Mug[/red]\x1b[2J"})])
    b = write_run(tmp_path / "b", [Row("p0", {"Brand": ABSENT})])
    done = subprocess.run(
        [sys.executable, str(ROOT / "pipelines" / "compare.py"), a, b, "--json"],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "[red]Mug[/red]\ufffd[2J" in done.stdout
    assert "\x1b" not in done.stdout
    data = json.loads(done.stdout.splitlines()[-1])
    assert data["same_text"]["kinds"]["value_to_absent"] == 1
    assert data["examples"][0]["a"]["items"][0]["text"] == "[red]Mug[/red]\x1b[2J"
    assert (data["a"]["uri"], data["b"]["uri"], data["seed"]) == (a, b, 0)


def test_other_storages(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", [Row("p0", {"Brand": "Acme"})])
    b = write_run(tmp_path / "b", [Row("p0", {"Brand": "Kona"})])
    memory = fsspec.filesystem("memory")
    memory.put(a, "/compared/a", recursive=True)
    memory.put(b, "/compared/b", recursive=True)
    try:
        code, _, error = ask("memory://compared/a", "memory://compared/b", "--out", "memory://compared/out")
        assert code == 0, error
        assert json.loads(memory.cat_file("/compared/out/compare.json"))["rows"]["both"] == 1
        assert ask("memory://compared/a", "memory://compared/a/")[0] == 2
    finally:
        memory.rm("/compared", recursive=True)


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    rows = [Row("p0", {"Brand": "Acme"})]
    a = write_run(tmp_path / "a", rows)
    b = write_run(tmp_path / "b", rows)
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "file").write_text("x")
    planned = write_run(tmp_path / "planned", rows, unfinished_shards=1)
    stranger = write_run(tmp_path / "stranger", [Row("q", {"Brand": "Acme"})], files={"else.parquet": "f"})
    gold = write_gold(tmp_path / "gold.jsonl", {"other": {"Brand": ["Acme"]}})
    broken = write_run(tmp_path / "broken", rows)
    (tmp_path / "broken" / "attributes" / "part-000000.parquet").write_bytes(b"no Parquet")
    torn = write_run(tmp_path / "torn", rows)
    (tmp_path / "torn" / "products" / "part-000000.parquet").unlink()
    (tmp_path / "torn" / "_plan.json").write_text((tmp_path / "a" / "_plan.json").read_text())
    mangled = write_run(tmp_path / "mangled", rows)
    (tmp_path / "mangled" / "_plan.json").write_text('{"version": 1, "files": [')
    for arguments, message in [
        ((a, str(tmp_path / "nowhere")), "there is no run in"),
        ((a, str(tmp_path / "empty")), "there is no run in"),
        ((a, str(tmp_path / "file")), "it is a file, a folder is needed"),
        ((a, a + "/"), "are the same folder"),
        ((a, str(tmp_path / "link")), "are the same folder"),
        ((a, planned), "has not committed anything yet"),
        ((a, stranger), "nothing in common: no product id"),
        ((a, broken), "part-000000.parquet"),
        ((a, torn), "products/part-000000.parquet is missing"),
        ((a, mangled), "cannot read"),
        ((a, b, "--gold", str(tmp_path / "nowhere.jsonl")), "no such gold file"),
        ((a, b, "--gold", gold), "does not belong to"),
        ((a, "nothing://there"), "nothing"),
        ((a, b, "--out", str(tmp_path / "file")), "file"),
    ]:
        code, text, error = ask(*arguments)
        assert code == 2, (arguments, text)
        assert message in error, (arguments, error)
        assert error.startswith("Error: ")
        assert error.count("\n") == 1, error
