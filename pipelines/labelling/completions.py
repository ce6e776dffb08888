"""Parser of an OpenAI-compatible endpoint's responses: a chat completion, or an error, whatever the status says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.labelling.endpoint_errors import ENDING, SERVER_ERROR, EndpointError, error_of

_DECLINED = frozenset({"content_filter", "safety", "sensitive", "refusal"})
_FAILED = frozenset({"error", "network_error", "insufficient_system_resource", "abort", "cancelled", "timeout"})
_CUT = frozenset({"length", "max_tokens"})
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_MAX_DIGITS = 15  # of a whole number that counts something
_MAX_SHOWN = 120


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


def read_completion(content: bytes, charset: str | None = None) -> ChatCompletion | EndpointError:
    """Read the body of an answer with status 200. An error's message continues "HTTP 200, but".

    `charset` is the header's; UTF-8 is tried first, because JSON must use it.
    """
    text = _decoded(content, charset)
    body = _read_json(text)
    if not isinstance(body, Mapping):
        return EndpointError(SERVER_ERROR, _no_completion(text))
    choices = body.get("choices")
    choice = next((each for each in choices if isinstance(each, Mapping)), {}) if isinstance(choices, list) else {}
    message, error = choice.get("message"), choice.get("error") or body.get("error")
    if not isinstance(message, Mapping):
        if error or set(body) & {"message", "detail", "code", "errors"}:
            return _inside(error or body)
        return EndpointError(
            SERVER_ERROR, "a completion without choices or message" if "choices" in body else _no_completion(text)
        )
    finish = choice.get("finish_reason")
    finish = finish.casefold() if isinstance(finish, str) else ""
    completion = _completion(message, finish, _usage(body.get("usage")))
    is_empty = not (completion.text.strip() or completion.declined or completion.reasoning)
    # An error beside a whole answer is a warning.
    if finish in _FAILED or (error and (is_empty or not finish)):
        return _inside(error or f"finish_reason {finish!r}")
    has_begun = completion.usage is None or completion.usage[1] > 0 or completion.is_cut
    if is_empty and not (finish and has_begun):
        return EndpointError(SERVER_ERROR, "an empty message that is not finished, or of no token")
    return _error_as_content(completion.text) or completion


def read_error(content: bytes, charset: str | None = None) -> EndpointError | None:
    """Return the error in any other body, of whatever status; None if it holds none."""
    text = _decoded(content, charset)
    body = _read_json(text)
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, Mapping):
        return error_of(text) if body is None and text else None
    return error_of(body.get("error") or body)


def well_formed(text: str) -> str:
    """Replace lone surrogates in `text`, which no file or request can hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _decoded(content: bytes, charset: str | None) -> str:
    for encoding in (json.detect_encoding(content), charset or "utf-8"):
        try:
            return content.decode(encoding).strip()
        except (ValueError, LookupError):
            continue
    return content.decode("utf-8", errors="replace").strip()


def _read_json(text: str) -> Any:
    try:
        return json.loads(text, strict=False, parse_int=_whole_number)
    except (ValueError, RecursionError):
        return None


def _whole_number(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


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
    if not isinstance(usage, Mapping):
        return None
    read, written = (_count(usage.get(key)) for key in ("prompt_tokens", "completion_tokens"))
    return None if read is None or written is None else (read, written)


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 10**_MAX_DIGITS else None


def _inside(error: Any) -> EndpointError:
    told = error_of(error)
    return EndpointError(told.status, f"an error inside: {told.message}", told.retry_after)


def _error_as_content(text: str) -> EndpointError | None:
    """Return the error that a gateway wrote in place of an answer, if it has a code. It never ends a run."""
    body = _read_json(text.strip()) if text.lstrip().startswith("{") else None
    error = body.get("error") if isinstance(body, Mapping) and len(body) == 1 else None
    if not isinstance(error, Mapping) or "code" not in error:
        return None
    told = _inside(error)
    return EndpointError(SERVER_ERROR, told.message, told.retry_after) if told.status in ENDING else told


def _no_completion(text: str) -> str:
    if not text:
        return "nothing in it"
    kind = "a web page" if re.match(r"<(?:!doctype|html|head|body|\?xml|!--)", text, re.IGNORECASE) else "no completion"
    words = " ".join(re.sub(r"<(script|style).*?</\1>|<[^<>]*>", " ", text[:5000], flags=re.DOTALL).split())
    return f"{kind}: {words[:_MAX_SHOWN]}"
