"""Parser of a chat completion, or of the error that a body with status 200 holds in its place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

_DECLINED = frozenset({"content_filter", "safety", "sensitive", "refusal"})
_FAILED = frozenset({"error", "network_error", "insufficient_system_resource", "abort", "cancelled", "timeout"})
_CUT = frozenset({"length", "max_tokens"})
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_MAX_SHOWN = 300
_MAX_TOKENS = 10**12
_SERVER_ERROR = 502


class BodyError(ValueError):
    """Raised if a body holds no completion. `status`: the HTTP status that its error amounts to."""

    def __init__(self, message: str, status: int = _SERVER_ERROR) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ChatCompletion:
    """Answer of a teacher.

    Attributes:
        text: its answer, including arguments of tool calls.
        declined: the teacher's reason for not answering; empty if it answered.
        reasoning: its reasoning, if that is kept separate.
        tools: names of the tools that it called.
        is_cut: whether the token limit ended it.
        usage: input and output tokens, if known.
    """

    text: str = ""
    declined: str = ""
    reasoning: str = ""
    tools: tuple[str, ...] = ()
    is_cut: bool = False
    usage: tuple[int, int] | None = None


def read_completion(content: bytes) -> ChatCompletion:
    """Read the body of an answer with status 200. Raises `BodyError`, whose message continues "HTTP 200, but"."""
    try:
        body = json.loads(content, strict=False)
    except (ValueError, RecursionError):
        words = " ".join(content[:_MAX_SHOWN].decode(errors="replace").split())
        raise BodyError(f"no completion: {words}" if words else "nothing in it") from None
    body = body if isinstance(body, Mapping) else {}
    choices = body.get("choices")
    choice = next((each for each in choices if isinstance(each, Mapping)), {}) if isinstance(choices, list) else {}
    message, error = choice.get("message"), choice.get("error") or body.get("error")
    finish = str(choice.get("finish_reason") or "").casefold()
    if not isinstance(message, Mapping):
        raise _inside(error or body or "a completion without choices or message")
    completion = _completion(message, finish, _usage(body.get("usage")))
    is_empty = not (completion.text.strip() or completion.declined or completion.reasoning)
    # An error beside a whole answer is a warning.
    if finish in _FAILED or (error and (is_empty or not finish)):
        raise _inside(error or f"finish_reason {finish!r}")
    if is_empty and not finish:
        raise BodyError("an empty message that is not finished")
    return completion


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


def _completion(message: Mapping[str, Any], finish: str, usage: tuple[int, int] | None) -> ChatCompletion:
    texts: dict[str, list[str]] = {"text": [], "thought": [], "refusal": []}
    for kind, text in _parts(message.get("content")):
        texts[kind].append(text)
    texts["thought"] += [text for key in _THOUGHTS for _, text in _parts(message.get(key))]
    if isinstance(refusal := message.get("refusal"), str) and refusal:
        texts["refusal"].append(refusal)
    calls = message.get("tool_calls")
    functions = [each.get("function") for each in calls if isinstance(each, Mapping)] if isinstance(calls, list) else []
    tools = [each for each in functions if isinstance(each, Mapping)]
    arguments = [each["arguments"] for each in tools if isinstance(each.get("arguments"), str)]
    # Parts are cut anywhere, within a word, too.
    text = "\n".join(["".join(texts["text"]), *arguments])
    if finish in _DECLINED and not texts["refusal"]:
        texts["refusal"].append(text or "content filter")
    names = tuple(str(each.get("name", "")) for each in tools)
    declined, reasoning = "\n".join(texts["refusal"]), "\n".join(texts["thought"])
    return ChatCompletion(text, declined, reasoning, names, finish in _CUT, usage)


def _parts(content: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts of a message with their kind: "text", "thought" or "refusal"."""
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            yield "text", part
        elif isinstance(part, Mapping):
            kind = part.get("type")
            if kind == "refusal":
                yield "refusal", str(part.get("refusal"))
            elif isinstance(part.get("text"), str):
                yield ("text" if kind in (None, "text") else "thought"), part["text"]


def _usage(usage: Any) -> tuple[int, int] | None:
    counts = [usage.get(key) for key in ("prompt_tokens", "completion_tokens")] if isinstance(usage, Mapping) else []
    known = [count for count in counts if type(count) is int and 0 <= count < _MAX_TOKENS]
    return (known[0], known[1]) if len(known) == 2 else None


def _inside(error: Any) -> BodyError:
    code = error.get("code") if isinstance(error, Mapping) else None
    digits = str(code) if str(code).isdecimal() and len(str(code)) == 3 else ""
    told = f"{code} " if isinstance(code, str) and not digits else ""
    return BodyError(f"an error inside: {told}{error_words(error)}", int(digits or _SERVER_ERROR))


class BudgetReached(Exception):  # noqa: N818 - it is an end, not an error
    """Raised if the next request might cost more than is left."""


class Pace:
    """Rate limiter: at most `per_minute` requests, evenly spaced."""

    def __init__(self, per_minute: float | None) -> None:
        self._interval = 60 / per_minute if per_minute else 0.0
        self._next = 0.0
        self._end = asyncio.Event()

    async def wait(self) -> bool:
        """Wait until the next request may start. Returns True, or False once no request may start any more."""
        now = asyncio.get_running_loop().time()
        start = max(now, self._next)
        self._next = start + self._interval
        if start > now:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._end.wait(), start - now)
        return not self._end.is_set()

    def end(self) -> None:
        """Allow no request to start from now on."""
        self._end.set()


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
        if self._limit is None:
            yield
            return
        async with self._changed:
            while self._spent + sum(self._reserved) + most > self._limit:
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
