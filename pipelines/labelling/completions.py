"""What an endpoint sent with status 200, whatever it looks like: a completion, or an error inside.

Nothing is taken for granted: the forms are those of OpenAI's interfaces (old and new, streamed or not), and of servers
and gateways that take its requests but answer in their own way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.labelling.endpoint_errors import ENDING, SERVER_ERROR, EndpointError, error_of

_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"})
_DECLINED = frozenset(
    {"content_filter", "safety", "recitation", "prohibited_content", "blocklist", "spii", "sensitive", "refusal"}
)
_FAILED = frozenset(
    {"error", "network_error", "insufficient_system_resource", "abort", "aborted", "cancelled", "failed", "timeout"}
)
_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "thought")
_THINKING_PARTS = frozenset({"thinking", "reasoning", "redacted_thinking", "reasoning_text", "summary_text"})
_WRAPPERS = ("result", "data", "response", "completion")
_ERROR_KEYS = frozenset(
    {"error", "code", "status", "status_code", "message", "type", "object", "request_id", "success"}
)
_SAYS_ERROR = re.compile(r"\W*(?:(?:api|http|provider|upstream|server)\s+)?error\b", re.IGNORECASE)
_RATE_LIMIT = re.compile(r"rate.?limit|too many requests", re.IGNORECASE)
_MAX_ERROR = 500  # characters of an error without JSON
_MAX_DIGITS = 15  # of a whole number that counts something
_MAX_SHOWN = 120


@dataclass(frozen=True, slots=True)
class Completion:
    """What a teacher answered.

    Attributes:
        text: its answer, arguments of tool calls included.
        declined: why it does not answer, in its words; "": it does.
        reasoning: what it thought, where that is kept apart.
        tools: the tools that it called.
        is_cut: the token limit ended it.
        usage: tokens read and written, if they are known.
    """

    text: str = ""
    declined: str = ""
    reasoning: str = ""
    tools: tuple[str, ...] = ()
    is_cut: bool = False
    usage: tuple[int, int] | None = None


def read_completion(content: bytes, charset: str | None = None) -> Completion | EndpointError:
    """The body of an answer with status 200; the message of an error goes on from "HTTP 200, but".

    `charset` is what the header says of it; UTF-8 is tried first, as JSON has to be in that.
    """
    text = _decoded(content, charset)
    body = _read_json(text)
    if body is None:
        events = list(_events(text))
        if not events:
            return EndpointError(SERVER_ERROR, _no_completion(text))
        body = _joined(events, is_ended="[DONE]" in text)
    return _read_body(body)


def read_error(content: bytes, charset: str | None = None) -> EndpointError | None:
    """The error in any other body, of whatever status; None: there is none in it."""
    text = _decoded(content, charset)
    body = _read_json(text)
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, Mapping):
        return error_of(text) if body is None and text else None
    return error_of(body.get("error") or body)


def well_formed(text: str) -> str:
    """`text` without halves of surrogate pairs, which no file and no request can hold."""
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


def _read_body(body: Any) -> Completion | EndpointError:
    if isinstance(body, list):
        chunks = [item for item in body if isinstance(item, Mapping)]
        body = chunks[0] if len(chunks) == 1 else _joined(chunks, is_ended=True) if chunks else body
    if not isinstance(body, Mapping):
        return EndpointError(SERVER_ERROR, _no_completion(_dumped(body)))
    for key in _WRAPPERS:
        if isinstance(inner := body.get(key), Mapping) and ("choices" in inner or "response" in inner):
            body = {"error": body.get("error"), **inner}
    message, finish, problem = _message_of(body)
    error = problem or body.get("error") or _reported(body)
    if message is None and finish in _CUT and not error:
        message = {}  # the limit was reached before the first word
    if message is None:
        if blocked := _blocked(body) or ("content filter" if finish in _DECLINED else ""):
            return Completion(declined=blocked, usage=_usage(body))
        return _inside(error) if error else _without_choices(body)
    completion = _completion(message, finish, _usage(body))
    is_empty = not (completion.text.strip() or completion.declined or completion.reasoning)
    # An error beside a whole answer is a warning.
    if finish in _FAILED or (error and (is_empty or not finish)):
        return _inside(error or f"finish_reason {finish!r}")
    has_begun = completion.usage is None or completion.usage[1] > 0 or completion.is_cut
    if is_empty and not (finish and has_begun):
        return EndpointError(SERVER_ERROR, "an empty message that is not finished, or of no token")
    return _error_as_content(completion.text) or completion


def _message_of(body: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str, Any]:
    """The message in a body, why it ended (folded), and the error beside it."""
    choices = body.get("choices")
    choice = next((item for item in choices if isinstance(item, Mapping)), {}) if isinstance(choices, list) else {}
    finish = next(
        (
            holder[key].casefold()
            for holder in (choice, body)
            for key in ("finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason")
            if isinstance(holder.get(key), str)
        ),
        "",
    )
    message: Any = choice.get("message") or choice.get("delta")
    if isinstance(choice.get("text"), str) and not message:
        message = {"content": choice["text"]}
    if not choice:
        message, finish = _message_of_others(body, finish)
    if isinstance(message, str):
        message = {"content": message}
    return (
        (message, finish, choice.get("error")) if isinstance(message, Mapping) else (None, finish, choice.get("error"))
    )


def _message_of_others(body: Mapping[str, Any], finish: str) -> tuple[Any, str]:
    """The same in the Responses interface, and those of Ollama, Anthropic, Gemini, Bedrock, Cloudflare and others."""
    details = body.get("incomplete_details")
    if isinstance(details, Mapping) and isinstance(details.get("reason"), str):
        finish = details["reason"].casefold()
    if isinstance(body.get("output"), list):
        return {"content": body["output"]}, finish or "stop"
    for key in ("output_text", "response", "generated_text"):
        if isinstance(held := body.get(key), str) or (isinstance(held, Mapping) and not held.get("error")):
            return {"content": held}, finish or "stop"
    for holder in (body, body.get("output")):
        if isinstance(holder, Mapping) and isinstance(holder.get("message"), Mapping):
            return holder["message"], finish
    if isinstance(body.get("content"), list):
        return body, finish
    candidates = body.get("candidates")
    if isinstance(candidates, list) and candidates and isinstance(candidates[0], Mapping):
        reason = candidates[0].get("finishReason")
        return candidates[0].get("content"), reason.casefold() if isinstance(reason, str) else finish
    return None, finish


def _completion(message: Mapping[str, Any], finish: str, usage: tuple[int, int] | None) -> Completion:
    parts = message.get("content", message.get("parts"))
    texts: list[str] = []
    thoughts: list[str] = []
    refusals: list[str] = []
    tools: list[tuple[str, str]] = []
    for kind, text in _parts(parts):
        {"thought": thoughts, "refusal": refusals}.get(kind, texts).append(text)
    for call in _tool_calls(message, parts):
        name, arguments = call.get("name"), call.get("arguments", call.get("args", call.get("input")))
        written = arguments if isinstance(arguments, str) else _dumped(arguments) if arguments is not None else ""
        tools.append((name if isinstance(name, str) else "", written))
    thoughts += [text for key in _THOUGHTS for _, text in _parts(message.get(key))]
    if isinstance(refusal := message.get("refusal"), str) and refusal:
        refusals.append(refusal)
    # Parts are cut anywhere, within a word, too.
    text = "\n".join(["".join(texts), *(written for _, written in tools)])
    if finish in _DECLINED and not refusals:
        refusals.append(text or "content filter")
    return Completion(
        text,
        "\n".join(refusals),
        "\n".join(thoughts),
        tuple(name for name, _ in tools),
        finish in _CUT,
        usage,
    )


def _parts(content: Any, nested: int = 0) -> Iterator[tuple[str, str]]:
    """The texts of a message with their kind: "text", "thought" or "refusal"."""
    if isinstance(content, str):
        yield "text", content
    elif isinstance(content, list) and nested < 4:
        for part in content:
            yield from _parts(part, nested + 1)
    elif isinstance(content, Mapping):
        kind = content.get("type")
        inner = content.get("text", content.get("content"))
        if isinstance(inner, Mapping):
            inner = inner.get("value")
        if kind == "refusal":
            yield "refusal", str(content.get("refusal") or inner or "refusal")
        elif kind in _THINKING_PARTS or content.get("thought") is True:
            yield "thought", inner if isinstance(inner, str) else _dumped(content)
        elif inner is not None:
            yield from _parts(inner, nested + 1)
        elif not isinstance(kind, str) and "functionCall" not in content:
            yield "text", _dumped(content)  # the answer itself, as an object


def _tool_calls(message: Mapping[str, Any], parts: Any) -> Iterator[Mapping[str, Any]]:
    calls = message.get("tool_calls")
    held = [*(calls if isinstance(calls, list) else []), message.get("function_call")]
    held += parts if isinstance(parts, list) else []
    for call in held:
        if not isinstance(call, Mapping):
            continue
        function = call.get("function", call.get("functionCall"))
        if isinstance(function, Mapping):
            yield function
        elif "arguments" in call or call.get("type") == "tool_use":
            yield call


def _dumped(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError, TypeError):
        return ""


def _usage(body: Mapping[str, Any]) -> tuple[int, int] | None:
    told = body.get("usage", body.get("usageMetadata"))
    usage = told if isinstance(told, Mapping) else body
    counts = []
    for keys in (
        ("prompt_tokens", "input_tokens", "prompt_eval_count", "promptTokenCount"),
        ("completion_tokens", "output_tokens", "eval_count", "candidatesTokenCount"),
    ):
        count = next((count for key in keys if (count := _count(usage.get(key))) is not None), None)
        if count is None:
            return None
        counts.append(count)
    return counts[0], counts[1]


def _count(value: Any) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,15}(?:\.0*)?", value.strip()):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < 10**_MAX_DIGITS and value == int(value) else None


def _reported(body: Mapping[str, Any]) -> Any:
    """An error that is not under "error": of Baidu and MiniMax, or a body that says so itself."""
    status = body.get("base_resp")
    if isinstance(status, Mapping) and status.get("status_code"):
        return status
    kind = body.get("object", body.get("type"))
    if kind in ("error", "response.failed") or body.get("success") is False:
        return body
    return None


def _blocked(body: Mapping[str, Any]) -> str:
    """Why the question itself was not let through, as Gemini and Azure say it."""
    feedback = body.get("promptFeedback")
    if isinstance(feedback, Mapping) and feedback.get("blockReason"):
        return f"the endpoint blocked the question: {feedback['blockReason']}"
    results = body.get("prompt_filter_results")
    for result in results if isinstance(results, list) else []:
        kinds = result.get("content_filter_results") if isinstance(result, Mapping) else None
        for kind, verdict in kinds.items() if isinstance(kinds, Mapping) else ():
            if isinstance(verdict, Mapping) and verdict.get("filtered") is True:
                return f"the endpoint blocked the question: {kind}"
    return ""


def _inside(error: Any) -> EndpointError:
    told = error_of(error)
    return EndpointError(told.status, f"an error inside: {told.message}", told.retry_after)


def _error_as_content(text: str) -> EndpointError | None:
    """The error that a gateway wrote where the answer belongs: one with a code, or words about a rate limit.

    A teacher may write of errors and of keys, too, so that nothing here ends a run.
    """
    body = _read_json(text.strip()) if text.lstrip().startswith("{") else None
    error = body.get("error") if isinstance(body, Mapping) and set(body) <= _ERROR_KEYS else None
    if isinstance(error, Mapping) and not {"code", "status", "type"}.isdisjoint(error):
        told = _inside(error)
        if told.status in ENDING:
            return EndpointError(SERVER_ERROR, told.message, told.retry_after)
        if told.status != SERVER_ERROR or str(error.get("code", error.get("status"))) == str(SERVER_ERROR):
            return told
    words = _error_words(error) or (text if len(text) <= _MAX_ERROR and _SAYS_ERROR.match(text) else "")
    if not _RATE_LIMIT.search(words):
        return None
    told = _inside(words)
    return EndpointError(429, told.message, told.retry_after)


def _error_words(error: Any) -> str:
    return error if isinstance(error, str) else error_of(error).message if isinstance(error, Mapping) else ""


def _without_choices(body: Mapping[str, Any]) -> EndpointError:
    if set(body) & {"message", "detail", "msg", "code", "errors", "error_msg"}:
        return _inside(body)
    if "choices" in body:
        return EndpointError(SERVER_ERROR, "a completion without choices or message")
    return EndpointError(SERVER_ERROR, _no_completion(_dumped(body)))


def _no_completion(text: str) -> str:
    if not text:
        return "nothing in it"
    kind = "a web page" if re.match(r"<(?:!doctype|html|head|body|\?xml|!--)", text, re.IGNORECASE) else "no completion"
    words = " ".join(re.sub(r"<(script|style).*?</\1>|<[^<>]*>", " ", text[:5000], flags=re.DOTALL).split())
    return f"{kind}: {words[:_MAX_SHOWN]}"


def _events(text: str) -> Iterator[Mapping[str, Any]]:
    """The objects of a stream: server-sent events, or a line each."""
    for line in re.split(r"\r?\n|\r", text):
        body = _read_json(line.removeprefix("data:").strip()) if line.startswith(("data:", "{")) else None
        if isinstance(body, Mapping):
            yield body


def _joined(events: list[Mapping[str, Any]], *, is_ended: bool) -> dict[str, Any]:
    """The events of a stream as one body."""
    texts: dict[str, list[str]] = {"content": [], "reasoning_content": [], "refusal": []}
    calls: dict[str, dict[str, str]] = {}
    ending, error, usage = "", None, None
    for event in events:
        message, finish, problem = _message_of(event)
        error = error or problem or event.get("error") or _reported(event)
        ending = finish or ending
        is_ended = is_ended or event.get("done") is True
        usage = event if _usage(event) is not None else usage
        delta = event.get("delta")
        if isinstance(delta, str) and str(event.get("type")).endswith("output_text.delta"):
            message = {"content": delta}
        if message is None:
            continue
        part = _completion({**message, "tool_calls": None}, "", None)
        for key, text in zip(texts, (part.text, part.reasoning, part.declined), strict=True):
            texts[key].append(text)
        deltas = message.get("tool_calls")
        for call in deltas if isinstance(deltas, list) else []:
            function = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                held = calls.setdefault(str(call.get("index")), {"name": "", "arguments": ""})
                for key in held:
                    held[key] += function[key] if isinstance(function.get(key), str) else ""
    if not (ending or is_ended or error):
        error = "the stream ended in the middle of the answer"
    message = {key: "".join(parts) for key, parts in texts.items()} | {"tool_calls": list(calls.values())}
    choice = {"message": message, "finish_reason": ending or ("stop" if is_ended else "")}
    return {"choices": [choice], "usage": usage and usage.get("usage", usage), "error": error}
