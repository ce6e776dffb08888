"""Ending of a resumable command: one line for the user, and an exit code."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import typer

from pipelines.errors import BudgetError, RunError, UsageError

if TYPE_CHECKING:
    import uvicorn

EXIT_CLEAN = 0
EXIT_STOPPED = 1
EXIT_USAGE = 2
EXIT_INCOMPLETE = 3
EXIT_BUDGET = 4
EXIT_INTERRUPTED = 130
WAITING_THREADS = "hpd-shard"
"""Name prefix of threads that wait for an engine."""


def run_command(work: Callable[[], int]) -> NoReturn:
    """Do the work and exit with the code that it returns, or with the code of its error."""
    heed_termination()
    try:
        code = work()
    except UsageError as error:
        code = complain(EXIT_USAGE, f"Error: {error}")
    except BudgetError as error:
        code = complain(EXIT_BUDGET, f"Stopped: {error}\nThe same command with a larger budget continues.")
    except (RunError, OSError) as error:  # a full disk, no network, rights that were taken away
        code = complain(EXIT_STOPPED, stopped(error))
    except KeyboardInterrupt:
        code = complain(EXIT_INTERRUPTED, "Interrupted. Run the same command again to continue.")
        if any(thread.name.startswith(WAITING_THREADS) for thread in threading.enumerate()):
            os._exit(code)  # they wait for an engine that hangs (job/local_executor.py), and Python would wait for them
    raise typer.Exit(code)


def heed_termination() -> None:
    """Make SIGTERM (from `ray job stop`, Kubernetes, a service manager) end the command as Ctrl-C does: free its
    lease, and stop its own Ray. Ray replaces this handler by its own when it starts."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)


_SAME_SIGTERM = 10.0
"""Seconds within which a second SIGTERM counts as the first."""
_terminated_at = -_SAME_SIGTERM


def _interrupt(number: int, frame: object) -> None:
    # It may come twice, as of `ray job stop` and of a `timeout` around the command: what that interrupts, such as the
    # giving back of a lease, is to come to its end. A later one is meant.
    global _terminated_at
    now = time.monotonic()
    if now - _terminated_at >= _SAME_SIGTERM:
        _terminated_at = now
        raise KeyboardInterrupt


def stopped(reason: object) -> str:
    """Return the message of a command that stopped before its end."""
    return f"Stopped: {reason}\nRun the same command again to continue."


def complain(code: int, message: str) -> int:
    """Print a message for the user, and return the code."""
    # Imported here: a command that is only asked for help does without.
    from pipelines.console.terminal import printable

    print(printable(message), file=sys.stderr)
    return code


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
    drain = server.handle_exit

    def told(sig: int, frame: FrameType | None) -> None:
        server.force_exit = server.should_exit  # told twice: what is open is ended, too
        drain(sig, frame)

    server.handle_exit = told  # type: ignore[method-assign]
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, told)
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    announce(f"http://{shown}:{port}{path}")
    server.run(sockets=[sock])
