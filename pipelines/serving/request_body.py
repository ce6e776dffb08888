"""Reader of a request's body: read up to the size limit, accepted only if it is valid JSON."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from starlette.requests import Request

from pipelines.serving.api_errors import ApiError


async def read_body(request: Request, max_bytes: int) -> dict[str, Any]:
    """Read the JSON object that a request sends.

    Raises:
        ApiError: 413 as soon as the body is known to exceed `max_bytes`, 400 if it is not a JSON object.
    """
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > max_bytes:
        raise _too_long(max_bytes)
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > max_bytes:
            raise _too_long(max_bytes)
        chunks.append(chunk)
    return parse_body(b"".join(chunks))


def parse_body(content: bytes) -> dict[str, Any]:
    """Parse a body that was read. Raises `ApiError` (400) as `read_body`."""
    try:
        body = json.loads(content, parse_constant=_no_json)
    except RecursionError as error:
        raise ApiError(400, "the body is nested too deeply") from error
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise ApiError(400, f"the body has to be a JSON object, it is a {type(body).__name__}")
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise ApiError(400, f"the body holds half a surrogate pair ({half!r}), which is no character") from error
    return body


def _too_long(max_bytes: int) -> ApiError:
    return ApiError(413, f"the body is longer than {max_bytes:,} bytes, the most that this server takes at once")


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
