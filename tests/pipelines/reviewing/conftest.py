"""A run that can be reviewed, and the server of its page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipelines.reviewing.made_runs import coffee, reviewable_run
from tests.pipelines.reviewing.served import Server, serving


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return reviewable_run(tmp_path, [[coffee(number) for number in range(3)]])


@pytest.fixture
def server(run: Path) -> Iterator[Server]:
    with serving(run) as server:
        yield server
