"""One request to an OpenAI-compatible endpoint: its answer read, its cost held to a budget, its tries to a pace."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx2
from openai import DefaultAsyncHttpxClient

DECLINED = re.compile(r"content[_ ]?(?:filter|policy)|moderat|flagged|filtered", re.IGNORECASE)
_NO_QUOTA = re.compile("insufficient_quota")
_DECLINED = frozenset({"content_filter", "safety", "sensitive", "refusal"})
_FAILED = frozenset({"error", "network_error", "insufficient_system_resource", "abort", "cancelled", "timeout"})
_CUT = frozenset({"length", "max_tokens"})
_TEXT = (None, "text")
_MAX_SHOWN = 300
INSIDE = "inside of a 200"


@dataclass(frozen=True, slots=True)
class ChatCompletion:
    """Answer of a teacher.

    Attributes:
        text: its answer, including arguments of tool calls.
        declined: the teacher's reason for not answering; empty if it answered.
        is_cut: whether the token limit ended it.
        usage: input and output tokens, if known.
    """

    text: str = ""
    declined: str = ""
    is_cut: bool = False
    usage: tuple[int, int] | None = None


def read_completion(content: bytes) -> ChatCompletion | Mapping[str, Any]:
    """Read the body of a successful answer. Returns the error that it holds, if it holds no completion."""
    try:
        body = json.loads(content, strict=False)
        choice = body["choices"][0]
        message, finish = choice["message"], str(choice.get("finish_reason") or "").casefold()
        parts = message.get("content") or ""
        parts = parts if isinstance(parts, list) else [_words(parts)]
        texts = [_words(each if isinstance(each, str) else each.get("text") or "") for each in parts if _is_text(each)]
        calls = [_words(each["function"]["arguments"]) for each in message.get("tool_calls") or ()]
        text, refusal = "\n".join(["".join(texts), *calls]), str(message.get("refusal") or "")
    except (ValueError, RecursionError):
        return {"message": " ".join(content[:_MAX_SHOWN].decode(errors="replace").split()) or "nothing in it"}
    except (LookupError, TypeError, AttributeError):
        return _error(body)
    error, is_empty = choice.get("error") or body.get("error"), not (text.strip() or refusal)
    # An error beside a whole answer is a warning.
    if finish in _FAILED or (error and is_empty) or (not finish and (error or is_empty)):
        return _error(choice if choice.get("error") else body) | {"finish_reason": finish}
    declined = refusal or (text.strip() or "content filter" if finish in _DECLINED else "")
    return ChatCompletion(text, declined, finish in _CUT, _usage(body.get("usage")))


def _is_text(part: Any) -> bool:
    return isinstance(part, str) or part.get("type") in _TEXT


def _words(answer: Any) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer)


def error_words(error: Any) -> str:
    """Return the message in the body of an error, or the body itself."""
    while isinstance(error, Mapping):
        inner = next((error[key] for key in ("error", "message", "detail") if error.get(key)), None)
        if inner is None:
            return json.dumps(error, ensure_ascii=False, default=str)[:_MAX_SHOWN]
        error = inner
    return str(error)[:_MAX_SHOWN]


def well_formed(text: str) -> str:
    """Replace lone surrogates in `text`, which no file or request can hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _error(body: Any) -> dict[str, Any]:
    error = body.get("error") or body if isinstance(body, dict) else body
    return error if isinstance(error, dict) else {"message": str(error)}


def _usage(usage: Any) -> tuple[int, int] | None:
    counts = [usage.get(key) for key in ("prompt_tokens", "completion_tokens")] if isinstance(usage, Mapping) else []
    known = [count for count in counts if type(count) is int and 0 <= count < 10**12]
    return (known[0], known[1]) if len(known) == 2 else None


class PacedClient(DefaultAsyncHttpxClient):
    """HTTP client in which every try waits for its turn, has one deadline for the whole answer, and is counted.

    The `openai` package retries through it: a body with status 200 that holds an error is passed on as that error,
    with `INSIDE` among its extensions.
    """

    def __init__(self, seconds: float, per_minute: float | None, faults: Counter[str]) -> None:
        super().__init__(follow_redirects=False)  # a redirect would lose the question: it leads to a page to sign in
        self.ended: Exception | None = None
        self._seconds, self._interval, self._faults = seconds, 60 / per_minute if per_minute else 0.0, faults
        self._next, self._turn, self._end = 0.0, asyncio.Lock(), asyncio.Event()

    def end(self, reason: Exception) -> Exception:
        """Let no request start from now on, for the first reason that is given; return it."""
        self.ended = self.ended or reason
        self._end.set()
        return self.ended

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request. Raises the reason why no request may start any more, once there is one."""
        if request.method == "POST":
            async with self._turn:
                start = max(asyncio.get_running_loop().time(), self._next)
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(start):
                        await self._end.wait()
                self._next = start + self._interval
            if self.ended is not None:
                raise self.ended
        try:
            async with asyncio.timeout(self._seconds):
                response = await super().send(request, **options)
        except TimeoutError as error:
            raise httpx2.ReadTimeout(str(error), request=request) from error
        if request.method == "POST":
            response = self._checked(response)
        return response

    def _checked(self, response: httpx2.Response) -> httpx2.Response:
        found = read_completion(response.content) if response.is_success else None
        if isinstance(found, ChatCompletion):
            response.extensions["completion"] = found
            return response
        if found is not None:
            code = well_formed(str(found.get("code") or ""))
            told = {"message": well_formed(error_words(found)), "code": code}
            # Of a model behind the endpoint; 401 or 404 would end the run.
            status = int(code) if re.fullmatch(r"402|408|429|5\d\d", code) else 502
            response = httpx2.Response(status, json={"error": told}, request=response.request)
            response.extensions[INSIDE] = True
        self._faults[f"{response.status_code}{f' {INSIDE}' if found is not None else ''}"] += 1
        if (DECLINED if found is not None else _NO_QUOTA).search(response.text):
            response.headers["x-should-retry"] = "false"  # as the package obeys it
        return response


class BudgetReached(Exception):  # noqa: N818 - it is an end, not an error
    """Raised if the next request might cost more than is left."""


class Budget:
    """Budget in dollars. A request reserves its maximum cost before it is sent."""

    def __init__(self, limit: float | None, spent: float) -> None:
        self._limit = limit
        self._spent = spent
        self._reserved: list[float] = []  # one for each request under way; a running sum would keep rounding errors
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def reserve(self, most: float) -> AsyncIterator[None]:
        """Reserve `most` for the time of a request; waits for requests in progress if they may leave enough.

        Raises `BudgetReached` if none in progress could.
        """
        async with self._changed:
            while self._limit is not None and self._spent + sum(self._reserved) + most > self._limit:
                if not self._reserved:
                    raise BudgetReached(f"${self._spent:.4f} are spent and the next request may cost up to ${most:.4f}")
                await self._changed.wait()
            self._reserved.append(most)
        try:
            yield
        finally:
            self._reserved.remove(most)
            async with self._changed:
                self._changed.notify_all()

    def spend(self, cost: float) -> None:
        """Add the actual cost of a request."""
        self._spent += cost
