"""Pydantic models, named as `module:Class`, imported through their JSON Schema."""

from __future__ import annotations

import json
import os
import pkgutil
import re
import sys
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from pipelines.errors import UsageError
from pipelines.schemas.importing.sources import Document

_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def is_model(source: str) -> bool:
    """Return whether a source is the name of a class, not a path."""
    return bool(_NAME.fullmatch(source))


def model_document(source: str) -> Document:
    """Return the JSON Schema of the class (a model, or any type that pydantic knows).

    Modules are also searched in the working folder. Importing a module runs it.

    Raises:
        UsageError: it cannot be imported, or is not a type that pydantic can describe.
    """
    if not is_model(source):
        raise UsageError(f"{source}: a pydantic model is named as module:Class")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = pkgutil.resolve_name(source)
    except (Exception, SystemExit) as error:  # whatever a module of somebody else's does when it is imported
        raise UsageError(f"{source} cannot be imported: {type(error).__name__}: {error}") from error
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(found)
        schema = adapter.json_schema(schema_generator=_AttributeSchema)
    except Exception as error:
        raise UsageError(f"{source} has no JSON Schema: {error}") from error
    return Document(source, json.dumps(schema))


class _AttributeSchema(GenerateJsonSchema):
    """JSON Schema generator that keeps information on types that pydantic's default loses."""

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """Return a number; pydantic's default is a number or a text, the same as for `float | str`."""
        return {"type": "number"}

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        """Add the names of the members if none of their values is a text: `SMALL = 1`."""
        found = super().enum_schema(schema)
        members = schema["members"]
        if "enum" in found and not any(isinstance(each.value, str) for each in members):
            found["x-enum-varnames"] = [each.name for each in members]
        return found
