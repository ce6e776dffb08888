"""Question of a request, from either interface: one document, one schema; and the parsers that the interfaces share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.serving.api_errors import ApiError, refused

_NO_SCHEMA = (
    "this server fills in JSON schemas and does not chat: send {way}. In Python: client.{call}(model=..., ...) with a "
    "pydantic model"
)


@dataclass(frozen=True, slots=True)
class ServedQuestion:
    """One document and the schema to fill in from it.

    Attributes:
        name: name of the schema, or of the tool.
        as_call: whether the answer is a call of the tool `name`.
        schema_at: key of the request that holds the schema, for messages.
        with_usage: whether a stream ends with the token usage.
    """

    document: str
    instruction: str | None
    schema: Mapping[str, Any]
    name: str
    schema_at: str
    as_call: bool = False
    stream: bool = False
    with_usage: bool = False


def no_schema(param: str, way: str, call: str) -> ApiError:
    """Return the refusal of a request without a schema, such as a chat."""
    return ApiError(400, _NO_SCHEMA.format(way=way, call=call), param=param, code="schema_required")


def refuse_keys(body: Mapping[str, Any], reasons: Mapping[str, tuple[Sequence[Any], str]]) -> None:
    """Refuse settings that would change an answer and are not supported.

    Args:
        reasons: key -> (values without effect, reason to refuse all others).
    """
    for key, (harmless, reason) in reasons.items():
        value = body.get(key)
        if value is not None and value not in harmless:
            raise refused(key, reason)


def flag(body: Mapping[str, Any], key: str) -> bool:
    """Return a boolean that may be missing. Raises `ApiError` if it is not a boolean."""
    value = body.get(key)
    if value is not None and not isinstance(value, bool):
        raise refused(key, "true or false is needed")
    return bool(value)


def read_messages(messages: Any, param: str, text_kinds: Sequence[str]) -> tuple[str, str | None]:
    """Return (document, instruction): the user's texts, and those of the system.

    Args:
        text_kinds: `type` values of content parts that are text.

    Raises:
        ApiError: an image, an answer of an assistant, no text.
    """
    if not isinstance(messages, list):
        raise refused(param, "a list of messages is needed")
    texts: dict[str, list[str]] = {"user": [], "system": []}
    for index, message in enumerate(messages):
        place = f"{param}[{index}]"
        if not isinstance(message, Mapping):
            raise refused(place, "an object with role and content is needed")
        role = message.get("role")
        holder = texts.get("system" if role == "developer" else role if isinstance(role, str) else "")
        if holder is None:
            raise refused(
                f"{place}.role",
                f"{role!r} is not taken: there is one turn. Put all texts into messages of the user, and what is to be "
                "done with them into one of the system",
            )
        holder.append("".join(_texts(message.get("content"), f"{place}.content", text_kinds)))
    document = "\n\n".join(texts["user"])
    if not document.strip():
        raise refused(param, "a message of the user with some text is needed")
    return document, "\n\n".join(texts["system"]) or None


def _texts(content: Any, place: str, text_kinds: Sequence[str]) -> Iterator[str]:
    if isinstance(content, str):
        yield content
        return
    if not isinstance(content, list):
        raise refused(place, "a text is needed")
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind not in text_kinds:
            raise refused(f"{place}[{index}].type", f"{kind!r} is not taken: only text is read")
        if not isinstance(part.get("text"), str):
            raise refused(f"{place}[{index}].text", "a text is needed")
        yield part["text"]


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
