"""`hpd serve` itself, in a process of its own: how it starts, how it ends, and what it says where it cannot start."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.serve import app
from tests.core.json.test_schema_reader import an_object
from tests.pipelines.commands import wait_until
from tests.pipelines.serving.served import Served, serving_apart
from tests.pipelines.serving.test_many_clients import ask_all
from tests.tables import table


def test_under_load_it_answers_what_it_has_taken_and_ends(tiny_model_dir: Path) -> None:
    """Half a minute on a busy machine, most of it to start a process and load torch."""
    texts = [f"Velor shoe {number}" for number in range(30)]

    async def ask_and_end(server: Served, process: subprocess.Popen[str]) -> list[Any]:
        asked = asyncio.create_task(ask_all(server.address, texts))
        await asyncio.to_thread(wait_until, lambda: server.counted("hpd_server_open_requests") == len(texts), 60)
        process.send_signal(signal.SIGTERM)
        return list(await asked)

    arguments = ("--set", "engine.max_value_tokens=60", "--set", "engine.max_tokens_per_step=16")
    with serving_apart(tiny_model_dir, *arguments) as server:
        assert server.process is not None
        assert server.chat("Velor").status == 200
        answers = asyncio.run(ask_and_end(server, server.process))
        assert len(answers) == len(texts)
        assert server.process.wait(60) == 0
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(server.place, timeout=10)


def test_told_twice_it_ends_at_once(tiny_model_dir: Path) -> None:
    arguments = ("--set", "engine.max_tokens_per_step=16", "--timeout", "600")
    names = [f"a{number}" for number in range(100)]
    schema = an_object(*names, **{name: {"type": "string", "x-hpd-max-tokens": 400} for name in names})
    with serving_apart(tiny_model_dir, *arguments) as server, ThreadPoolExecutor() as pool:
        process = server.process
        assert process is not None
        asked = [pool.submit(server.chat, f"Velor {number}", schema) for number in range(5)]
        wait_until(lambda: server.counted("hpd_server_open_requests") == len(asked), 60)
        process.send_signal(signal.SIGTERM)
        time.sleep(1)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.wait(10)
        assert any(each.exception() is not None or each.result().status == 503 for each in asked)


@table(
    ("arguments", "said"),
    [
        (["--model", "/no/such/folder"], "/no/such/folder"),
        (["--set", "engine.dtyp=float32"], "did you mean 'engine.dtype'?"),
        (["--set", "engine.dtype"], "write it as key=value"),
        (["--host", "192.0.2.1"], "cannot serve at 192.0.2.1"),
        (["--api-key", ""], "--api-key"),
        (["--api-key", "ключ"], "--api-key"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["--port", "0", *arguments])
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr
