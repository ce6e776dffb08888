"""Questions to a model about every category, several at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpd_core.text.template import render_document
from pipelines.config.labelling import OpenAITeacherConfig
from pipelines.config.loading import parse_config
from pipelines.errors import RunError, UsageError
from pipelines.labelling.openai_teacher import OpenAITeacher
from pipelines.labelling.teacher_prompts import Message
from pipelines.labelling.teachers import UnansweredError
from pipelines.proposing.answers import Named, read_attributes
from pipelines.proposing.products import ProposalProduct

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
