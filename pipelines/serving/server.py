"""Serves until it is told to end, and then answers what it has taken."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable

import uvicorn

from hpd_core import Engine
from pipelines.errors import UsageError
from pipelines.serving.app import build_app
from pipelines.serving.limits import ServingLimits

_MARGIN_SECONDS = 5  # of a drain, beyond the longest that a request may take
_BACKLOG = 2048  # connections that may wait to be taken
_KEEP_ALIVE_SECONDS = 75
"""Clients use a connection again. One that is closed just then fails a request that nobody sends anew: so an idle one
is kept for longer than load balancers (60 s) and clients keep theirs. uvicorn's own 5 s are as long as httpx's."""


def open_socket(host: str, port: int) -> socket.socket:
    """A socket to serve at. Raises `UsageError` if the port is taken or the host is none of this machine's."""
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise UsageError(f"cannot serve at {host}, port {port}: {error.strerror}; --port 0 takes a free one") from error
    return found


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
    # uvicorn repeats the signal that ended it to whoever handled it before: a drained server has ended well.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, server.handle_exit)
    sock.listen(_BACKLOG)
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    announce(f"http://{shown}:{port}/v1")
    server.run(sockets=[sock])
