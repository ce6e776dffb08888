"""The way out of a file that is refused, done as it is told: then the file is read."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pipelines.catalog.finding import find_files
from pipelines.errors import UsageError

ROWS = [{"id": "1", "title": "Größe 40"}, {"id": "2", "title": "rot"}]
LINES = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in ROWS)
NAMES = [
    *("plain", "a b", "it's", '5" nails $(touch oops) `x`', "-r", "*?[1]", "a;b&c|d>e", "Größe", "n\nl", "\u200b", "~"),
    *("FILE FOLDER", "\\x41"),
]


def follow(message: str, folder: Path) -> None:
    """Runs the command of a message."""
    command = re.search(r"\): [a-z ]+: (.*)", message.partition(". If it is no part")[0], re.DOTALL)
    assert command is not None, message
    tools = re.findall(r"(?:^|&& )(\w+)", command[1])
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        pytest.skip(f"not on this machine: {missing}")
    subprocess.run(["bash", "-c", command[1]], cwd=folder, check=True, capture_output=True)


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()


@pytest.mark.parametrize("name", [*NAMES, os.fsdecode(b"\xff")])
@pytest.mark.parametrize("where", ["in", "."])
def test_whatever_the_file_is_called(tmp_path: Path, name: str, where: str) -> None:
    file = tmp_path / where / f"{name}.jsonl"
    file.write_bytes(LINES.encode("utf-16"))
    with pytest.raises(UsageError, match="UTF-16") as refused:
        find_files([f"{name}.jsonl"] if where == "." else ["in"])
    follow(str(refused.value), tmp_path)
    assert file.read_text() == LINES
    assert {path.name for path in tmp_path.rglob("*")} == {"in", file.name}
