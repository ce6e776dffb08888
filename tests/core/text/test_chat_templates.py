"""Chat templates around the prompt: they tell no other day tomorrow, and what they show is in the prompt's hash."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from hpd_core import Attribute, CategorySchema, PromptError, PromptTemplate
from hpd_core.text.template import render_frame
from tests.tables import table
from tests.tiny_model import build_tokenizer

SCHEMA = CategorySchema(category="Shoes", attributes=(Attribute(name="Brand"),))


def rendered(template: PromptTemplate, tokenizer: Any) -> str:
    prefix, suffix = render_frame(template, SCHEMA, tokenizer, stacked=False)
    return "".join(piece.text for piece in (*prefix, *suffix))


# How families tell the date. All of them ask transformers' clock.
CLOCKS = {
    "llama 3.1": (
        "{%- if not date_string is defined %}{%- if strftime_now is defined %}"
        "{%- set date_string = strftime_now('%d %b %Y') %}{%- else %}{%- set date_string = '26 Jul 2024' %}{%- endif %}"
        "{%- endif %}Today Date: {{ date_string }}\n{{ messages[0].content }}",
        "Today Date: 26 Jul 2024\n",
    ),
    "llama 3.1 without a clock": (
        "{%- if not date_string is defined %}{%- set date_string = '26 Jul 2024' %}{%- endif %}"
        "Today Date: {{ date_string }}\n{{ messages[0].content }}",
        "Today Date: 26 Jul 2024\n",
    ),
    "gpt-oss": (
        "{%- macro system() -%}Current date: {{ strftime_now('%Y-%m-%d') }}{%- endmacro -%}"
        "{{ system() }}\n{{ messages[0].content }}",
        "Current date: 2024-07-26\n",
    ),
    "smollm3": (
        "{%- set today = strftime_now('%d %B %Y') -%}Today Date: {{ today }}\n{{ messages[0].content }}",
        "Today Date: 26 July 2024\n",
    ),
    "mistral": (
        "{%- set ns = namespace(today=strftime_now('%Y-%m-%d')) %}{{ ns.today.split('-') | join('/') }}\n"
        "{{ messages[0].content }}",
        "2024/07/26\n",
    ),
    "without zeros": (
        "{{ strftime_now('%-d.%-m.%y 100%% %^b %%d') }}\n{{ messages[0].content }}",
        "26.7.24 100% JUL %d\n",
    ),
    "indented": (
        "\n  {%- if true %}\n  {{ strftime_now(format='%F') }}\n{% endif %}{{ messages[0].content }}",
        "  2024-07-26\n",
    ),
    "to the minute": ("{{ strftime_now('%H:%M:%S %f %A') }}\n{{ messages[0].content }}", "00:00:00 000000 Friday\n"),
}


@table("family", CLOCKS)
def test_a_chat_template_that_tells_the_date_tells_the_same_one_for_ever(family: str) -> None:
    tokenizer = build_tokenizer()
    tokenizer.chat_template, shown = CLOCKS[family]
    assert rendered(PromptTemplate(), tokenizer).startswith(f"{shown}Extract")


@table(
    "chat_template",
    [
        "<s>{{ messages[0].content }}</s>",
        "<s>{{ messages[0].content }}",
        "{{ messages[0].content }}{% if enable_thinking is false %}<think></think>{% endif %}",
        "{{ bos_token }}{{ messages[0].content }}",
        CLOCKS["smollm3"][0],
        None,
    ],
)
def test_what_is_rendered_has_a_hash_of_its_own(chat_template: str | None, tiny_tokenizer: Any) -> None:
    tokenizer = build_tokenizer()
    tokenizer.add_special_tokens({"bos_token": "<s>"})
    tokenizer.chat_template = chat_template
    template = PromptTemplate()
    assert template.rendered_hash(tokenizer) != template.rendered_hash(tiny_tokenizer)
    assert template.rendered_hash(tokenizer) == PromptTemplate().rendered_hash(copy.deepcopy(tokenizer))
    assert template.rendered_hash(tokenizer) != PromptTemplate(keys="short").rendered_hash(tokenizer)


@table(
    ("chat_template", "reason"),
    [
        ("{{ range(90000) | random }}{{ messages[0].content }}", "something else every time"),
        ("{{ [[1, 2]] | map('random') | list }}{{ messages[0].content }}", "something else every time"),
        ("{{ lipsum(n=1) }}{{ messages[0].content }}", "something else every time"),
        ("{% generation %}{{ 'ab'|random }}{% endgeneration %}{{ messages[0].content }}", "something else every time"),
        ("{{ messages[0].content + 1 }}", "refuses our messages"),
        ("{{ strftime_now() }}{{ messages[0].content }}", "refuses our messages"),
        ({"rag": "{{ messages[0].content }}", "tool_use": "{{ messages[0].content }}"}, "refuses our messages"),
    ],
)
def test_a_chat_template_that_cannot_be_used_says_why(chat_template: Any, reason: str) -> None:
    tokenizer = build_tokenizer()
    tokenizer.chat_template = chat_template
    with pytest.raises(PromptError, match=reason):
        rendered(PromptTemplate(), tokenizer)
