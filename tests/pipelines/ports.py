"""Ports for the servers that tests start."""

from __future__ import annotations

import random
import socket

_BELOW = 32_768
"""From here on (on Linux) the system gives ports to whoever asks for any, and every Ray asks for dozens. Between the
choice of a port here and the moment when a server listens there are seconds, and other tests run meanwhile."""
_FROM = 20_000
"""Up to here Ray takes ports for its workers."""

_drawn = random.SystemRandom()  # processes that test beside each other must not draw the same


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, and hardly anybody will soon."""
    found: list[int] = []
    while len(found) < count:
        port = _drawn.randrange(_FROM, _BELOW)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found
