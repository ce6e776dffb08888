"""HTTP server that runs until it is told to exit, and then drains."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn
from pydantic import Field

from hpd_core import Engine, EngineConfig
from hpd_core.data.section import Section
from pipelines.console.web_server import serve_until_told
from pipelines.serving.app import build_app
from pipelines.serving.gate import ServingLimits

_MARGIN_SECONDS = 5  # of a drain, beyond the longest that a request may take
_BACKLOG = 2048  # connections that may wait to be taken
_KEEP_ALIVE_SECONDS = 75
"""Idle seconds until a kept-alive connection is closed.

A reused connection that is closed at that moment fails a request without a retry. So this exceeds the timeouts of load
balancers (60 s) and clients. uvicorn's own 5 s equal httpx's.
"""


def make_server(engine: Engine, model: str, limits: ServingLimits, api_key: str | None) -> uvicorn.Server:
    """Build the server. Told to exit, it accepts nothing new and ends once all accepted requests are answered.

    Args:
        model: name under which clients call the engine's model.
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
    """Serve until SIGTERM or Ctrl-C, then drain.

    Args:
        announce: called with the address up to /v1, once requests are accepted.
    """
    sock.listen(_BACKLOG)
    serve_until_told(server, sock, "/v1", announce)


class ServeConfig(Section):
    """Engine of a server, with the keys of a job."""

    model: str = Field(
        min_length=1, description="hub id, folder (local or any fsspec URI), or an embedded model's name"
    )
    adapter: str | None = Field(None, description="LoRA adapter in peft's format: local folder, fsspec URI or hub id")
    engine: EngineConfig = Field(default_factory=EngineConfig, description="how the engine decodes")
