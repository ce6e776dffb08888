"""Numbers of more digits than a file's numbers hold: written as they are, or left out and counted; never changed."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpd_core import Attribute, CategorySchema
from tests.pipelines.evaluating.made_runs import Row
from tests.pipelines.exporting.made_runs import exported, read_wide, write_normalised_run, write_shop_run

CODE = Attribute(name="Code", type="number")
REASON = "more digits than a number of the file holds: export csv"


def found(folder: Path, to: str, attribute: Attribute, *values: Any) -> tuple[list[Any], dict[str, int]]:
    schemas = {"A": CategorySchema(category="A", attributes=(attribute,))}
    rows = [Row(f"p{n}", {"Code": each}, str(each), "A") for n, each in enumerate(values)]
    uri = write_normalised_run(folder / "run", rows, schemas)
    result = exported(uri, "--to", to, "--out", str(folder / "out"))
    return [row["Code"] for row in read_wide(result["files"][0])], result["left_out"]


def test_the_ends_of_a_range_do_not_change(tmp_path: Path) -> None:
    ranges = ["9007199254740993 to 9007199254740995", "9007199254740990 to 9007199254740991"]
    schemas = {"A": CategorySchema(category="A", attributes=(CODE,))}
    rows = [Row(f"p{n}", {"Code": each}, each, "A") for n, each in enumerate(ranges)]
    uri = write_normalised_run(tmp_path / "run", rows, schemas)
    result = exported(uri, "--to", "jsonl", "--out", str(tmp_path / "out"))
    ends = [(row["Code min"], row["Code max"]) for row in read_wide(result["files"][0])]
    assert (ends, result["left_out"]) == ([(None, None), (9007199254740990, 9007199254740991)], {REASON: 1})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(st.lists(st.decimals(-(10**22), 10**22, places=4), min_size=1, max_size=8))
def test_what_is_written_is_what_was_said(tmp_path_factory: pytest.TempPathFactory, numbers: list[Decimal]) -> None:
    cells, left_out = found(tmp_path_factory.mktemp("any"), "jsonl", CODE, *(f"{each:f}" for each in numbers))
    assert all(cell is None or Decimal(str(cell)) == each for cell, each in zip(cells, numbers, strict=True))
    assert left_out.get(REASON, 0) == sum(cell is None for cell in cells)


def test_a_measure_of_shopifys_has_every_digit(tmp_path: Path) -> None:
    path = tmp_path / "shop.csv"
    path.write_text("Handle,Title\na,T\n", encoding="utf-8")
    width = Attribute.model_validate({"name": "Width", "type": "number", "unit": "cm"})
    schemas = {"A": CategorySchema(category="A", attributes=(width,))}
    rows = [Row("a", {"Width": "0.12345678901234567891"}, "0.12345678901234567891 cm", "A", 0)]
    uri = write_shop_run(tmp_path / "run", path, "csv", "Handle", rows, schemas=schemas)
    (file,) = exported(uri, "--to", "shopify", "--out", str(tmp_path / "new.csv"))["files"]
    written = json.loads(read_wide(file)[0]["Width (product.metafields.custom.width)"], parse_float=Decimal)
    assert written == {"value": Decimal("0.12345678901234567891"), "unit": "cm"}
