"""A refusal, also to a client that has not yet sent all of its request."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Send

from pipelines.serving.api_errors import ApiError
from pipelines.serving.reply import json_bytes

_MOST_BYTES, _MOST_SECONDS = 100_000_000, 5.0  # of what is read and thrown away


def json_response(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A body of JSON."""
    return Response(json_bytes(body), status, headers, media_type="application/json")


def error_response(error: ApiError) -> Response:
    """A refusal of a request that was read."""
    return json_response(error.body(), error.status, error.headers)


async def refuse_unread(error: ApiError, receive: Receive, send: Send) -> None:
    """Refuses a request of whose body not all was read.

    The client is told at once, but the connection ends behind what it is still sending: many read no answer while they
    send, and a connection that is closed on them has none for them any more.
    """
    response = error_response(error)
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(_MOST_SECONDS):
            await _throw_away(receive)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _throw_away(receive: Receive) -> None:
    size = 0
    while size < _MOST_BYTES:
        message = await receive()
        size += len(message.get("body", b""))
        if not message.get("more_body", False):
            return
