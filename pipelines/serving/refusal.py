"""Refusals, also to a client that has not yet sent its whole request."""

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
    """Return a response with a JSON body."""
    return Response(json_bytes(body), status, headers, media_type="application/json")


def error_response(error: ApiError) -> Response:
    """Return the refusal of a request that was read."""
    return json_response(error.body(), error.status, error.headers)


async def refuse_unread(error: ApiError, receive: Receive, send: Send) -> None:
    """Refuse a request whose body was not read to the end.

    The client gets the answer at once, but the connection closes only after its remaining body. Many clients read no
    answer while they send, and lose it if the connection closes.
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
