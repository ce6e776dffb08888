"""Questions to a model about every category, several at once."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hpd_core.text.template import render_document
from pipelines.config.labelling import OpenAITeacherConfig
from pipelines.config.loading import parse_config
from pipelines.errors import RunError, UsageError
from pipelines.labelling.final_answer import after_reasoning, find_json
from pipelines.labelling.openai_teacher import OpenAITeacher
from pipelines.labelling.teacher_answers import Message
from pipelines.labelling.teachers import UnansweredError
from pipelines.profiling.asked_products import ProposalProduct

# What the configuration of `hpd label` calls what is an option here.
_OPTIONS = {"base_url": "--endpoint", "model": "--model", "api_key_env": "--api-key-env"}
_KEY = re.compile(rf"\bteacher\.({'|'.join(_OPTIONS)})\b")
_BARE_KEY = re.compile(rf"(?:'configuration': )?(?<![\w.])('?)({'|'.join(_OPTIONS)})\1(?=:? |$)", re.MULTILINE)

_MAX_UNANSWERED = 3
"""Unanswered questions, before any answer, after which the endpoint is considered at fault, not a category."""


@dataclass(slots=True)
class Answers:
    """Answers of the model.

    Attributes:
        named: category -> named attributes; [] if no answer named any.
        unanswered: category -> why its question has no answer.
        input_tokens, output_tokens: token counts reported by the endpoint.
    """

    named: dict[str, list[Named]] = field(default_factory=dict)
    unanswered: dict[str, str] = field(default_factory=dict)
    input_tokens: int = 0
    output_tokens: int = 0


def endpoint_config(endpoint: str, model: str, api_key_env: str | None) -> OpenAITeacherConfig:
    """Return the configuration of the endpoint. Raises `UsageError`, in terms of the command's options."""
    keys = {"base_url": endpoint, "model": model, "api_key_env": api_key_env}
    try:
        return parse_config(OpenAITeacherConfig, {"kind": "openai", "json_mode": "off", **keys}, "endpoint")
    except UsageError as error:
        _, _, reasons = str(error).partition("\n")
        raise UsageError(_BARE_KEY.sub(lambda key: _OPTIONS[key[2]], reasons.strip())) from error


def ask(config: OpenAITeacherConfig, products: Mapping[str, Sequence[ProposalProduct]]) -> Answers:
    """Ask about the categories of `products`.

    Raises:
        UsageError, RunError: the endpoint does not answer, or stops answering; in terms of the command's options.
    """
    try:
        return asyncio.run(_ask(config, products))
    except (UsageError, RunError) as error:
        raise type(error)(_KEY.sub(lambda key: _OPTIONS[key[1]], str(error))) from error


async def _ask(config: OpenAITeacherConfig, products: Mapping[str, Sequence[ProposalProduct]]) -> Answers:
    answers = Answers()
    at_once = asyncio.Semaphore(config.max_concurrency)
    enough = max(_MAX_UNANSWERED, config.max_concurrency)
    teacher = OpenAITeacher(config, {}, require_evidence=False)

    async def about(category: str) -> None:
        async with at_once:
            try:
                answers.named[category] = await _attributes(teacher, config, category, products[category], answers)
            except UnansweredError as error:
                # What the others are answered is paid.
                answers.unanswered[category] = str(error)
                # Refusals are fast: of those that were asked with these some may still be answered.
                if not answers.named and len(answers.unanswered) in (enough, len(products)):
                    raise

    async with teacher:
        try:
            async with asyncio.TaskGroup() as tasks:
                for category in products:
                    tasks.create_task(about(category))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
    return answers


async def _attributes(
    teacher: OpenAITeacher,
    config: OpenAITeacherConfig,
    category: str,
    products: Sequence[ProposalProduct],
    answers: Answers,
) -> list[Named]:
    """Ask until an answer names attributes, at most `answer_attempts` times; [] if none does."""
    messages = first = question(category, products)
    for _ in range(config.answer_attempts):
        completion = await teacher.ask(messages)
        read, written = completion.usage or (0, 0)
        answers.input_tokens += read
        answers.output_tokens += written
        if named := read_attributes(completion.text, is_cut=completion.is_cut):
            return named
        messages = asked_again(first, completion.text)
    return []


_MAX_PRODUCTS = 12
_MAX_CHARACTERS = 1_500  # of a product

# The paper's words, Figure 10; <unit> and <values> are added.
_INSTRUCTION = """\
You are an expert at comparing products to determine if they are equivalent in terms of function, specification, form, \
design, material, quantity, quality, brand value.

Analyze the <product> elements below, and output a list of price-sensitive attributes that experienced customers and \
product category experts would consider when comparing these products to see if they are exact equivalents, very \
similar, or incompatible.

For each attribute write a brief description which lists 3-6 typical values as examples.
Make sure each attribute name is not more than 4 words.
Do not include attributes related to price.
For each attribute output the data type of its value as numerical or categorical.
For a numerical attribute output the unit of its value, and for a categorical one the values that these products have, \
separated by |.

Provide up to 16 attributes, including fine-grained ones.

Only output a list of XML <attribute> elements with numeric id (as element attribute), product attribute <name>, \
<description>, <datatype>, <unit> and <values>.

Products, all of the category {category}:

```
{products}
```"""

_REMINDER = """\
That answer cannot be used: it holds no <attribute> element with a <name>. Answer again, with a list of such elements \
and nothing else."""


def question(category: str, products: Sequence[ProposalProduct]) -> list[Message]:
    """Return the question about a category, as chat messages."""
    chosen = products[:: max(1, len(products) // _MAX_PRODUCTS)][:_MAX_PRODUCTS]
    texts = (render_document(product.fields)[:_MAX_CHARACTERS] for product in chosen)
    written = "\n".join(f"<product>\n{text}\n</product>" for text in texts)
    content = _INSTRUCTION.replace("{category}", category).replace("{products}", written)
    return [{"role": "user", "content": content}]


def asked_again(messages: list[Message], answer: str) -> list[Message]:
    """Return the question repeated after an unusable answer, as chat messages."""
    useless = {"role": "assistant", "content": answer[:_MAX_CHARACTERS] or "-"}
    return [*messages, useless, {"role": "user", "content": _REMINDER}]


_ELEMENT = re.compile(r"<attribute\b[^>]*>(.*?)(?=</attribute\s*>|<attribute\b|\Z)", re.DOTALL | re.IGNORECASE)
_LAST = re.compile(r"<attribute\b(?!.*</?attribute\b).*\Z", re.DOTALL | re.IGNORECASE)  # that is not closed
_PART = re.compile(r"<(\w+)\b[^>]*>\s*(.*?)\s*(?:</\s*\1\s*>|(?=<\w+\b)|\Z)", re.DOTALL | re.IGNORECASE)
_DECORATION = re.compile(r"[`*_\"'\s]*(.*?)[`*_\"'\s:.]*", re.DOTALL)
_SPLIT = re.compile(r"\s*[|;\n]\s*")
_NUMERICAL = re.compile(r"numer|number|integer|float|decimal|quanti", re.IGNORECASE)
_NO_UNIT = frozenset({"", "-", "n/a", "na", "none", "null", "unitless", "no unit", "count"})
_PRICE = re.compile(r"\bprice|\bcost\b", re.IGNORECASE)
_MAX_NAME, _MAX_DESCRIPTION, _MAX_VALUE = 60, 300, 60
_MAX_VALUES = 24


@dataclass(frozen=True, slots=True)
class Named:
    """Attribute that a model, or a shop's column, named."""

    name: str
    description: str | None = None
    is_number: bool = False
    unit: str | None = None
    values: tuple[str, ...] = ()


def read_attributes(text: str, *, is_cut: bool = False) -> list[Named]:
    """Parse the attributes in an answer, in its order, each name once; [] if there are none.

    `is_cut`: whether the answer was cut at its limit, so that its last, unclosed attribute is dropped.
    """
    spoken = after_reasoning(text)
    if spoken is None:
        return []
    if is_cut and (last := _LAST.search(spoken)):
        spoken = spoken[: last.start()]
    parts: list[Mapping[str, Any]] = [*_elements(spoken)] or [*_objects(spoken)]
    found: dict[str, Named] = {}
    for each in filter(None, map(_named, parts)):
        found.setdefault(each.name.casefold(), each)
    return list(found.values())


def _elements(text: str) -> Iterator[dict[str, str]]:
    for match in _ELEMENT.finditer(text):
        yield {name.casefold(): html.unescape(content) for name, content in _PART.findall(match[1])}


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield objects with a name at any depth: {"attributes": [{"name": ...}]}, {"Colour": {"description": ...}}."""
    with suppress(ValueError):  # what is cut, or not JSON, names nothing
        for found in find_json(text):
            yield from _named_objects(found[0])


def _named_objects(value: Any, key: str = "") -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        for item in value:
            yield from _named_objects(item)
    elif isinstance(value, Mapping):
        folded = {str(name).casefold(): inner for name, inner in value.items()}
        if isinstance(folded.get("name"), str):
            yield folded
        elif key and folded.keys() & {"description", "datatype", "type"}:
            yield {**folded, "name": key}
        else:
            for name, inner in value.items():
                yield from _named_objects(inner, str(name))


def _named(parts: Mapping[str, Any]) -> Named | None:
    name = _plain(parts.get("name"))
    if not name or len(name) > _MAX_NAME or not name.isprintable() or _PRICE.search(name):
        return None
    description = _plain(parts.get("description"))
    unit = _plain(parts.get("unit"))
    is_number = bool(_NUMERICAL.search(str(parts.get("datatype") or parts.get("type") or "")))
    values = parts.get("values") or ()
    listed = [str(each) for each in values] if isinstance(values, list) else _SPLIT.split(str(values) if values else "")
    members = dict.fromkeys(each for each in map(_plain, listed) if each and len(each) <= _MAX_VALUE)
    return Named(
        name,
        description[:_MAX_DESCRIPTION] or None,
        is_number,
        unit if is_number and unit.casefold() not in _NO_UNIT and len(unit) <= _MAX_NAME else None,
        tuple(members)[:_MAX_VALUES],
    )


def _plain(text: Any) -> str:
    """Strip line breaks and surrounding decoration (quotes, asterisks) from a text; "" if it is not a text."""
    match = _DECORATION.fullmatch(" ".join(str(text).split())) if isinstance(text, str) else None
    return match[1] if match else ""
