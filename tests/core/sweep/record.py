"""What the last sweep found, kept beside it: which tests hold, and docs/models.md is written from it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import transformers

from tests.core.sweep.outcome import Outcome

PATH = Path(__file__).with_name("outcomes.json")


@dataclass(frozen=True, slots=True)
class Record:
    """The outcomes of every type, and the version of transformers that they are of."""

    transformers: str
    by_type: dict[str, list[Outcome]]

    @classmethod
    def read(cls, path: Path = PATH) -> Record:
        """The one that is kept. Raises `OSError` if there is none."""
        table = json.loads(path.read_text("utf-8"))
        found = {
            name: [Outcome(name, *row.split("/"), kind, reason) for row, (kind, reason) in rows.items()]
            for name, rows in table["types"].items()
        }
        return cls(table["transformers"], found)

    @classmethod
    def of(cls, outcomes: Iterable[list[Outcome]]) -> Record:
        """Of a sweep of this version's."""
        return cls(transformers.__version__, {found[0].type: found for found in outcomes})

    def write(self, path: Path = PATH) -> None:
        """In the order of the types' names, a line for each."""
        lines = []
        for name, found in sorted(self.by_type.items()):
            rows = {f"{item.layout}/{item.reach}": [item.kind, item.reason] for item in found}
            lines.append(f"  {json.dumps(name)}: {json.dumps(rows)}")
        text = (
            f'{{\n "transformers": {json.dumps(self.transformers)},\n "types": {{\n' + ",\n".join(lines) + "\n }\n}\n"
        )
        path.write_text(text, "utf-8")
