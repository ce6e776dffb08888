"""`hpd schema import`, called and looked at: what it prints, and the schemas that it wrote."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from hpd_core import Attribute, CategorySchema
from pipelines.config.lint import lint
from pipelines.config.schema_file import load_schemas
from pipelines.schema import app


@dataclass(frozen=True)
class Done:
    """A call that wrote a file."""

    schemas: dict[str, CategorySchema]
    text: str
    printed: str

    def attribute(self, category: str, name: str) -> Attribute:
        (found,) = [each for each in self.schemas[category].attributes if each.name == name]
        return found

    def names(self, category: str) -> list[str]:
        return [attribute.name for attribute in self.schemas[category].attributes]

    def remarks(self) -> list[str]:
        return [str(remark) for remark in lint(self.schemas)]


def call(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["import", *map(str, arguments)])


def done(folder: Path, *arguments: object) -> Done:
    """A call that has to succeed."""
    out = folder / "out.yaml"
    return loaded(call(*arguments, "--out", out, "--force"), out)


def loaded(result: Any, out: Path) -> Done:
    """What a call has written to `out`."""
    assert result.exit_code == 0, result.stderr + result.stdout
    return Done(load_schemas(str(out)), out.read_text(encoding="utf-8"), " ".join(result.stdout.split()))


def refused(folder: Path, *arguments: object) -> str:
    """What a call says that has to be refused, and that nothing was written."""
    out = folder / "refused.yaml"
    result = call(*arguments, "--out", out)
    assert result.exit_code == 2, result.stdout
    assert not out.exists()
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return str(result.stderr)


def write(folder: Path, name: str, content: Any) -> Path:
    """A file: a text as it is (its indentation apart), anything else as JSON."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (
        textwrap.dedent(content).lstrip("\n") if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    )
    path.write_text(text, encoding="utf-8")
    return path
