"""The HTTP server: its addresses, put together from endpoint.py (requests), gate.py (keys) and chat_reply.py."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI, Request, Response
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from hpd_core import Engine, EngineConfig
from hpd_core.plain_data import Section
from pipelines.console.exit_codes import serve_until_told
from pipelines.serving.answering import ServingDesk
from pipelines.serving.endpoint import ChatEndpoint
from pipelines.serving.gate import RequestGate, ServingLimits, ServingMetrics
from pipelines.serving.reply import ApiError, error_response, json_response

CHAT, MODELS, HEALTH, METRICS = "/v1/chat/completions", "/v1/models", "/health", "/metrics"

_READ = ["GET", "HEAD"]


def build_app(engine: Engine, model: str, limits: ServingLimits, api_key: str | None = None) -> ASGIApp:
    """Build the server's application.

    Args:
        model: name under which clients call the engine's model.
    """
    metrics = ServingMetrics()
    desk = ServingDesk(engine, limits, metrics)
    card = {"id": model, "object": "model", "created": int(time.time()), "owned_by": "hpd"}
    # A redirect would lead to where a client's Host header says.
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.add_exception_handler(HTTPException, _refuse)
    app.add_exception_handler(Exception, _fail)
    app.router.routes.append(Route(CHAT, ChatEndpoint(desk, model), methods=["POST"]))

    @app.api_route(MODELS, methods=_READ)
    async def models() -> Response:
        return json_response({"object": "list", "data": [card]})

    @app.api_route(f"{MODELS}/{{name:path}}", methods=_READ)
    async def one_model(name: str) -> Response:
        if name != model:
            raise HTTPException(404, f"there is no model {name!r} here, only {model!r}")
        return json_response(card)

    @app.api_route(HEALTH, methods=_READ)
    async def health() -> Response:
        return json_response({"status": "ok"})

    @app.api_route(METRICS, methods=_READ)
    async def counters() -> Response:
        return Response(metrics.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return RequestGate(app, api_key, (CHAT, MODELS, HEALTH, METRICS), metrics)


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = str(error.detail)
    if message in ("Not Found", "Method Not Allowed"):
        message = f"{message}: {request.method} {request.url.path}; this server has POST {CHAT}"
    return error_response(ApiError(error.status_code, message, headers=error.headers))


async def _fail(_: Request, error: Exception) -> Response:
    return error_response(ApiError(500, f"the server failed ({type(error).__name__}); its log says more"))


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
