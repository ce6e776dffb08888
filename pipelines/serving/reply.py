"""Parts of replies, and errors in OpenAI's form."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Send

from hpd_core import JsonResult


def new_id(prefix: str) -> str:
    """Return a unique id with this prefix."""
    return f"{prefix}{uuid.uuid4().hex}"


def json_bytes(data: Any) -> bytes:
    """Encode as ASCII JSON, because a value may hold half a surrogate pair, which UTF-8 cannot encode."""
    return json.dumps(data, ensure_ascii=True).encode()


def event(data: Any) -> bytes:
    """Encode one server-sent event."""
    return b"data: " + json_bytes(data) + b"\n\n"


def answer_facts(result: JsonResult, notes: Sequence[str]) -> dict[str, Any]:
    """Return the extension of a whole answer: its fields, its deviations from the schema, and `notes` to the client.

    Its probabilities are the model's own: no calibration says how often such an answer is right ("trust": "none").
    """
    fields, problems = map(asdict, result.fields.values()), map(asdict, result.problems)
    return {"fields": [*fields], "problems": [*problems], "trust": "none", "notes": [*notes]}


def is_cut(result: JsonResult) -> bool:
    """Return whether a value was truncated."""
    return any(field.status == "truncated" for field in result.fields.values())


_LONGEST = 2000  # characters of a message; what a client sent may stand in it
_KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 504: "timeout_error"}


class ApiError(Exception):
    """Refusal of a request; the message gives the reason and the remedy.

    Attributes:
        status: HTTP status.
        param: the offending key of the request, such as "messages[0].content".
        code: short machine-readable name.
        headers: HTTP headers of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """Return the whole JSON body."""
        kind = _KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": str(self)[:_LONGEST], "type": kind, "param": self.param, "code": self.code}}


def refused(param: str, message: str) -> ApiError:
    """Return the refusal of a request that is wrong at `param`, so that a retry would not help."""
    return ApiError(400, f"{param}: {message}", param=param)


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
