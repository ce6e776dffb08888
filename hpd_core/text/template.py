"""Prompt templates: the texts that the model reads, and the start of the answer's skeleton.

A prompt is a list of text *pieces*, tokenized apart and joined as ids. Pieces that come from us (the template,
the chat markup) may hold control tokens; pieces that come from the catalog or the schema are plain text,
whatever they contain (see text/tokenization.py).

    prefix     system and user markup, instruction, attribute list        one per category, shared by all records
    document   the record's fields, one per line                          one per record
    header     text between the document and the first key                `<|im_end|>... {`
    key        `"Brand":`                                                 one per attribute
    value      ` "Nike",`                                                 decoded

Keys are known, so a key only has to identify its attribute. With `keys: short` it is the shortest beginning of its
name that has a letter or digit and that begins no other name in the category. Mostly this is one token: ` Brand`. Keys
are forwarded for every product, while the whole names are in the prefix, which is computed once. A name without such a
beginning has its full key.

In the spirit of the paper's Figure 9 (appendix E). With `stacked`, J documents stand in one prompt, each under
a local number, and the skeleton has one object per number. The record's own id is never shown to the model.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, Self

from jinja2 import Environment, TemplateError
from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from hpd_core.errors import PromptError
from hpd_core.plain_data import Member, Section
from hpd_core.types import Attribute, CategorySchema, content_hash

_ATTRIBUTES = "{attributes}"
_DOCUMENTS = "{documents}"

_MAX_LISTED_VALUES = 200
_SHOWN_VALUES = 5  # of those that are not listed

# The day that Llama's chat templates use if there is no clock.
_DATE = datetime.date(2024, 7, 26)

# A chat template's clock is transformers' `strftime_now`. This goes before that: what the template is given can only be
# data (no function of ours), so it is looked up what each part of a format says.
_FLAGS = ("", "-", "_", "0", "^", "#")
_LETTERS = "aAbBcCdDeFgGhHIjklmMnpPrRStTuUVwWxXyYzZf"
_STOPPED_CLOCK = """\
{%- macro strftime_now(format) -%}
    {%- for piece in format.split('%%') -%}
        {{- '' if loop.first else '%' -}}
        {%- for part in piece.split('%') -%}
            {%- set size = 0 if loop.first else 2 if part[:1] in ['-', '_', '0', '^', '#'] else 1 -%}
            {{- (hpd_now[part[:size]] if size else '') ~ part[size:] -}}
        {%- endfor -%}
    {%- endfor -%}
{%- endmacro %}"""

_LEFT_TO_CHANCE = (
    "the tokenizer's chat template shows something else every time, so that no answer could be had again; set "
    "prompt.chat to 'never', or use a template without chance in it"
)
_CHANCE = re.compile(r"\brandom\b|\blipsum\b")
# In Jinja's tokens, one a line.
_CHANCE_IN_CODE = re.compile(
    r"""^operator\ \|\nname\ random$ | ^name\ map\noperator\ \(\nstring\ ['"]random['"]$ | ^name\ lipsum$""",
    re.MULTILINE | re.VERBOSE,
)

_RULES = """\
Answer with JSON: {shape}, every attribute on a line of its own. Copy each value from the product text in as \
few words as possible, with its units. Write null if the product text does not state the attribute."""

_SINGLE_INSTRUCTION = (
    "Extract attributes from a product.\n\nAttributes:\n{attributes}\n\n"
    + _RULES.replace("{shape}", "one object with a key for each attribute")
    + "\n\nProduct:\n{documents}"
)
_STACKED_INSTRUCTION = (
    "Extract attributes from products.\n\nAttributes:\n{attributes}\n\n"
    + _RULES.replace("{shape}", "a key for each product's number, and in it an object with a key for each attribute")
    + "\n\nProducts:\n{documents}"
)


class PromptTemplate(Section):
    """Texts of the prompt; any of them can be replaced.

    `{attributes}` and `{documents}` must each occur once in an instruction, in this order: everything up to the
    documents is computed once per category and shared.
    """

    instruction: str = Field(_SINGLE_INSTRUCTION, description="one document: layout 'tree' and the baseline 'ar'")
    stacked_instruction: str = Field(_STACKED_INSTRUCTION, description="several documents: layout 'stacked'")
    keys: Literal["auto", "full", "short"] = Field(
        "auto",
        description="how the answer's keys are written: 'full', or 'short': as little of each name as tells it from "
        "the category's others. Fewer tokens for every product, for a model that was trained with it; 'auto': as the "
        "adapter or the model was trained, by its hpd.json, else full",
    )
    system: str | None = Field(None, description="system message; None: the chat template's own")
    chat: Literal["auto", "always", "never"] = Field(
        "auto", description="wrap in the tokenizer's chat template: 'auto' if it has one"
    )
    max_listed_values: int = Field(
        _MAX_LISTED_VALUES,
        ge=0,
        description="an enum of more values is not listed: the prompt says how many there are and shows a few, and the "
        "answer is one of them all the same. Every listed value makes the category's prompt longer",
    )
    date: datetime.date = Field(
        _DATE,
        description="today, for chat templates that tell the model the date: fixed, or answers would change by the day",
    )

    @model_validator(mode="after")
    def _check_placeholders(self) -> Self:
        for name in ("instruction", "stacked_instruction"):
            text = getattr(self, name)
            for placeholder in (_ATTRIBUTES, _DOCUMENTS):
                if text.count(placeholder) != 1:
                    raise ValueError(f"{name} must contain {placeholder} exactly once")
            if text.index(_ATTRIBUTES) > text.index(_DOCUMENTS):
                raise ValueError(f"{name} must name {_ATTRIBUTES} before {_DOCUMENTS}")
        return self

    @model_serializer(mode="wrap")
    def _leave_out_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        # So that hashes of earlier runs stay valid.
        for name in ("keys", "max_listed_values", "date"):
            if getattr(self, name) == type(self).model_fields[name].default:
                del data[name]
        return data

    @property
    def hash(self) -> str:
        """Content hash of the texts and of the code's own fixed parts, without what a tokenizer adds.

        Keys that are still 'auto' count as full.
        """
        texts = self.model_dump(mode="json")
        if self.keys == "full":
            del texts["keys"]  # likewise
        return content_hash([texts, _FIXED_PARTS_VERSION])

    def rendered_hash(self, tokenizer: Any) -> str:
        """Return a content hash of all text around a document: these texts, and what the tokenizer adds.

        It adds its chat template, with the date and without thinking, or the token that begins a text.

        Raises:
            PromptError: the chat template does not take our messages; the message says why.
        """
        return content_hash([self.hash, *chat_wrapping(self, tokenizer)])


# Raise when the texts that this module adds by itself change, so that prompt hashes change with them.
_FIXED_PARTS_VERSION = 1


@dataclass(frozen=True, slots=True)
class Piece:
    """Text to tokenize. Only a trusted one may hold control tokens."""

    text: str
    trusted: bool


Frame = tuple[tuple[Piece, ...], tuple[Piece, ...]]
"""Pieces before the documents, and between them and the answer."""


def render_frame(template: PromptTemplate, schema: CategorySchema, tokenizer: Any, *, stacked: bool) -> Frame:
    """Return the pieces around the documents for one category.

    Raises:
        PromptError: the chat template drops or doubles the user's message.
    """
    instruction = template.stacked_instruction if stacked else template.instruction
    before, rest = instruction.split(_ATTRIBUTES)
    between, after = rest.split(_DOCUMENTS)
    head, tail = chat_wrapping(template, tokenizer)
    attributes = "\n".join(render_attribute(attribute, template.max_listed_values) for attribute in schema.attributes)
    prefix = (Piece(head + before, True), Piece(attributes, False), Piece(between, True))
    return prefix, (Piece(after + tail, True),)


def chat_wrapping(template: PromptTemplate, tokenizer: Any) -> tuple[str, str]:
    """Return the text before and after the user's message: the chat template's markup, or the beginning token.

    Raises:
        PromptError: the chat template drops or doubles the user's message.
    """
    has_template = bool(getattr(tokenizer, "chat_template", None))
    if template.chat == "never" or (template.chat == "auto" and not has_template):
        bos = tokenizer.bos_token if _adds_bos(tokenizer) else ""
        return (bos + (f"{template.system}\n\n" if template.system else ""), "\n")
    if not has_template:
        raise PromptError("prompt.chat is 'always', but this tokenizer has no chat template")
    marker = "HPD-DOCUMENTS-STAND-HERE"
    messages = [{"role": "user", "content": marker}]
    if template.system:
        messages.insert(0, {"role": "system", "content": template.system})
    text = _render_chat(tokenizer, messages, template.date)
    if text != _render_chat(tokenizer, messages, template.date):
        raise PromptError(_LEFT_TO_CHANCE)
    if text.count(marker) != 1:
        raise PromptError("the tokenizer's chat template does not show the user's message exactly once")
    head, tail = text.split(marker)
    return head, tail


def _render_chat(tokenizer: Any, messages: list[dict[str, str]], date: datetime.date) -> str:
    now = datetime.datetime.combine(date, datetime.time())
    try:
        chat_template: str = tokenizer.get_chat_template()
        if _has_chance(chat_template):
            raise PromptError(_LEFT_TO_CHANCE)
        clock: dict[str, Any] = {}
        if "strftime_now" in chat_template:
            clock = {
                "chat_template": f"{_STOPPED_CLOCK}\n{chat_template}",
                "hpd_now": {flag + letter: now.strftime(f"%{flag}{letter}") for flag in _FLAGS for letter in _LETTERS},
            }
        elif "date_string" in chat_template:
            clock = {"date_string": now.strftime("%d %b %Y")}
        text: str = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=False, **clock
        )
    except (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise PromptError(f"the tokenizer's chat template refuses our messages: {_one_line(str(error))}") from error
    return text


def _has_chance(chat_template: str) -> bool:
    """Return whether the template uses Jinja's randomness: the filter `random`, alone or within `map`, or `lipsum`.

    Rendering it twice is not enough: a choice of two is the same half of the time.
    """
    if not _CHANCE.search(chat_template):
        return False
    tokens = Environment().lex(chat_template)
    code = "\n".join(f"{kind} {text}" for _, kind, text in tokens if kind in ("name", "operator", "string"))
    return _CHANCE_IN_CODE.search(code) is not None


def _adds_bos(tokenizer: Any) -> bool:
    ids = tokenizer("a")["input_ids"]
    return tokenizer.bos_token_id is not None and bool(ids) and ids[0] == tokenizer.bos_token_id


def render_attribute(attribute: Attribute, max_listed_values: int | None = None) -> str:
    """Return one line of the attribute list: `- Roast: How dark; one of "light", "dark"`.

    `max_listed_values`: an enum with more values shows only a few of them; None: all values are listed.
    """
    notes: list[str] = []
    if attribute.description:
        notes.append(_one_line(attribute.description))
    if attribute.type == "number":
        notes.append(f"a number in {attribute.unit.want}" if attribute.unit else "a number")
    elif attribute.unit:
        notes.append(f"in {attribute.unit.want}")
    if attribute.type == "date":
        notes.append("a date")
    if attribute.type == "boolean":
        notes.append("true or false")
    if attribute.values:
        notes.append(_vocabulary_note(attribute.values, max_listed_values))
    if attribute.multiple:
        notes.append("a list")
    name = _one_line(attribute.name)
    return f"- {name}: {'; '.join(notes)}" if notes else f"- {name}"


def _vocabulary_note(members: Sequence[Member], max_listed: int | None) -> str:
    if max_listed is None or len(members) <= max_listed:
        return "one of " + ", ".join(map(_member_note, members))
    # Evenly spaced ones, as the list may be sorted: they show how its values are written.
    count = min(_SHOWN_VALUES, len(members))
    shown = (members[place * len(members) // count].label for place in range(count))
    labels = ", ".join(json.dumps(label, ensure_ascii=False) for label in shown)
    return f"one of {len(members)} values such as {labels}"


def _member_note(member: Member) -> str:
    label = json.dumps(member.label, ensure_ascii=False)
    return f"{label} ({_one_line(member.description)})" if member.description else label


def render_document(fields: Mapping[str, str]) -> str:
    """Return the record's text: one `name: text` line per field that has any text, in the fields' order."""
    return "\n".join(f"{name}: {text.strip()}" for name, text in fields.items() if text.strip())


def render_key(attribute: Attribute) -> str:
    """Return a key of the answer's skeleton. The value follows after a space, which belongs to its first token."""
    return json.dumps(attribute.name, ensure_ascii=False) + ":"


def render_short_key(attribute: Attribute) -> str:
    """Return the text whose beginning is the short key: the name as in the attribute list."""
    return f" {_one_line(attribute.name)}:"


def single_header() -> str:
    """Return the opening of the answer for one document; each key then starts a line."""
    return "{\n"


def render_answer_line(attribute: Attribute, items: Sequence[str] | None) -> str:
    """Return the value text that a perfect model would write after the key, including the newline.

    `items` None means null. Used for training targets, forced answers and tests.
    """
    if items is None:
        return " null,\n"
    literals = [_literal(attribute, item) for item in items]
    return f" [{', '.join(literals)}],\n" if attribute.multiple else f" {literals[0]},\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _literal(attribute: Attribute, item: str) -> str:
    if attribute.type == "number":
        # As it is written in the text as a rule: 1.50 stays 1.50, and no exponent.
        return format(Decimal(item), "f")
    return item if attribute.type == "boolean" else json.dumps(item, ensure_ascii=False)
