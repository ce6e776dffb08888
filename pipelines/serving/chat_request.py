"""Parser of `POST /v1/chat/completions`: a schema as `response_format`, or as the parameters of the tool to call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.serving.api_errors import refused
from pipelines.serving.question import ServedQuestion, flag, no_schema, read_messages, read_schema, refuse_keys

_ONE = "one answer is given, and the same text gives the same one; leave it out"
_REFUSED = {
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
_TEXT = ("text",)
_WAY = (
    'response_format {"type": "json_schema", "json_schema": {"name": ..., "schema": {...}}}, or one tool that must be '
    "called"
)


def read_chat(body: Mapping[str, Any]) -> ServedQuestion:
    """Parse the question from the body of a request. Raises `ApiError`."""
    refuse_keys(body, _REFUSED)
    document, instruction = read_messages(body.get("messages"), "messages", _TEXT)
    name, schema, place, as_call = _asked_schema(body)
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
    )


def _asked_schema(body: Mapping[str, Any]) -> tuple[str, dict[str, Any], str, bool]:
    """Return (name, schema, its place in the body, whether it is a tool's). Raises `ApiError` if there is none."""
    shape = body.get("response_format")
    if body.get("tools") and body.get("tool_choice") != "none":
        return *forced_tool(body["tools"], body.get("tool_choice"), "function"), True
    if not isinstance(shape, Mapping) or shape.get("type") != "json_schema":
        raise no_schema("response_format", _WAY, "chat.completions.parse")
    place = "response_format.json_schema"
    return *read_schema(shape.get("json_schema"), place, "schema"), f"{place}.schema", False


def forced_tool(tools: Any, choice: Any, inner: str | None) -> tuple[str, dict[str, Any], str]:
    """Return (name, schema, place of the schema) of the tool that `tool_choice` names.

    Args:
        inner: key under which a tool and a choice keep their name, "function"; None: directly.

    Raises:
        ApiError: `tool_choice` names no tool, or an unknown one.
    """
    if not isinstance(tools, list) or not all(isinstance(tool, Mapping) for tool in tools):
        raise refused("tools", "a list of objects is needed")
    named = _inside(choice, inner).get("name")
    if named is None and (choice != "required" or len(tools) != 1):
        shown = {"type": "function", **({"name": "..."} if inner is None else {inner: {"name": "..."}})}
        raise refused(
            "tool_choice",
            f"the tool has to be named, as {shown}, or 'required' with one tool: this server fills in schemas, and "
            "does not choose among tools",
        )
    for index, tool in enumerate(tools):
        place = f"tools[{index}]" + ("" if inner is None else f".{inner}")
        if named in (None, _inside(tool, inner).get("name")):
            return *read_schema(_inside(tool, inner), place, "parameters"), f"{place}.parameters"
    raise refused("tool_choice", f"there is no tool {named!r}")


def _inside(holder: Any, inner: str | None) -> Mapping[str, Any]:
    found = holder.get(inner) if isinstance(holder, Mapping) and inner is not None else holder
    return found if isinstance(found, Mapping) else {}
