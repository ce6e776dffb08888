"""Made-up workloads of the benchmark, each hard in its own way. The same seed gives the same records.

    listings     long listings as a marketplace has them: title, bullets, description, ~250 tokens; 16 attributes
    titles       titles alone, ~25 tokens; 6 attributes
    variants     families of 1 to 20 such listings that share bullets and description, which stand first
    skewed       most values of 2 tokens, one in 20 of K_max
    wide         64 attributes
    categories   1,000 categories of 5 products, each with 8 attributes of its own
    single       listings, each decoded alone: latency

Values are as long as the answers that stand in the text (in `skewed`: as drawn), whatever a model would say.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

from bench.workloads.listings import (
    LISTING_ATTRIBUTES,
    TITLE_ATTRIBUTES,
    WORDS,
    Listing,
    category_names,
    make_listing,
    make_specification,
    make_title,
    make_variants,
    specification_names,
)
from bench.workloads.workload import Workload
from hpd_core import Attribute, CategorySchema, Record
from hpd_core.text.tokenization import SegmentTokenizer
from pipelines.errors import UsageError

SINGLE = "single"
LISTING_TOKENS = 250
LARGEST_FAMILY = 20
SHORT_TOKENS, LONG_SHARE = 2, 0.05
"""Lengths in `skewed`: tokens of most values, and the share of those that take K_max."""
NUM_WIDE_ATTRIBUTES = 64
NUM_CATEGORIES, PRODUCTS_OF_CATEGORY, ATTRIBUTES_OF_CATEGORY = 1000, 5, 8


@dataclasses.dataclass(frozen=True, slots=True)
class _Maker:
    """Material of a workload."""

    tokenizer: Any
    seed: int
    draw: random.Random
    size: int
    max_value_tokens: int


def make_workload(
    name: str, tokenizer: Any, max_value_tokens: int, limit: int | None = None, seed: int = 0
) -> Workload:
    """Make the workload of that name.

    Args:
        limit: so many records, in `categories` at most; the first of more are the same.
        max_value_tokens: K_max, of `skewed`.

    Raises:
        UsageError: no such workload.
    """
    if name not in _RECIPES:
        raise UsageError(f"--workload {name!r}: there are {', '.join(map(repr, _RECIPES))}")
    size, recipe = _RECIPES[name]
    return recipe(_Maker(tokenizer, seed, random.Random(seed), limit or size, max_value_tokens))


_LISTED = CategorySchema(category="Home & Outdoor", attributes=LISTING_ATTRIBUTES)


def _listings(maker: _Maker) -> Workload:
    count = _counter(maker.tokenizer)
    made = [
        make_listing(maker.draw, maker.draw.choice(WORDS["products"]), LISTING_TOKENS, count) for _ in range(maker.size)
    ]
    return _workload(maker, [_LISTED] * maker.size, made)


def _titles(maker: _Maker) -> Workload:
    schema = CategorySchema(category="Home & Outdoor", attributes=TITLE_ATTRIBUTES)
    made = [make_title(maker.draw, maker.draw.choice(WORDS["products"])) for _ in range(maker.size)]
    return _workload(maker, [schema] * maker.size, made)


def _variants(maker: _Maker) -> Workload:
    """Make families of 1 to LARGEST_FAMILY listings; a family of k is drawn with weight 1 / k."""
    count, sizes = _counter(maker.tokenizer), range(1, LARGEST_FAMILY + 1)
    made: list[Listing] = []
    while len(made) < maker.size:
        (size,) = maker.draw.choices(sizes, [1 / size for size in sizes])
        made += make_variants(maker.draw, maker.draw.choice(WORDS["products"]), LISTING_TOKENS, count, size)
    return _workload(maker, [_LISTED] * maker.size, made[: maker.size])


def _counter(tokenizer: Any) -> Callable[[Sequence[str]], int]:
    """Return a function that counts the tokens of some texts."""
    segments = SegmentTokenizer(tokenizer)
    return lambda texts: sum(map(len, segments.encode_text(texts)))


def _skewed(maker: _Maker) -> Workload:
    """Make `wide` with 8 attributes and lengths of its own."""
    workload = _specifications(maker, ATTRIBUTES_OF_CATEGORY)
    draw = random.Random(maker.seed)

    def length() -> int:
        return maker.max_value_tokens if draw.random() < LONG_SHARE else min(SHORT_TOKENS, maker.max_value_tokens)

    return workload.with_lengths([[length() for _ in lengths] for lengths in workload.lengths])


def _wide(maker: _Maker) -> Workload:
    return _specifications(maker, NUM_WIDE_ATTRIBUTES)


def _specifications(maker: _Maker, num_attributes: int) -> Workload:
    schema = _specified("Home & Outdoor", maker.draw.sample(specification_names(), num_attributes))
    return _workload(maker, [schema] * maker.size, [_of(schema, maker) for _ in range(maker.size)])


def _categories(maker: _Maker) -> Workload:
    schemas = [
        _specified(name, maker.draw.sample(specification_names(), ATTRIBUTES_OF_CATEGORY))
        for name in category_names(NUM_CATEGORIES)
    ]
    numbers = range(min(maker.size, NUM_CATEGORIES * PRODUCTS_OF_CATEGORY))
    of_record = [schemas[number // PRODUCTS_OF_CATEGORY] for number in numbers]
    return _workload(maker, of_record, [_of(schema, maker) for schema in of_record])


def _specified(category: str, names: Sequence[str]) -> CategorySchema:
    return CategorySchema(category=category, attributes=tuple(Attribute(name=name) for name in names))


def _of(schema: CategorySchema, maker: _Maker) -> Listing:
    names = [attribute.name for attribute in schema.attributes]
    return make_specification(maker.draw, maker.draw.choice(WORDS["products"]), names)


def _workload(maker: _Maker, schemas: Sequence[CategorySchema], listings: Sequence[Listing]) -> Workload:
    """Make a workload of listings. `schemas`: of each listing."""
    records = [
        Record(f"made-{number:05d}", schema.category, listing.fields)
        for number, (schema, listing) in enumerate(zip(schemas, listings, strict=True))
    ]
    by_category = {schema.category: schema for schema in schemas}
    return Workload.of_answers(maker.tokenizer, by_category, records, [listing.answers for listing in listings])


_RECIPES: dict[str, tuple[int, Callable[[_Maker], Workload]]] = {
    "listings": (120, _listings),
    "titles": (240, _titles),
    "variants": (240, _variants),
    "skewed": (240, _skewed),
    "wide": (60, _wide),
    "categories": (NUM_CATEGORIES * PRODUCTS_OF_CATEGORY, _categories),
    SINGLE: (20, _listings),
}
"""Name -> records without a limit, how they are made."""
