"""How two runs are compared in the tests, and what of it is looked at."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from pipelines import evaluate
from pipelines.evaluating.comparison import RunComparison
from pipelines.store.corrections import ReviewLog
from pipelines.store.folders import Folder
from pipelines.store.verdicts import ReviewVerdict
from tests.pipelines.conftest import read_table


def of(comparison: RunComparison, attribute: str) -> Any:
    (found,) = [each for each in comparison.by_attribute if each.attribute == attribute]
    return found


def kinds(agreement: Any) -> dict[str, int]:
    return {name: number for name, number in agreement.kinds.items() if number}


def write_gold(path: Path, values: Mapping[str, Mapping[str, Any]]) -> str:
    path.write_text(
        "\n".join(
            json.dumps({"product_id": name, "category": "Coffee", "values": each}) for name, each in values.items()
        )
    )
    return str(path)


def ask(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(evaluate.app, arguments)
    return result.exit_code, result.stdout, result.stderr


def review(run: str, row: int, answers: Mapping[str, str], said: Mapping[str, tuple[str, ...]]) -> None:
    """Puts what a person said of a row's answers beside the run: by attribute the verdict, and what is right."""
    (text,) = {each["input_hash"] for each in read_table(run, "products") if each["source_row"] == row}
    log = ReviewLog(Folder(run))
    for number, (attribute, (verdict, *items)) in enumerate(said.items()):
        log.append(
            ReviewVerdict.model_validate(
                {
                    "id": f"verdict-{row}-{number}",
                    "time": datetime.datetime.now(datetime.UTC),
                    "reviewer": "Ada",
                    "source_file": "catalog.parquet",
                    "source_row": row,
                    "category": "Coffee",
                    "attribute": attribute,
                    "verdict": verdict,
                    "items": items,
                    "seen": {"status": "value", "items": [answers[attribute]]},
                    "input_hash": text,
                }
            )
        )
    log.close()
