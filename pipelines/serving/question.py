"""Question of a request: one document, one schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.serving.reply import ApiError, refused

_NO_SCHEMA = (
    'this server fills in JSON schemas and does not chat: send response_format {"type": "json_schema", "json_schema": '
    '{"name": ..., "schema": {...}}}, or one tool that must be called. In Python: '
    "client.chat.completions.parse(model=..., ...) with a pydantic model"
)


@dataclass(frozen=True, slots=True)
class ServedQuestion:
    """One document and the schema to fill in from it.

    Attributes:
        name: name of the schema, or of the tool.
        as_call: whether the answer is a call of the tool `name`.
        schema_at: key of the request that holds the schema, for messages.
        with_usage: whether a stream ends with the token usage.
        notes: notes for the client about settings without effect.
    """

    document: str
    instruction: str | None
    schema: Mapping[str, Any]
    name: str
    schema_at: str
    as_call: bool = False
    stream: bool = False
    with_usage: bool = False
    notes: tuple[str, ...] = ()


def refuse_keys(body: Mapping[str, Any], reasons: Mapping[str, tuple[Sequence[Any], str]]) -> None:
    """Refuse settings that would change an answer and are not supported.

    Args:
        reasons: key -> (values without effect, reason to refuse all others).
    """
    for key, (harmless, reason) in reasons.items():
        value = body.get(key)
        if value is not None and value not in harmless:
            raise refused(key, reason)


def notes_of(body: Mapping[str, Any], read: Iterable[str]) -> tuple[str, ...]:
    """Return notes about the keys of a request that change nothing. `read`: the keys that do."""
    given = {key for key, value in body.items() if value is not None} - {*read}
    silent, unknown = sorted(given & _WITHOUT_EFFECT), sorted(given - _WITHOUT_EFFECT)
    notes = []
    if silent:
        notes.append(f"without effect: {', '.join(silent)} (the likeliest token is taken, as long as its kind may be)")
    if unknown:
        notes.append(f"not known here, and not read: {', '.join(unknown)[:_MOST_SHOWN]}")
    return tuple(notes)


def schema_in(*texts: str | None) -> dict[str, Any] | None:
    """Return the first JSON Schema that stands in one of the texts, as clients without `response_format` send it."""
    for text in filter(None, texts):
        place = text.find("{")
        for _ in range(_MOST_TRIED):
            if place < 0:
                break
            try:
                found, end = _DECODER.raw_decode(text, place)
            except (ValueError, RecursionError):
                found, end = None, place + 1
            if isinstance(found, dict) and any(isinstance(found.get(key), dict) for key in ("properties", "$defs")):
                return found
            place = text.find("{", end)
    return None


def flag(body: Mapping[str, Any], key: str) -> bool:
    """Return a boolean that may be missing. Raises `ApiError` if it is not a boolean."""
    value = body.get(key)
    if value is not None and not isinstance(value, bool):
        raise refused(key, "true or false is needed")
    return bool(value)


def read_messages(messages: Any) -> tuple[str, str | None]:
    """Return (document, instruction): texts of the user, and of the system. Raises `ApiError`: an image, no text."""
    param = "messages"
    if not isinstance(messages, list):
        raise refused(param, "a list of messages is needed")
    texts: dict[str, list[str]] = {"user": [], "system": []}
    own: list[str] = []  # of the user's own messages
    for index, message in enumerate(messages):
        place = f"{param}[{index}]"
        if not isinstance(message, Mapping):
            raise refused(place, "an object with role and content is needed")
        role = message.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise refused(f"{place}.role", f"{role!r} is not taken: there are {', '.join(_ROLES)}")
        holder, heading = _ROLES[role]
        calls = message.get("tool_calls")
        if role == "assistant" and isinstance(calls, list):
            arguments = [_function(call).get("arguments") for call in calls]
            texts[holder] += [f"{heading}{each}" for each in arguments if isinstance(each, str)]
        if message.get("content") is not None or role != "assistant":
            text = "".join(_texts(message.get("content"), f"{place}.content"))
            texts[holder].append(f"{heading}{text}")
            own += [text] if role == "user" else []
    document = "\n\n".join(texts["user"])
    if not "".join(own).strip():
        raise refused(param, "a message of the user with some text is needed")
    return document, "\n\n".join(texts["system"]) or None


def _texts(content: Any, place: str) -> Iterator[str]:
    if isinstance(content, str):
        yield content
        return
    if not isinstance(content, list):
        raise refused(place, "a text is needed")
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind != "text":
            raise refused(f"{place}[{index}].type", f"{kind!r} is not taken: only text is read")
        if not isinstance(part.get("text"), str):
            raise refused(f"{place}[{index}].text", "a text is needed")
        yield part["text"]


_EARLIER = "An earlier answer: "
_ROLES = {
    **{"user": ("user", ""), "system": ("system", ""), "developer": ("system", "")},
    **{"assistant": ("user", _EARLIER), "tool": ("user", "What was said of it: ")},
}
"""Role -> whose text its messages belong to, and how they begin: later turns are read as context."""
_DECODER = json.JSONDecoder()
_MOST_TRIED = 100
_MOST_SHOWN = 300
_WITHOUT_EFFECT = frozenset(
    {
        *("temperature", "top_p", "top_k", "seed", "max_tokens", "max_completion_tokens", "max_output_tokens"),
        *("frequency_penalty", "presence_penalty", "user", "metadata", "store", "parallel_tool_calls", "service_tier"),
        *("reasoning", "reasoning_effort", "verbosity", "prediction", "truncation", "safety_identifier"),
        *("prompt_cache_key", "stream_options"),
    }
)


def read_schema(holder: Any, place: str, key: str) -> tuple[str, dict[str, Any]]:
    """Return (name, schema) of an object with `name`, `description` and, under `key`, a schema.

    A schema without a description takes the object's. Raises `ApiError` if a part is missing or of the wrong type.
    """
    if not isinstance(holder, Mapping):
        raise refused(place, "an object is needed")
    schema, name, description = holder.get(key), holder.get("name"), holder.get("description")
    if not isinstance(schema, dict):
        raise refused(f"{place}.{key}", "a JSON schema of an object is needed")
    if not isinstance(name, str) or not name:
        raise refused(f"{place}.name", "a name is needed")
    if description is not None and not isinstance(description, str):
        raise refused(f"{place}.description", "a text is needed")
    return name, schema if description is None else {"description": description, **schema}


_ONE = "one answer is given, and the same text gives the same one; leave it out"
_CHAT_REFUSED = {
    "n": ((1,), _ONE),
    "logprobs": ((False,), "probabilities are given by field, in the answer's hpd.fields; leave it out"),
    "top_logprobs": ((0,), "probabilities are given by field, in the answer's hpd.fields; leave it out"),
    "logit_bias": (({},), "answers follow the schema alone; leave it out"),
    "stop": (([], ""), "an answer ends where its JSON does; leave it out"),
    "modalities": ((["text"],), "answers are text"),
    "audio": ((), "answers are text"),
    "functions": (([],), "send tools and tool_choice"),
    "web_search_options": ((), "there is no web to search"),
}
_CHAT_READ = ("model", "messages", "response_format", "tools", "tool_choice", "stream", "stream_options")


def read_chat(body: Mapping[str, Any]) -> ServedQuestion:
    """Parse the question from the body of a request. Raises `ApiError`."""
    refuse_keys(body, _CHAT_REFUSED)
    document, instruction = read_messages(body.get("messages"))
    name, schema, place, as_call = _schema_of(body, schema_in(instruction, document))
    options = body.get("stream_options")
    if options is not None and not isinstance(options, Mapping):
        raise refused("stream_options", "an object is needed")
    return ServedQuestion(
        document,
        instruction,
        schema,
        name,
        place,
        as_call=as_call,
        stream=flag(body, "stream"),
        with_usage=flag(options or {}, "include_usage"),
        notes=notes_of(body, (*_CHAT_READ, *_CHAT_REFUSED)),
    )


def _schema_of(body: Mapping[str, Any], told: dict[str, Any] | None) -> tuple[str, dict[str, Any], str, bool]:
    """Return (name, schema, its place in the body, whether it is a tool's). `told`: a schema in the texts.

    Raises `ApiError` if there is none.
    """
    if body.get("tools") and body.get("tool_choice") != "none":
        return *forced_tool(body["tools"], body.get("tool_choice")), True
    shape, place = body.get("response_format"), "response_format"
    if (free := _free(shape, told)) is not None:
        return _ANSWER, free, "messages", False
    if not isinstance(shape, Mapping) or shape.get("type") != "json_schema":
        raise ApiError(400, _NO_SCHEMA, param=place, code="schema_required")
    place = f"{place}.json_schema"
    return *read_schema(shape.get("json_schema"), place, "schema"), f"{place}.schema", False


_ANSWER = "answer"


def _free(shape: Any, told: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the schema of a request that brings none by its keys: that of its texts, or any object (`json_object`)."""
    kind = shape.get("type") if isinstance(shape, Mapping) else None
    if kind == "json_object":
        return told if told is not None else {"type": "object"}
    return told if kind in (None, "text") else None


def forced_tool(tools: Any, choice: Any) -> tuple[str, dict[str, Any], str]:
    """Return (name, schema, place of the schema) of the tool that `tool_choice` names. Raises `ApiError` if it names
    none, or an unknown one.
    """
    if not isinstance(tools, list) or not all(isinstance(tool, Mapping) for tool in tools):
        raise refused("tools", "a list of objects is needed")
    named = _function(choice).get("name")
    if named is None and (choice != "required" or len(tools) != 1):
        raise refused(
            "tool_choice",
            "the tool has to be named, as {'type': 'function', 'function': {'name': '...'}}, or 'required' with one "
            "tool: this server fills in schemas, and does not choose among tools",
        )
    for index, tool in enumerate(tools):
        place = f"tools[{index}].function"
        if named in (None, _function(tool).get("name")):
            return *read_schema(_function(tool), place, "parameters"), f"{place}.parameters"
    raise refused("tool_choice", f"there is no tool {named!r}")


def _function(holder: Any) -> Mapping[str, Any]:
    found = holder.get("function") if isinstance(holder, Mapping) else None
    return found if isinstance(found, Mapping) else {}
