"""The review page's server: one page and a few endpoints, open to everyone who has the address.

The address holds a secret that is drawn at each start and that every request needs. So no other site can read anything
or act in a reviewer's name, with or without cookies. A request that states its origin must come from this server's own
page. The page's policy allows only its own script and style to run or load.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from importlib import resources
from typing import Annotated, Any

import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from pipelines.console.exit_codes import serve_until_told
from pipelines.errors import RunError, UsageError
from pipelines.reviewing.candidates import Wish
from pipelines.reviewing.desk import OtherTextError, ReviewDesk, UnknownAnswerError
from pipelines.store.verdicts import MAX_ITEM_CHARACTERS, MAX_ITEMS, AnswerKey, ItemError, ReviewerName, VerdictName

_MAX_BODY = 1_000_000  # bytes of a request; the longest answer is shorter
_MAX_UNREAD = 20 * _MAX_BODY  # of a refused one, read and thrown away
_FILES = {
    "": ("review.html", "text/html"),
    "review.css": ("review.css", "text/css"),
    **{name: (name, "text/javascript") for name in ("review.js", "shown.js", "editor.js", "refused.js", "server.js")},
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

ItemInput = Annotated[str, Field(max_length=MAX_ITEM_CHARACTERS)]
Id = Annotated[str, Field(pattern=r"^[0-9A-Za-z-]{8,64}$")]


class _Question(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Asking(_Question):
    """Body of a request by a reviewer."""

    reviewer: ReviewerName


class AskingNext(Asking):
    """Request for the next answer, with its filter."""

    category: str | None = None
    attribute: str | None = None


class AskingAnswer(Asking):
    """Request to show an answer again."""

    key: AnswerKey


class Saying(AskingAnswer):
    """A reviewer's verdict on the text shown.

    The page draws `id`, so that a verdict that is sent twice is recorded once.
    """

    id: Id
    input_hash: str
    verdict: VerdictName
    items: list[ItemInput] = Field(default=[], max_length=MAX_ITEMS)


class TakingBack(Asking):
    """Request to undo the reviewer's last verdict."""

    id: Id


class AskingVocabulary(_Question):
    """Request for the members of an attribute."""

    category: str
    attribute: str


def build_app(desk: ReviewDesk, token: str) -> FastAPI:
    """Build the server's application; everything is below `/<token>/`."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.middleware("http")(_guard)
    app.add_exception_handler(RequestValidationError, _refuse_question)
    app.add_exception_handler(HTTPException, _refuse_request)
    app.add_exception_handler(UnknownAnswerError, lambda *_: _json({"problem": "the run has no such answer"}, 404))
    for kind, status in {ItemError: 422, OtherTextError: 422, RunError: 503, UsageError: 503, OSError: 503}.items():
        app.add_exception_handler(kind, partial(_refuse, status))
    app.include_router(_routes(desk), prefix=f"/{token}")
    return app


def _routes(desk: ReviewDesk) -> APIRouter:
    router = APIRouter()
    for path, (name, kind) in _FILES.items():
        router.get(f"/{path}")(_file(name, kind))

    @router.post("/state")
    def state(asked: Asking) -> Response:
        return _json(desk.state(asked.reviewer))

    @router.post("/next")
    def next_answer(asked: AskingNext) -> Response:
        return _json({"answer": desk.next(asked.reviewer, Wish(asked.category, asked.attribute))})

    @router.post("/answer")
    def answer(asked: AskingAnswer) -> Response:
        return _json({"answer": desk.answer(asked.key, asked.reviewer)})

    @router.post("/vocabulary")
    def vocabulary(asked: AskingVocabulary) -> Response:
        return _json({"members": desk.vocabulary(asked.category, asked.attribute)})

    @router.post("/say")
    def say(said: Saying) -> Response:
        if said.verdict == "undo":
            raise ItemError("what is to be taken back is not said again")
        items = desk.judge(said.id, said.reviewer, said.key, said.input_hash, said.verdict, said.items)
        return _json({"items": list(items)})

    @router.post("/undo")
    def undo(asked: TakingBack) -> Response:
        key = desk.undo(asked.id, asked.reviewer)
        return _json({"key": None if key is None else key._asdict()})

    return router


def _file(name: str, kind: str) -> Callable[[], Response]:
    content = resources.files("pipelines.reviewing").joinpath("page", name).read_bytes()

    def answer() -> Response:
        return Response(content, media_type=f"{kind}; charset=utf-8")

    return answer


async def _guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Refuse requests from another site's page, and bodies that our own page never sends."""
    refusal = next(_refusals(request), None)
    if refusal is None:
        response = await call_next(request)
    else:
        await _throw_away_body(request)
        response = _json({"problem": refusal}, 403)
    for name, value in _HEADERS.items():
        response.headers[name] = value
    return response


async def _throw_away_body(request: Request) -> None:
    """Read the rest of the body, because a client that is still sending never reads the refusal."""
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > _MAX_UNREAD:
            return


def _refusals(request: Request) -> Iterator[str]:
    headers = request.headers
    origin = headers.get("origin")
    if origin is not None and origin != f"{request.url.scheme}://{headers.get('host')}":
        yield "the request comes from another site"
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and request.method != "GET":
        yield "the request comes from another site"
    if request.method == "POST":
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            yield "JSON is needed"
        length = headers.get("content-length", "")
        if not length.isdecimal() or int(length) > _MAX_BODY:
            yield "the request is too long, or does not say how long it is"


def _json(data: Any, status: int = 200) -> Response:
    # In ASCII: half a surrogate pair, which no UTF-8 can hold, may stand in a catalog's text.
    return Response(json.dumps(data, ensure_ascii=True), status, media_type="application/json")


async def _refuse_question(_: Request, error: Exception) -> Response:
    first = error.errors()[0] if isinstance(error, RequestValidationError) else {"loc": (), "msg": "not understood"}
    where = ".".join(str(part) for part in first["loc"][1:])
    return _json({"problem": f"{where}: {first['msg']}" if where else str(first["msg"])}, 422)


async def _refuse_request(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 400
    # The page tells by it whether this is the server that it was loaded from.
    return _json({} if status == 404 else {"problem": "not understood"}, status)


async def _refuse(status: int, _: Request, error: Exception) -> Response:
    return _json({"problem": str(error)}, status)


def serve(desk: ReviewDesk, sock: socket.socket, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        announce: called with the page's address.
    """
    token = secrets.token_urlsafe(24)
    # A request under way has a second to end; what it said is in the log or not acknowledged.
    config = uvicorn.Config(
        build_app(desk, token), log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=1
    )
    serve_until_told(uvicorn.Server(config), sock, f"/{token}/", announce)
