"""The products' speed: every way multiplies right, and the table has a row for each."""

from __future__ import annotations

import pytest
import torch
from typer.testing import CliRunner

from bench import product_speed
from tests.tables import table


@table("dtype", [torch.float32, torch.bfloat16])
def test_every_way_multiplies_by_each_weight(dtype: torch.dtype) -> None:
    weights = [torch.randn(32, 64).to(dtype) for _ in range(2)]
    x = torch.randn(5, 64).to(dtype)
    for way, multiply in product_speed.ways_to_multiply(weights).items():
        for weight, each in zip(weights, multiply, strict=True):
            torch.testing.assert_close(each(x), x @ weight.T, msg=way)


def test_the_table_has_a_number_for_every_count_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_speed, "ROWS", (1, 3))
    monkeypatch.setattr(product_speed, "WEIGHTS", ((64, 32),))
    threads = torch.get_num_threads()
    try:
        result = CliRunner().invoke(product_speed.app, ["--dtype", "float32", "--repeats", "1"])
    finally:
        torch.set_num_threads(threads)
    assert result.exit_code == 0
    head, _, *rows = result.stdout.splitlines()
    assert head == "| float32, rows | 1 | 3 |"
    assert rows[0].startswith("| 64 to 32, torch |")
    assert all(row.count("|") == 4 for row in rows)


def test_another_dtype_is_refused() -> None:
    assert CliRunner().invoke(product_speed.app, ["--dtype", "float64"]).exit_code == 2
