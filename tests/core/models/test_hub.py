"""A hub that cannot be asked is told in words, whatever it is that stands in its place."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from huggingface_hub import constants

from hpd_core.errors import ModelError
from hpd_core.models.hub import require_hub
from tests.tables import table


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """The address of a server that says this to everybody."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)
            self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def ask(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    require_hub("someone/a-model-in-no-cache")


@table(
    ("answer", "reason"),
    [
        (b"garbage\r\n\r\n", "garbage"),
        (b"", "closed connection"),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "503"),
        (b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", "407"),
    ],
)
def test_who_answers_as_no_hub_does(answer: bytes, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        answering(answer) as endpoint,
        pytest.raises(ModelError, match=f"cannot be reached: .*{reason}.*set HF_ENDPOINT .* or name a folder"),
    ):
        ask(monkeypatch, endpoint)


@table("endpoint", ["hub.example.com", "http://127.0.0.1:port", "http://"])
def test_what_is_no_address(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match=r"cannot be reached: .*set HF_ENDPOINT"):
        ask(monkeypatch, endpoint)


@table("status", ["200 OK", "401 Unauthorized", "404 Not Found"])
def test_a_hub_that_answers_is_there(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode()) as endpoint:
        ask(monkeypatch, endpoint)
