"""What a teacher is sent: the messages of a product, and the shape that its answer is to have."""

from __future__ import annotations

from typing import Any

from hpd_core import Attribute, CategorySchema, Record
from hpd_core.text.template import render_attribute, render_document
from hpd_core.types import content_hash
from pipelines.config.labelling import OpenAITeacherConfig

_MAX_SHOWN_ANSWER = 2000  # characters of a useless answer that are shown to the teacher again

Message = dict[str, str]

REMINDER = """\
That answer cannot be used: {problem}. Answer again, with one JSON object and nothing else: a key for each attribute, \
spelled as in the list, and null where the product text does not state it."""


def product_messages(config: OpenAITeacherConfig, schema: CategorySchema, record: Record) -> list[Message]:
    """The question about one product: attributes and text as the student will read them."""
    before, rest = config.instruction.split("{attributes}")
    between, after = rest.split("{documents}")
    attributes = "\n".join(render_attribute(attribute) for attribute in schema.attributes)
    text = before + attributes + between + render_document(record.fields) + after
    system = [{"role": "system", "content": config.system}] if config.system else []
    return [*system, {"role": "user", "content": text}]


def asked_again(messages: list[Message], answer: str, problem: str) -> list[Message]:
    """The question, the useless answer to it, and what was wrong."""
    reminder = {"role": "user", "content": REMINDER.replace("{problem}", problem)}
    if not answer.strip():
        return [*messages[:-1], {"role": "user", "content": f"{messages[-1]['content']}\n\n{reminder['content']}"}]
    return [*messages, {"role": "assistant", "content": answer[:_MAX_SHOWN_ANSWER]}, reminder]


def prompt_hash(config: OpenAITeacherConfig) -> str:
    """Equal for two configurations that ask with the same words."""
    return content_hash([config.system, config.instruction, REMINDER])


def response_format(mode: str, schema: CategorySchema) -> dict[str, Any] | None:
    """The request's `response_format` for a `json_mode`; None: it is not sent."""
    if mode == "off":
        return None
    if mode != "json_schema":
        return {"type": "json_object"}
    shape = {
        "type": "object",
        "properties": {attribute.name: _shape(attribute) for attribute in schema.attributes},
        "required": [attribute.name for attribute in schema.attributes],
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "attributes", "strict": True, "schema": shape}}


def _shape(attribute: Attribute) -> dict[str, Any]:
    if attribute.type == "enum":
        item: dict[str, Any] = {"type": "string", "enum": list(attribute.labels)}
    else:
        item = {"type": "string" if attribute.is_text else attribute.type}
    return {"anyOf": [{"type": "array", "items": item} if attribute.multiple else item, {"type": "null"}]}
