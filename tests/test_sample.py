"""Tests of the sample catalog: shipped files, counts and the honesty of the gold."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from tests.tables import table

SAMPLE = Path(__file__).resolve().parent.parent / "sample"
BUILD = SAMPLE / "build.py"


def _load_build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hpd_sample_build", BUILD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


build = _load_build()


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


def test_build_is_deterministic_and_check_sees_changes(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for target in (first, second):
        target.mkdir()
        build.build(target)
    for name in ("products.parquet", "schemas.yaml", "gold.jsonl"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    assert build.differences(first) == []
    (first / "gold.jsonl").write_text("", encoding="utf-8")
    (first / "products.parquet").unlink()
    assert build.differences(first) == ["products.parquet", "gold.jsonl"]


def test_size(rows: list[dict[str, Any]], schemas: dict[str, list[dict[str, Any]]]) -> None:
    assert len(rows) >= 160
    assert len(schemas) >= 8
    assert {row["category"] for row in rows} == set(schemas)
    assert len({row["product_id"] for row in rows}) == len(rows)


def test_readme_quotes_the_counts() -> None:
    categories = build.load_sources()
    readme = (SAMPLE / "README.md").read_text(encoding="utf-8")
    products = [product for category in categories for product in category.products]
    cells = [value for product in products for value in product.gold.values()]
    nulls = sum(value is None for value in cells)
    assert f"| Categories | {len(categories)} |" in readme
    assert f"| Products | {len(products)} |" in readme
    assert f"| Attributes | {sum(len(category.attributes) for category in categories)} " in readme
    assert f"{len(cells)}, of which {nulls} null ({nulls / len(cells):.1%})" in readme


def test_categories_are_mixed(rows: list[dict[str, Any]]) -> None:
    changes = sum(one["category"] != two["category"] for one, two in pairwise(rows))
    assert changes > len(rows) / 2


def test_every_product_has_gold_for_every_attribute(
    rows: list[dict[str, Any]], gold: list[dict[str, Any]], schemas: dict[str, list[dict[str, Any]]]
) -> None:
    assert [(row["product_id"], row["category"]) for row in rows] == [
        (entry["product_id"], entry["category"]) for entry in gold
    ]
    for entry in gold:
        assert list(entry["values"]) == [attribute["name"] for attribute in schemas[entry["category"]]]


def test_share_of_nulls(gold: list[dict[str, Any]]) -> None:
    cells = [value for entry in gold for value in entry["values"].values()]
    assert 0.15 <= sum(value is None for value in cells) / len(cells) <= 0.4


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


GOOD = """\
category: Mugs
attributes:
  - name: Brand
  - name: Colours
    multiple: true
  - name: Volume
    type: number
    unit: ml
  - name: Kind
    type: enum
    values: [mug, cup]
  - name: Handmade
    type: boolean
products:
  - id: M-1
    title: Blue mug
    gold: {Brand: null, Colours: [["Blue"]], Volume: ["300"], Kind: ["mug"], Handmade: ["true"]}
"""


@table(
    ("old", "new", "message"),
    [
        ("Brand: null, ", "", "mugs.yaml: product M-1: attribute 'Brand': missing from gold"),
        ("Brand: null", "Brand: null, Size: null", "attribute 'Size': in gold but not in the schema"),
        ('[["Blue"]]', '["Blue"]', "attribute 'Colours': a multiple attribute needs a list of lists"),
        ('["300"]', '["300 ml"]', "attribute 'Volume': '300 ml' is not a plain number"),
        ('["300"]', '["nan"]', "attribute 'Volume': 'nan' is not a plain number"),
        ('["mug"]', '["bowl"]', "attribute 'Kind': ['bowl'] must be exactly one of"),
        ('["true"]', '["yes"]', "attribute 'Handmade': ['yes'] must be"),
        ("- name: Colours", "- name: Brand", "attribute 'Brand': defined twice"),
        ("Brand: null", "Brand: null, Brand: null", "key 'Brand' occurs twice"),
    ],
)
def test_bad_sources_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "mugs.yaml"
    path.write_text(GOOD, encoding="utf-8")
    assert len(build.load_sources(tmp_path)) == 1
    assert old in GOOD
    path.write_text(GOOD.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(build.SourceError) as caught:
        build.load_sources(tmp_path)
    assert message in str(caught.value)
    assert str(caught.value).startswith("mugs.yaml: ")


def test_ids_are_unique_across_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD, encoding="utf-8")
    (tmp_path / "b.yaml").write_text(GOOD.replace("Mugs", "Cups"), encoding="utf-8")
    with pytest.raises(build.SourceError, match=r"b\.yaml: product M-1: id also in a\.yaml"):
        build.load_sources(tmp_path)
