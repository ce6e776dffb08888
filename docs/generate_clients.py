"""Writes the table of clients in docs/serve.md: each way of each library, asked of a server with the embedded model.

make clients    installs the libraries beside, and runs this
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import groupby
from pathlib import Path

from hpd_core import Engine, EngineConfig
from tests.pipelines.serving.served import REAL_MODEL, serving_here

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / ".venv-clients/bin/python"
PAGE = ROOT / "docs/serve.md"
ADAPTER = str(ROOT / "adapters/smollm2-generalist")
_SCRIPT = ROOT / "tests/pipelines/serving/other_clients.py"
_HEAD = "| client | ways that work |\n|---|---|\n"

Row = tuple[str, str, str, str | None]
"""Library, its version, the way, and what went wrong."""


def ask(address: str) -> list[Row]:
    """Ask a server by all ways of all libraries, half a minute."""
    command = [PYTHON, _SCRIPT, address, REAL_MODEL]
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [tuple(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")]


def table(rows: list[Row]) -> str:
    """Return the table, a line for each library."""
    lines = [
        f"| {library} {version} | {', '.join(way for _, _, way, _ in ways)} |\n"
        for (library, version), ways in groupby(rows, key=lambda row: row[:2])
    ]
    return _HEAD + "".join(lines)


def main() -> int:
    """Write the table; refuse if something does not work."""
    with (
        Engine.from_pretrained(REAL_MODEL, EngineConfig(device="cpu"), ADAPTER) as engine,
        serving_here(engine, name=REAL_MODEL) as server,
    ):
        rows = ask(server.address)
    failed = [f"{library} {version}, {way}: {problem}" for library, version, way, problem in rows if problem]
    if failed:
        print("\n".join(failed), file=sys.stderr)
        return 1
    before, _, rest = PAGE.read_text().partition(_HEAD)
    _, _, after = rest.partition("\n\n")
    PAGE.write_text(f"{before}{table(rows)}\n{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
