"""The one tool that a request must call: its parameters are the schema, its call is the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.serving.api_errors import refused
from pipelines.serving.question import read_schema


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
