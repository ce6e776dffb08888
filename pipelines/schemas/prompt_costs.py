"""Costs of listed enum values: tokens in a category's prompt, which precedes every product of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from hpd_core import Attribute, CategorySchema, HPDError
from hpd_core.text.template import PromptTemplate, render_attribute
from pipelines.errors import UsageError
from pipelines.schemas.remarks import Remark

CountTokens = Callable[[str], int]
"""Function that counts the tokens of a text."""

_LETTERS_PER_TOKEN = 4
_TELL_FROM = 500  # tokens
_MAX_TOLD = 10
_MAX_LISTED = PromptTemplate().max_listed_values


def prompt_costs(
    schemas: Mapping[str, CategorySchema],
    count_tokens: CountTokens | None = None,
) -> Iterator[Remark]:
    """Yield remarks on the categories whose listed values take the most tokens, largest first.

    `count_tokens`: token counter of a model; without it tokens are estimated from letters. Vocabularies that are
    too long to be listed cost nothing.
    """
    costs: dict[Attribute, int] = {}
    found: list[tuple[str, dict[str, int]]] = []
    for category, schema in schemas.items():
        listed = [each for each in schema.attributes if each.values and len(each.values) <= _MAX_LISTED]
        for attribute in listed:
            if attribute not in costs:
                costs[attribute] = _cost(attribute, count_tokens)
        found.append((category, {attribute.name: costs[attribute] for attribute in listed}))
    found = sorted((each for each in found if _total(each) >= _TELL_FROM), key=_total, reverse=True)
    about = "" if count_tokens is not None else "about "
    for number, (category, tokens) in enumerate(found[:_MAX_TOLD], start=1):
        largest = max(tokens, key=lambda name: tokens[name])
        part = f", {tokens[largest]:,} of them {largest!r}" if len(tokens) > 1 else ""
        more = len(found) - number if number == _MAX_TOLD else 0
        yield Remark(
            category,
            None,
            f"the values listed take {about}{sum(tokens.values()):,} tokens of its prompt{part}; with a lower "
            "engine.prompt.max_listed_values fewer are listed, and answers are among them all the same"
            + (f" ({more:,} more categories have at least {_TELL_FROM})" if more else ""),
        )


def _total(found: tuple[str, Mapping[str, int]]) -> int:
    return sum(found[1].values())


def _cost(attribute: Attribute, count_tokens: CountTokens | None) -> int:
    text = render_attribute(attribute)
    return count_tokens(text) if count_tokens is not None else len(text) // _LETTERS_PER_TOKEN


def tokenizer_counts(model: str) -> CountTokens:
    """Return a token counter of a model, named as for `Engine.from_pretrained`. Raises `UsageError`."""
    # Both import torch, which takes seconds.
    from hpd_core.config import EngineConfig
    from hpd_core.models.loading import load_tokenizer

    try:
        tokenizer = load_tokenizer(model, EngineConfig())
    except HPDError as error:
        raise UsageError(f"--model: {error}") from error
    return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])
