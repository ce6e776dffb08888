"""Parser of `POST /v1/responses`: a schema as `text.format`, or as the parameters of the tool to call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.serving.api_errors import refused
from pipelines.serving.chat_request import forced_tool
from pipelines.serving.question import ServedQuestion, flag, no_schema, read_messages, read_schema, refuse_keys

_STATELESS = "nothing is kept of earlier requests; send all texts in input"
_REFUSED = {
    "previous_response_id": ((), _STATELESS),
    "conversation": ((), _STATELESS),
    "prompt": ((), _STATELESS),
    "background": ((False,), "answers are not kept; leave it out"),
    "include": (([],), "probabilities are given by field, in the answer's hpd.fields; leave it out"),
    "top_logprobs": ((0,), "probabilities are given by field, in the answer's hpd.fields; leave it out"),
}
_TEXT = ("input_text", "text")
_WAY = 'text {"format": {"type": "json_schema", "name": ..., "schema": {...}}}, or one tool that must be called'


def read_response(body: Mapping[str, Any]) -> ServedQuestion:
    """Parse the question from the body of a request. Raises `ApiError`."""
    refuse_keys(body, _REFUSED)
    asked, wanted = body.get("input"), body.get("instructions")
    if wanted is not None and not isinstance(wanted, str):
        raise refused("instructions", "a text is needed")
    messages = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    document, instruction = read_messages(messages, "input", _TEXT)
    name, schema, place, as_call = _asked_schema(body)
    return ServedQuestion(
        document,
        "\n\n".join(filter(None, (wanted, instruction))) or None,
        schema,
        name,
        place,
        as_call=as_call,
        stream=flag(body, "stream"),
    )


def _asked_schema(body: Mapping[str, Any]) -> tuple[str, dict[str, Any], str, bool]:
    """Return (name, schema, its place in the body, whether it is a tool's). Raises `ApiError` if there is none."""
    text = body.get("text")
    shape = text.get("format") if isinstance(text, Mapping) else None
    if body.get("tools") and body.get("tool_choice") != "none":
        return *forced_tool(body["tools"], body.get("tool_choice"), None), True
    if not isinstance(shape, Mapping) or shape.get("type") != "json_schema":
        raise no_schema("text.format", _WAY, "responses.parse")
    return *read_schema(shape, "text.format", "schema"), "text.format.schema", False
