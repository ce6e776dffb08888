"""An address of the HTTP server that answers questions: the body is read and limited, the answer sent."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pipelines.serving.answering import ServingDesk
from pipelines.serving.chat_reply import ChatReply
from pipelines.serving.gate import ServingLimits
from pipelines.serving.question import ServedQuestion, read_chat
from pipelines.serving.reply import ApiError, error_response, json_response, refuse_unread

logger = logging.getLogger(__name__)


class ChatEndpoint:
    """An ASGI application that answers questions. `model`: its name in answers, the only one that requests may name."""

    def __init__(self, desk: ServingDesk, model: str) -> None:
        self._desk, self._model = desk, model

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        is_read = False
        try:
            # A connection that sends nothing takes no place.
            body = await read_body(Request(scope, receive), self._desk.limits)
            is_read = True
            self._check_model(body.get("model"))
            question = read_chat(body)
            with self._desk.place():
                async with self._desk.deadline():
                    response = await unless_gone(self._answer(question), receive)
            await response(scope, receive, send)
        except (ClientGoneError, ClientDisconnect):
            logger.debug("a client went before its answer")
        except (ApiError, asyncio.CancelledError) as caught:
            # Nothing but the server's end cancels a request: it was told to end twice, or has waited for long enough.
            error = caught if isinstance(caught, ApiError) else _ended()
            if is_read:
                await error_response(error)(scope, receive, send)
            else:
                await refuse_unread(error, receive, send)

    async def _answer(self, question: ServedQuestion) -> Response:
        result = await self._desk.answer(question)
        self._desk.metrics.count_answer(result)
        reply = ChatReply(question, self._model, result)
        if not question.stream:
            return json_response(reply.whole())
        events, headers = b"".join(reply.events()), {"cache-control": "no-cache"}
        return Response(events, headers=headers, media_type="text/event-stream")

    def _check_model(self, name: Any) -> None:
        if name is not None and name != self._model:
            raise ApiError(
                404, f"there is no model {name!r} here, only {self._model!r}", param="model", code="model_not_found"
            )


def _ended() -> ApiError:
    return ApiError(503, "the server was ended before this was answered; ask again", code="server_ended")


T = TypeVar("T")


class ClientGoneError(Exception):
    """Raised if the client left before its answer."""


async def unless_gone(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Return the result of `work`; cancel it if the client leaves.

    Args:
        receive: channel of a request whose body was read.

    Raises:
        ClientGoneError: the client left.
    """
    working, leaving = asyncio.create_task(work), asyncio.create_task(_until_gone(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(request: Request, limits: ServingLimits) -> dict[str, Any]:
    """Read the JSON object that a request sends.

    Raises:
        ApiError: 415 if it is said to be something else, 408 if it does not come in time, 413 as soon as it is known to
            be too long, 400 if it is not a JSON object.
    """
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise ApiError(415, f"the body is said to be {kind[:80]!r}: send it with Content-Type: application/json")
    try:
        async with asyncio.timeout(limits.body_seconds):
            return parse_body(await _read_bytes(request, limits.max_body_bytes))
    except TimeoutError as error:
        raise ApiError(408, f"the body did not come within {limits.body_seconds:g} s", code="timeout") from error


async def _read_bytes(request: Request, max_bytes: int) -> bytes:
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > max_bytes:
        raise _too_long(max_bytes)
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > max_bytes:
            raise _too_long(max_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


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
