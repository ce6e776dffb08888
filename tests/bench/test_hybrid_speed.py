"""The measure of hybrids against generate runs."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from bench.hybrid_speed import app


@pytest.mark.full  # ten seconds: layers of the published size
def test_it_tells_what_both_take() -> None:
    result = CliRunner().invoke(app, ["--layers", "4", "--documents", "2"])
    assert result.exit_code == 0, result.output
    assert "engine" in result.stdout
    assert "times as much" in result.stdout
