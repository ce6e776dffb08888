"""Questions to a judge: the prompt of the paper's Figure 11 (arXiv 2604.26209), word for word."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from hpd_core import Attribute
from hpd_core.text.template import PromptTemplate, render_attribute, render_document
from pipelines.labelling.teacher_prompts import Message

INSTRUCTION = """\
You are an expert at evaluating product details.

Consider the following product attributes:

{attributes}

An existing system has attempted to extract the value of each attribute from the product information below. Analyze \
the input context and extracted values to determine if the extracted values are correct.

Classify each attribute into 1 of 5 types:

- "correct": The input text contains sufficient information to extract the attribute value beyond reasonable doubt. \
The attribute value extracted is correct and complete. Words that convey the same meaning are allowed.
- "incorrect": The input text contains sufficient information to extract the attribute value beyond reasonable doubt. \
The attribute value extracted is incorrect or incomplete. Do not include "null" values in this category.
- "missing": The input text contains sufficient information to extract the attribute value beyond reasonable doubt. \
The attribute value extracted is "null" or missing.
- "correct null": The value cannot be directly inferred from the input context. The attribute value extracted is \
"null" or similar. Values indicating the absence of an attribute ("no", "none") should be "correct null".
- "hallucination": The value cannot be directly inferred from the input context. An attribute value was extracted \
which is not indicating the absence of a value.

Use the following explanation structure for each attribute:
<attribute_name>: The value "<value>" is <classification> because <brief explanation>.

After the explanation, output a JSON dict with a key for each attribute (use the attribute name) and one of the \
evaluation results as value (correct, incorrect, missing, correct null, hallucination). Wrap the JSON around \
<result></result> tags. Do not provide explanations.

Input product:

{product}

Extracted Values:

{values}"""

REMINDER = """\
That answer cannot be used: {problem}. Answer again, with one JSON dict in <result></result> tags and nothing else: a \
key for each attribute, spelled as in the list, and one of correct, incorrect, missing, correct null, hallucination as \
its value."""

_MAX_LISTED_VALUES = PromptTemplate().max_listed_values
_MAX_SHOWN_ANSWER = 8000  # characters of a useless answer that are shown to the judge again

Values = Mapping[str, str | list[str] | None]


def question(
    attributes: Sequence[Attribute], fields: Mapping[str, str], values: Values, system: str | None = None
) -> list[Message]:
    """Build the question about one product: its text as the model read it, and the values as the model wrote them."""
    parts = {
        "{attributes}": "\n".join(render_attribute(each, _MAX_LISTED_VALUES) for each in attributes),
        "{product}": render_document(fields),
        "{values}": json.dumps(values, ensure_ascii=False, indent=1),
    }
    # What stands in a product's text is never taken for a place to fill in.
    text, rest = "", INSTRUCTION
    for name, part in parts.items():
        before, rest = rest.split(name)
        text += before + part
    messages = [{"role": "system", "content": system}] if system else []
    return [*messages, {"role": "user", "content": text + rest}]


def asked_again(messages: list[Message], answer: str, problem: str) -> list[Message]:
    """Return the question, the incomplete answer, and what it lacks."""
    reminder = REMINDER.replace("{problem}", problem)
    if not answer.strip():
        return [*messages[:-1], {"role": "user", "content": f"{messages[-1]['content']}\n\n{reminder}"}]
    shown = {"role": "assistant", "content": answer[-_MAX_SHOWN_ANSWER:]}
    return [*messages, shown, {"role": "user", "content": reminder}]
