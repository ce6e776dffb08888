"""A catalog to be labelled, the command that labels it, and what it leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner, Result

from pipelines.label import app
from tests.pipelines.conftest import Workplace

PRICES = {"price_per_million_input_tokens": 10, "price_per_million_output_tokens": 100}


class Labelling:
    """A catalog, its schemas and a place for labels."""

    def __init__(self, workplace: Workplace) -> None:
        self.workplace = workplace
        self.output = workplace.folder / "labels.jsonl"
        self.rejected_path = workplace.folder / "labels.jsonl.rejected.jsonl"
        self.manifest_path = workplace.folder / "labels.jsonl.json"

    def config(self, teacher: dict[str, Any], **changes: Any) -> Path:
        document = {key: self.workplace.document()[key] for key in ("input", "schemas")}
        document |= {"output": str(self.output), "teacher": teacher, **changes}
        path = self.workplace.folder / "label.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return path

    def ask(self, url: str, *arguments: str, teacher: dict[str, Any] | None = None, **changes: Any) -> Result:
        # The servers are threads of this process: on a busy machine one may not be run for long.
        settings = {"kind": "openai", "base_url": url, "model": "m", "timeout_seconds": 600, **(teacher or {})}
        return CliRunner().invoke(app, ["--config", str(self.config(settings, **changes)), *arguments])

    def labelled(self) -> list[dict[str, Any]]:
        return read_lines(self.output)

    def rejected(self) -> list[dict[str, Any]]:
        return read_lines(self.rejected_path)

    def manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads(self.manifest_path.read_text())
        return manifest


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def totals(result: Result) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer
