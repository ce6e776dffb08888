"""instructor and langextract pointed at the server, each in a process of the environment that `make clients` makes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.commands import ROOT
from tests.pipelines.serving.served import MODEL, REAL_MODEL, Served

CLIENTS = ROOT / ".venv-clients/bin/python"
SCRIPT = Path(__file__).with_name("other_clients.py")

pytestmark = pytest.mark.skipif(not CLIENTS.exists(), reason="instructor and langextract are not here: make clients")


def ask(library: str, server: Served, model: str = MODEL) -> Any:
    command = [CLIENTS, SCRIPT, library, server.address, model]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.full
def test_instructor_gets_the_same_order_by_all_its_ways(server: Served) -> None:
    """5 s, most of it to import instructor."""
    answers = ask("instructor", server)
    assert answers.pop("paths") == ["/buyer/name", "/buyer/town", "/pieces", "/is_urgent"]
    assert answers["TOOLS"] == answers["TOOLS_STRICT"] == answers["partial"]
    for order in answers.values():
        assert order.keys() == {"buyer", "pieces", "is_urgent"}
        assert order["pieces"] is None or isinstance(order["pieces"], int)


@pytest.mark.full
def test_langextract_gets_extractions(real_server: Served) -> None:
    """10 s, most of it to import langextract."""
    found = ask("langextract", real_server, REAL_MODEL)
    assert found
    assert all(kind == "character" for kind, _ in found)
