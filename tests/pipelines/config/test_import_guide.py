"""docs/schemas.md, on imports: its files and commands, followed in order; what it shows is what is written."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.config.schema_file import load_schemas
from pipelines.schema import app
from tests.pipelines.commands import ROOT

pytestmark = pytest.mark.docs

GUIDE = ROOT / "docs" / "schemas.md"
_FENCE = re.compile(r"^```(?P<head>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="(?P<name>[^",]+)(?P<written>, as it was written)?"')


def test_the_guide_is_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "shop_models", raising=False)
    commands = 0
    imports = GUIDE.read_text(encoding="utf-8").partition("\n## Schemas from where they are\n")[2]
    for block in _FENCE.finditer(imports):
        title, body = _TITLE.search(block["head"]), block["body"]
        if title is None:
            for line in body.splitlines():
                assert line.startswith("hpd schema "), line
                done = CliRunner().invoke(app, shlex.split(line)[2:])
                assert done.exit_code == 0, f"{line}\n{done.output}"
                commands += 1
        elif title["written"]:
            assert Path(title["name"]).read_text(encoding="utf-8") == body
        else:
            Path(title["name"]).write_text(body, encoding="utf-8")
    assert commands == 8

    files = {path.name: load_schemas(path.name) for path in Path().glob("*.yaml")}
    assert list(files["google.yaml"]) == ["Clothing", "Shirts & Tops"]
    (boots,) = files["akeneo.yaml"].values()
    assert (boots.category, [each.name for each in boots.attributes]) == ("Stiefel", ["Farbe", "Länge"])
    (suitcase,) = files["suitcase.yaml"].values()
    assert [each.name for each in suitcase.attributes] == ["Brand", "Shell", "Colours", "size.width"]
    types = {name: [each.type for each in files[name]["Kites"].attributes] for name in ("typed.yaml", "plain.yaml")}
    assert types == {"typed.yaml": ["boolean", "string", "number"], "plain.yaml": ["string"] * 3}
    assert [each.name for each in files["proposed.yaml"]["Kites"].attributes] == ["Colour", "Span"]
