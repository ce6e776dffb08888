"""Two runs of the same products, and what the report says of one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.reporting.report_facts import Facts
from tests.pipelines.reporting.reports import coffee, facts_of, write_two_shards


def _write_run(folder: Path) -> Path:
    return write_two_shards(folder, coffee(3, seconds=None, carried_from="run-0"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two shards; the last product was taken over from an earlier run."""
    return _write_run(tmp_path)


@pytest.fixture(scope="session")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """What a report says of `run` as it was written."""
    return facts_of(_write_run(tmp_path_factory.mktemp("reported")))


@pytest.fixture
def decoded_run(tmp_path: Path) -> Path:
    """Two shards of the run's own work alone."""
    return write_two_shards(tmp_path, coffee(3, seconds=0.0))
