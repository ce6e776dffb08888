"""Common steps of commands that serve: open a port, announce the address, and end on a signal."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from pipelines.errors import UsageError

if TYPE_CHECKING:
    import uvicorn


def open_socket(host: str, port: int, listens: bool = False) -> socket.socket:
    """Open a socket to serve at. Raise `UsageError` if the port is taken or the host is not this machine's.

    Args:
        listens: whether to listen at once, so that early requests wait instead of failing.
    """
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        if listens:
            found.listen()
    except OSError as error:
        found.close()
        raise UsageError(f"cannot serve at {host}, port {port}: {error.strerror}; --port 0 takes a free one") from error
    return found


def serve_until_told(server: uvicorn.Server, sock: socket.socket, path: str, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C, and end as the server does.

    Args:
        path: path of the address, from its first slash on.
        announce: called with the address.
    """
    # Before anybody knows the address: an interrupt while the server starts may be raised where nobody hears of it. And
    # uvicorn repeats the signal that ended it to whoever handled it before: one that was told to end has ended well.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, server.handle_exit)
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    announce(f"http://{shown}:{port}{path}")
    server.run(sockets=[sock])
