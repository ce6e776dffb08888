"""The server's addresses."""

from __future__ import annotations

import time

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from hpd_core import Engine
from pipelines.serving.api_errors import ApiError
from pipelines.serving.chat_reply import ChatReply
from pipelines.serving.chat_request import read_chat
from pipelines.serving.desk import ServingDesk
from pipelines.serving.endpoint import Endpoint
from pipelines.serving.gate import RequestGate, ServingLimits
from pipelines.serving.metrics import ServingMetrics
from pipelines.serving.refusal import error_response, json_response
from pipelines.serving.responses_reply import ResponsesReply
from pipelines.serving.responses_request import read_response

CHAT, RESPONSES, MODELS, HEALTH, METRICS = (
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/models",
    "/health",
    "/metrics",
)

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
    for path, read, reply in ((CHAT, read_chat, ChatReply), (RESPONSES, read_response, ResponsesReply)):
        app.router.routes.append(Route(path, Endpoint(desk, read, reply, model), methods=["POST"]))

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

    return RequestGate(app, api_key, (CHAT, RESPONSES, MODELS, HEALTH, METRICS), metrics)


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = str(error.detail)
    if message in ("Not Found", "Method Not Allowed"):
        message = f"{message}: {request.method} {request.url.path}; this server has POST {CHAT} and POST {RESPONSES}"
    return error_response(ApiError(error.status_code, message, headers=error.headers))


async def _fail(_: Request, error: Exception) -> Response:
    return error_response(ApiError(500, f"the server failed ({type(error).__name__}); its log says more"))
