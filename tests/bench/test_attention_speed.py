"""The speed of attention: a row for every way that this machine has."""

from __future__ import annotations

import pytest
import torch
from typer.testing import CliRunner

from bench import attention_speed
from tests.core.native import WAYS
from tests.tables import table

SMALL = attention_speed.Sizes(prefix=6, document=5, num_values=2)


@table("dtype", [torch.float32, torch.bfloat16])
def test_every_way_attends(dtype: torch.dtype) -> None:
    with torch.inference_mode():
        rows = dict(attention_speed.table(dtype, [SMALL, SMALL], repeats=1))
    assert list(rows) == WAYS
    assert all(len(cells) == 4 for cells in rows.values())


def test_the_table_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_speed, "COHORTS", {"small": SMALL})
    threads = torch.get_num_threads()
    try:
        result = CliRunner().invoke(attention_speed.app, ["--repeats", "1"])
    finally:
        torch.set_num_threads(threads)
    assert result.exit_code == 0
    assert result.stdout.startswith("| bfloat16, µs | small, prefill | small, decoding |\n|---|---|---|\n")
    assert len(result.stdout.splitlines()) == 2 + len(WAYS)


def test_another_dtype_is_refused() -> None:
    assert CliRunner().invoke(attention_speed.app, ["--dtype", "float64"]).exit_code == 2
