"""Prompts of a teacher: the messages about a product, and the required shape of its answer."""

from __future__ import annotations

from typing import Any

from hpd_core import Attribute, CategorySchema, Record
from hpd_core.text.template import PromptTemplate, render_attribute, render_document
from hpd_core.types import content_hash
from pipelines.config.labelling import OpenAITeacherConfig

_MAX_SHOWN_ANSWER = 2000  # characters of a useless answer that are shown to the teacher again
_MAX_LISTED_VALUES = PromptTemplate().max_listed_values

# What OpenAI's structured outputs take of a schema; a request with more is refused as a whole.
# https://platform.openai.com/docs/guides/structured-outputs/supported-schemas
_MAX_ENUM_VALUES = 1_000  # of all enums
_MANY_VALUES, _MAX_LETTERS_OF_MANY = 250, 15_000  # an enum of more values may not have more letters
_MAX_LETTERS = 120_000  # of all names and values

Message = dict[str, str]

REMINDER = """\
That answer cannot be used: {problem}. Answer again, with one JSON object and nothing else: a key for each attribute, \
spelled as in the list, and null where the product text does not state it."""


def product_messages(config: OpenAITeacherConfig, schema: CategorySchema, record: Record) -> list[Message]:
    """Build the question about one product: attributes and text as the student will read them.

    For a vocabulary that the student's prompt does not list, a few values are shown. An answer is mapped to the member
    whose label or synonym it is.
    """
    before, rest = config.instruction.split("{attributes}")
    between, after = rest.split("{documents}")
    attributes = "\n".join(render_attribute(attribute, _MAX_LISTED_VALUES) for attribute in schema.attributes)
    text = before + attributes + between + render_document(record.fields) + after
    system = [{"role": "system", "content": config.system}] if config.system else []
    return [*system, {"role": "user", "content": text}]


def asked_again(messages: list[Message], answer: str, problem: str) -> list[Message]:
    """Return the question, the useless answer to it, and what was wrong with that."""
    reminder = {"role": "user", "content": REMINDER.replace("{problem}", problem)}
    if not answer.strip():
        return [*messages[:-1], {"role": "user", "content": f"{messages[-1]['content']}\n\n{reminder['content']}"}]
    return [*messages, {"role": "assistant", "content": answer[:_MAX_SHOWN_ANSWER]}, reminder]


def prompt_hash(config: OpenAITeacherConfig) -> str:
    """Hash the wording of the questions; equal for two configurations with the same words."""
    return content_hash([config.system, config.instruction, REMINDER])


MODES = ("json_schema", "tool", "json_object", "off")
"""Ways to enforce the form of an answer, strictest first; `json_mode: auto` falls back to the next on refusal."""


def answer_shape(mode: str, schema: CategorySchema) -> dict[str, Any]:
    """Return the keys of the request that enforce the answer's form."""
    if mode == "off":
        return {}
    if mode == "json_object":
        return {"response_format": {"type": "json_object"}}
    if mode == "tool":
        function = {
            "name": "attributes",
            "description": "Answer with the attributes.",
            "parameters": json_schema(schema),
        }
        choice = {"type": "function", "function": {"name": "attributes"}}
        return {"tools": [{"type": "function", "function": function}], "tool_choice": choice}
    named = {"name": "attributes", "strict": True, "schema": json_schema(schema)}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def json_schema(schema: CategorySchema) -> dict[str, Any]:
    """Return the JSON Schema of an answer.

    The longest enums, which exceed OpenAI's limits, are plain strings in it.
    """
    enums = _enums_that_fit(schema)
    return {
        "type": "object",
        "properties": {
            attribute.name: _shape(attribute, is_enum=attribute.name in enums) for attribute in schema.attributes
        },
        "required": [attribute.name for attribute in schema.attributes],
        "additionalProperties": False,
    }


def _enums_that_fit(schema: CategorySchema) -> set[str]:
    """Return the attributes whose values a JSON schema can hold, preferring the shortest vocabularies."""
    values, letters = 0, sum(len(attribute.name) for attribute in schema.attributes)
    fitting = set()
    for attribute in sorted(schema.attributes, key=lambda each: len(each.labels)):
        count, length = len(attribute.labels), sum(map(len, attribute.labels))
        is_one_too_long = count > _MANY_VALUES and length > _MAX_LETTERS_OF_MANY
        if count and not is_one_too_long and values + count <= _MAX_ENUM_VALUES and letters + length <= _MAX_LETTERS:
            values, letters = values + count, letters + length
            fitting.add(attribute.name)
    return fitting


def _shape(attribute: Attribute, *, is_enum: bool) -> dict[str, Any]:
    if is_enum:
        item: dict[str, Any] = {"type": "string", "enum": list(attribute.labels)}
    else:
        is_text = attribute.is_text or attribute.type == "enum"
        item = {"type": "string" if is_text else attribute.type}
    return {"anyOf": [{"type": "array", "items": item} if attribute.multiple else item, {"type": "null"}]}
