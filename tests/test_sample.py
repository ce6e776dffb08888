"""Tests of the sample catalog: shipped files, counts and the honesty of the gold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

SAMPLE = Path(__file__).resolve().parent.parent / "sample"
BUILD = SAMPLE / "build.py"


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = pq.read_table(SAMPLE / "products.parquet").to_pylist()
    return result


@pytest.fixture(scope="module")
def gold() -> list[dict[str, Any]]:
    lines = (SAMPLE / "gold.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def schemas() -> dict[str, list[dict[str, Any]]]:
    data = yaml.safe_load((SAMPLE / "schemas.yaml").read_text(encoding="utf-8"))
    categories: dict[str, list[dict[str, Any]]] = data["categories"]
    return categories


def test_shipped_files_equal_the_sources() -> None:
    command = [sys.executable, str(BUILD), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_product_has_gold_for_every_attribute(
    rows: list[dict[str, Any]], gold: list[dict[str, Any]], schemas: dict[str, list[dict[str, Any]]]
) -> None:
    assert [(row["product_id"], row["category"]) for row in rows] == [
        (entry["product_id"], entry["category"]) for entry in gold
    ]
    for entry in gold:
        assert list(entry["values"]) == [attribute["name"] for attribute in schemas[entry["category"]]]


def test_string_gold_is_in_the_text(
    rows: list[dict[str, Any]], gold: list[dict[str, Any]], schemas: dict[str, list[dict[str, Any]]]
) -> None:
    found = 0
    missing: list[str] = []
    for row, entry in zip(rows, gold, strict=True):
        text = "\n".join([row["title"], *row["bullets"], row["description"] or ""]).casefold()
        for attribute in schemas[row["category"]]:
            value = entry["values"][attribute["name"]]
            if attribute.get("type", "string") != "string" or value is None:
                continue
            for forms in value if attribute.get("multiple") else [value]:
                if forms[0].casefold() in text:
                    found += 1
                else:
                    missing.append(f"{row['product_id']} {attribute['name']}: {forms[0]}")
    assert found / (found + len(missing)) >= 0.85, missing
