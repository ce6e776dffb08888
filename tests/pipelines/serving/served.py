"""A server to ask: in a thread of the test, on a real engine, or the real command in a process of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from hpd_core import Engine
from pipelines.console.exit_codes import open_socket
from pipelines.serving.app import make_server
from pipelines.serving.gate import ServingLimits
from tests.pipelines.commands import ROOT, wait_until

MODEL, REAL_MODEL = "tiny", "smollm2"
SHOE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "brand": {"type": "string", "description": "who makes it"},
        "colour": {"enum": ["red", "blue", None]},
        "size": {"type": "integer"},
        "light": {"type": "boolean"},
    },
    "required": ["brand", "colour", "size", "light"],
    "additionalProperties": False,
}


def chat(text: str, schema: Mapping[str, Any] = SHOE, **changes: Any) -> dict[str, Any]:
    """The body of a request."""
    shape = {"type": "json_schema", "json_schema": {"name": "shoe", "schema": schema}}
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "response_format": shape, **changes}


@dataclass(frozen=True)
class Reply:
    """Status, headers in small letters, and the body, as JSON where it is any."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def data(self) -> Any:
        """What was filled in."""
        assert self.status == 200, self.body
        return json.loads(self.body["choices"][0]["message"]["content"])

    @property
    def message(self) -> str:
        """Of an error."""
        message: str = self.body["error"]["message"]
        return message


@dataclass
class Served:
    """A server under `address`, which ends with /v1."""

    address: str
    process: subprocess.Popen[str] | None = None

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self.address.removeprefix("http://").removesuffix("/v1").rsplit(":", 1)
        return host, int(port)

    def ask(self, path: str, body: Mapping[str, Any] | bytes | None = None, **headers: str) -> Reply:
        """One request: POST where there is a body."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        request = urllib.request.Request(
            self.address.removesuffix("/v1") + path, data, {"Content-Type": "application/json", **headers}
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return _read(reply.status, reply.headers, reply.read())
        except urllib.error.HTTPError as error:
            with error:
                return _read(error.code, error.headers, error.read())

    def chat(self, text: str, schema: Mapping[str, Any] = SHOE, **changes: Any) -> Reply:
        """A document filled into a schema."""
        return self.ask("/v1/chat/completions", chat(text, schema, **changes))

    def counted(self, name: str, **labels: str) -> float:
        """A counter's value; 0 where it was never moved."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        lines = self.ask("/metrics").body.splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.split("{")[0].split(" ")[0] == name and all(each in line for each in wanted)
        )

    @contextmanager
    def half_sent(self, body: Mapping[str, Any]) -> Iterator[socket.socket]:
        """A request of whose body the last byte is not sent yet."""
        content = json.dumps(body).encode()
        with self.sent(content[:-1], len(content)) as sock:
            yield sock

    @contextmanager
    def sent(self, content: bytes, length: int | None = None) -> Iterator[socket.socket]:
        """A request whose answer nobody has read yet; the connection is closed in the end."""
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {length or len(content)}\r\n\r\n"
        with socket.create_connection(self.place, timeout=60) as sock:
            sock.sendall(head.encode() + content)
            yield sock


def _read(status: int, headers: Any, content: bytes) -> Reply:
    is_json = headers.get_content_type() == "application/json"
    return Reply(
        status,
        {name.lower(): value for name, value in headers.items()},
        json.loads(content) if is_json else content.decode(),
    )


@contextmanager
def serving_here(
    engine: Engine, limits: ServingLimits | None = None, api_key: str | None = None, name: str = MODEL
) -> Iterator[Served]:
    """A server in a thread of this process, on an engine that goes on afterwards."""
    server: uvicorn.Server = make_server(engine, name, limits or ServingLimits(), api_key)
    with open_socket("127.0.0.1", 0) as sock:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        wait_until(lambda: server.started or not thread.is_alive(), 60)
        yield Served(f"http://127.0.0.1:{sock.getsockname()[1]}/v1")
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the server did not end"


@contextmanager
def serving_apart(model: Path, *arguments: str, **environment: str) -> Iterator[Served]:
    """The real command in a process; it is killed in the end, if it has not ended."""
    command = [sys.executable, "-m", "pipelines.cli", "serve", "--model", str(model), "--name", MODEL, "--port", "0"]
    command += ["--set", "engine.dtype=float32", "--set", "engine.device=cpu", *arguments]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("Serving "):
                break
        assert lines, "it ended without a word"
        assert lines[-1].startswith("Serving "), "".join(lines)
        yield Served(lines[-1].split()[-1], process)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
