"""docs/shop-files.md: its files and commands, followed in order, by a job without a model."""

from __future__ import annotations

import csv
import importlib
import re
import shlex
from pathlib import Path

import defusedxml.ElementTree
import pyarrow.parquet as pq
import pytest
from python_calamine import CalamineWorkbook
from typer.testing import CliRunner

from tests.pipelines.commands import ROOT

pytestmark = pytest.mark.docs

GUIDE = ROOT / "docs" / "shop-files.md"
_FENCE = re.compile(r"^```(?P<head>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="(?P<name>[^"]+)"')


def follow(line: str, model: Path) -> None:
    name, *arguments = shlex.split(line)[1:]
    if name == "extract":
        arguments += ["--set", f"model={model}", "--set", "decoding=made-up", "--set", "engine.device=cpu"]
    done = CliRunner().invoke(importlib.import_module(f"pipelines.{name}").app, arguments)
    assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception!r}"


def test_the_guide_is_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_model_dir: Path) -> None:
    monkeypatch.chdir(tmp_path)
    commands = 0
    for block in _FENCE.finditer(GUIDE.read_text(encoding="utf-8")):
        title = _TITLE.search(block["head"])
        if title is not None:
            Path(title["name"]).write_text(block["body"], encoding="utf-8", newline="")
            continue
        for line in block["body"].splitlines():
            follow(line, tiny_model_dir)
            commands += 1
    assert commands == 7

    with open("products_export.csv", newline="") as before, open("enriched/products_export.csv", newline="") as after:
        old, new = list(csv.reader(before)), list(csv.reader(after))
    places = [index for index, name in enumerate(old[0]) if "metafields" not in name]
    assert [[row[place] for place in places] for row in new] == [[row[place] for place in places] for row in old]
    assert new[3][7] == "beige", "what stands there stays"
    assert not any(new[2][7:]), "a variant has no answers of its own"
    items = list(defusedxml.ElementTree.parse("enriched/feed.xml").getroot().iter("item"))
    assert [item.findtext("{http://base.google.com/ns/1.0}id") for item in items] == ["T-1", "T-2"]
    table = pq.read_table("enriched/products.parquet")
    assert table["category"].to_pylist() == ["Teas", "Teas", "Sodas"]
    sheet = CalamineWorkbook.from_path("enriched/teas.xlsx").get_sheet_by_index(0).to_python()
    assert [row[0] for row in sheet[1:]] == ["3017620422003", "5000112546415", "5000112546422"]
