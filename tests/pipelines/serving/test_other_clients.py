"""Libraries that people use, pointed at the server from the environment that `make clients` makes."""

from __future__ import annotations

import pytest

from docs.generate_clients import PAGE, PYTHON, ask, table
from tests.pipelines.serving.served import Served


@pytest.mark.full
@pytest.mark.skipif(not PYTHON.exists(), reason="the clients are not here: make clients")
def test_all_ways_of_all_clients_work_as_the_page_says(real_server: Served) -> None:
    """30 s, most of it to import the libraries."""
    rows = ask(real_server.address)
    assert not [row for row in rows if row[3]]
    assert table(rows) in PAGE.read_text()
