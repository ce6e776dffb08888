"""How two runs are compared in the tests, and what of it is looked at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from pipelines import compare
from pipelines.comparing.comparison import RunComparison


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
    result = CliRunner().invoke(compare.app, arguments)
    return result.exit_code, result.stdout, result.stderr
