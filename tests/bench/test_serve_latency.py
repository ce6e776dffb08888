"""The bench of the server on a tiny model: every server answers what it is timed for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.serve_latency import app

pytestmark = pytest.mark.full


def test_clients_are_answered_and_counted(tiny_model_dir: Path) -> None:
    """A minute on a busy machine: two servers start."""
    arguments = ["--model", str(tiny_model_dir), "--clients", "1,3", "--seconds", "1", "--dtype", "float32"]
    result = CliRunner().invoke(app, [*arguments, "--transformers", "--max-tokens", "4"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout.splitlines()[-1])["rows"]
    assert [(row["server"], row["clients"]) for row in rows] == [
        (server, count) for server in ("hpd serve", "transformers serve") for count in (1, 3)
    ]
    for row in rows:
        assert row["requests"] >= row["clients"]
        assert 0 < row["p50"] <= row["p99"]
        assert row["requests_per_second"] > 0 < row["tokens_per_answer"]


def test_a_server_that_does_not_start_is_named(tiny_model_dir: Path) -> None:
    result = CliRunner().invoke(app, ["--model", str(tiny_model_dir), "--dtype", "float9"])
    assert result.exit_code == 1
    assert "the server did not start" in result.stderr
    assert "float9" in result.stderr
