"""The measure of hybrids against a floor and generate runs."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from bench.hybrid_speed import app


@pytest.mark.full  # half a minute: layers of the published size
@pytest.mark.parametrize("options", [[], ["--long", "300"]])
def test_it_tells_what_each_takes(options: list[str]) -> None:
    result = CliRunner().invoke(app, ["--layers", "4", "--documents", "2", *options])
    assert result.exit_code == 0, result.output
    names = [line.split()[0] for line in result.stdout.splitlines() if "a document" in line]
    assert names == (["engine", "floor"] if options else ["engine", "floor", "generate"])
    assert "floors" in result.stdout
