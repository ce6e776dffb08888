"""Lint of schema files: what is allowed but probably not meant, and what can never be answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from hpd_core import Attribute, CategorySchema
from hpd_core.text.near_names import NearNames, fold_name, is_blank
from pipelines.schemas.lint_values import alike, beside, lint_text, lint_unit, lint_values
from pipelines.schemas.prompt_costs import CountTokens, prompt_costs
from pipelines.schemas.remarks import Remark

_MAX_ATTRIBUTES = 64  # what the engine is tested with
_MAX_DESCRIPTION = 500  # letters


def lint(schemas: Mapping[str, CategorySchema], count_tokens: CountTokens | None = None) -> Iterator[Remark]:
    """Yield remarks on what is allowed in `schemas` but probably not meant.

    `count_tokens`: token counter of a model, for the costs of prompts; without it they are estimated.
    """
    for category, earlier in alike(schemas, fold_name):
        yield Remark(category, None, f"almost the same name as category {beside(earlier, category)}")
    yield from _aliases(schemas)
    yield from _sharing(schemas)
    types: dict[str, dict[str, str]] = {}
    counts = Counter(attribute for schema in schemas.values() for attribute in schema.attributes)
    for category, schema in schemas.items():
        for text in (category, *schema.aliases):
            for message in lint_text(text):
                yield Remark(category, None, message)
        if len(schema.attributes) > _MAX_ATTRIBUTES:
            yield Remark(category, None, f"{len(schema.attributes)} attributes, more than {_MAX_ATTRIBUTES}")
        for name, earlier in alike((attribute.name for attribute in schema.attributes), fold_name):
            yield Remark(category, name, f"almost the same name as attribute {beside(earlier, name)}")
        for attribute in schema.attributes:
            # What categories share is looked at, and told, once.
            if more := counts.pop(attribute, 0):
                elsewhere = f" (as in {more - 1:,} more categories)" if more > 1 else ""
                for message in _lint_attribute(attribute):
                    yield Remark(category, attribute.name, f"{message}{elsewhere}")
            types.setdefault(attribute.name, {}).setdefault(attribute.type, category)
    for name, categories in types.items():
        if len(categories) > 1:
            described = ", ".join(f"{kind} in {category}" for kind, category in categories.items())
            yield Remark(next(iter(categories.values())), name, f"of different types: {described}")
    yield from prompt_costs(schemas, count_tokens)


def _sharing(schemas: Mapping[str, CategorySchema]) -> Iterator[Remark]:
    """Find names in `shares_text_with` that no exclusive attribute has, since nothing else checks them."""
    known = {attribute.name for schema in schemas.values() for attribute in schema.attributes if attribute.is_exclusive}
    for category, schema in schemas.items():
        for attribute in schema.attributes:
            for name in attribute.shares_text_with:
                if name not in known:
                    hint = NearNames(sorted(known)).hint(name)
                    told = f"shares its text with {name!r}, and no category has an exclusive attribute of that name"
                    yield Remark(category, attribute.name, f"{told}; {hint}" if hint else told)


def _aliases(schemas: Mapping[str, CategorySchema]) -> Iterator[Remark]:
    """Find ambiguous aliases: those that are also the name or an alias of another category."""
    owners: dict[str, str] = {category: category for category in schemas}
    for category, schema in schemas.items():
        for alias in schema.aliases:
            if (owner := owners.setdefault(alias, category)) != category:
                whose = f"also an alias of category {owner!r}" if alias != owner else "also the name of a category"
                yield Remark(category, None, f"its alias {alias!r} is {whose}")


def _lint_attribute(attribute: Attribute) -> Iterator[str]:
    for text in (attribute.name, *attribute.aliases):
        yield from lint_text(text)
    if (description := attribute.description) is not None:
        yield from ["its description is empty"] if is_blank(description) else lint_text(description)
    if len(description or "") > _MAX_DESCRIPTION:
        yield f"a description of {len(description or ''):,} letters makes every prompt long"
    if attribute.unit is not None:
        yield from lint_unit(attribute.unit, attribute)
    if attribute.type == "boolean" and attribute.multiple:
        yield "a list of truth values: without multiple?"
    if attribute.max_value_tokens == 1:
        yield "max_value_tokens is 1: most values have more tokens, and are cut"
    yield from lint_values(attribute)
