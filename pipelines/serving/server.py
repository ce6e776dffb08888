"""Serves until it is told to end, and then answers what it has taken."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from hpd_core import Engine
from pipelines.console.web_server import serve_until_told
from pipelines.serving.app import build_app
from pipelines.serving.limits import ServingLimits

_MARGIN_SECONDS = 5  # of a drain, beyond the longest that a request may take
_BACKLOG = 2048  # connections that may wait to be taken
_KEEP_ALIVE_SECONDS = 75
"""Clients use a connection again. One that is closed just then fails a request that nobody sends anew: so an idle one
is kept for longer than load balancers (60 s) and clients keep theirs. uvicorn's own 5 s are as long as httpx's."""


def make_server(engine: Engine, model: str, limits: ServingLimits, api_key: str | None) -> uvicorn.Server:
    """What answers requests. Told to exit, it takes nothing new, and ends when all it has taken is answered.

    Args:
        model: the name that clients call the engine's model by.
    """
    config = uvicorn.Config(
        build_app(engine, model, limits, api_key),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(limits.timeout_seconds + _MARGIN_SECONDS),
    )
    return uvicorn.Server(config)


def serve(server: uvicorn.Server, sock: socket.socket, announce: Callable[[str], None]) -> None:
    """Serves until SIGTERM or Ctrl-C, and drains.

    Args:
        announce: is told the address up to /v1, when requests are taken.
    """
    sock.listen(_BACKLOG)
    serve_until_told(server, sock, "/v1", announce)
