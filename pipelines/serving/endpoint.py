"""An address that answers questions, from the request's first byte to the answer's last."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pipelines.serving.api_errors import ApiError
from pipelines.serving.desk import ServingDesk
from pipelines.serving.question import ServedQuestion
from pipelines.serving.refusal import error_response, json_response, refuse_unread
from pipelines.serving.reply import Reply
from pipelines.serving.request_body import read_body
from pipelines.serving.waiting import ClientGoneError, unless_gone

logger = logging.getLogger(__name__)

_STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class Endpoint:
    """An ASGI application for one address.

    Args:
        read: parses the question from a request's body; raises `ApiError`.
        reply: makes the reply to a question, under the model's name.
        model: model name in answers, and the only one accepted in requests.
    """

    def __init__(
        self,
        desk: ServingDesk,
        read: Callable[[Mapping[str, Any]], ServedQuestion],
        reply: Callable[[ServedQuestion, str], Reply],
        model: str,
    ) -> None:
        self._desk, self._read, self._reply, self._model = desk, read, reply, model

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        stream, is_read = _Stream(send), False
        try:
            with self._desk.place():
                async with self._desk.deadline():
                    body = await read_body(Request(scope, receive), self._desk.limits.max_body_bytes)
                    is_read = True
                    self._check_model(body.get("model"))
                    question = self._read(body)
                    reply = self._reply(question, self._model)
                    work = self._streamed(question, reply, stream) if question.stream else self._whole(question, reply)
                    response = await unless_gone(work, receive)
            if response is not None:
                await response(scope, receive, send)
        except (ClientGoneError, ClientDisconnect):
            logger.debug("a client went before its answer")
        except (ApiError, asyncio.CancelledError) as caught:
            # Nothing but the server's end cancels a request: it was told to end twice, or has waited for long enough.
            error = caught if isinstance(caught, ApiError) else _ended()
            if stream.reply is not None:
                await stream.close(stream.reply.fail(error))
            elif is_read:
                await error_response(error)(scope, receive, send)
            else:
                await refuse_unread(error, receive, send)

    async def _whole(self, question: ServedQuestion, reply: Reply) -> Response:
        async with self._desk.asked(question, by_field=False) as answering:
            result = await answering.result()
        self._desk.count(result)
        return json_response(reply.whole(result))

    async def _streamed(self, question: ServedQuestion, reply: Reply, stream: _Stream) -> None:
        async with self._desk.asked(question, by_field=True) as answering:
            waiting = ""  # the text of constants, before any field has ended
            async for text, fields in answering.pieces():
                waiting += text
                # Without any field there may be none at all: what is refused then is refused with its status.
                if fields:
                    await stream.write(reply, reply.go_on(waiting, fields))
                    waiting = ""
            result = await answering.result()
            assert answering.text is not None
            rest = waiting + answering.text.rest(result)
        self._desk.count(result)
        await stream.write(reply, reply.go_on(rest, []))
        await stream.close(reply.end(result))

    def _check_model(self, name: Any) -> None:
        if name is not None and name != self._model:
            raise ApiError(
                404, f"there is no model {name!r} here, only {self._model!r}", param="model", code="model_not_found"
            )


def _ended() -> ApiError:
    return ApiError(503, "the server was ended before this was answered; ask again", code="server_ended")


class _Stream:
    """Server-sent events that are being sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.reply: Reply | None = None  # once it has begun

    async def write(self, reply: Reply, events: Iterable[bytes]) -> None:
        """Start the stream, if it has not started, and send the events."""
        if self.reply is None:
            self.reply = reply
            await self._send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
            events = (*reply.begin(), *events)
        await self._send_events(events, more=True)

    async def close(self, events: Iterable[bytes]) -> None:
        await self._send_events(events, more=False)

    async def _send_events(self, events: Iterable[bytes], *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": b"".join(events), "more_body": more})
