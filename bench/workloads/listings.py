"""Made-up listings in the manner of a marketplace, with the answers that stand in them.

title        Tarnhold Drift Folding Kettle for Camping, Sage Green - Pack of 2
bullets      MADE TO LAST - ripstop nylon ...
description  Made in Portugal. We started in a garage ...
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.workloads import listing_words as words
from bench.workloads.workload import Answer
from hpd_core import Attribute, Member, Unit
from hpd_core.text.template import render_document

LISTING_ATTRIBUTES = (
    Attribute(name="Brand", description="as printed on the product"),
    Attribute(name="Series"),
    Attribute(name="Product type"),
    Attribute(name="Colour"),
    Attribute(name="Material", description="what it is mainly made of"),
    Attribute(name="Country of origin"),
    Attribute(name="Weight", type="number", unit=Unit(want="g")),
    Attribute(name="Length", type="number", unit=Unit(want="cm")),
    Attribute(name="Width", type="number", unit=Unit(want="cm")),
    Attribute(name="Height", type="number", unit=Unit(want="cm")),
    Attribute(name="Pack count", type="number"),
    Attribute(name="Features", multiple=True),
    Attribute(name="Care", description="how it is cleaned"),
    Attribute(name="Age group", type="enum", values=tuple(Member(label=age) for age in words.AGES)),
    Attribute(name="Power source", type="enum", values=tuple(Member(label=power) for power in words.POWER)),
    Attribute(name="Indoor use only", type="boolean"),
)

TITLE_ATTRIBUTES = tuple(
    attribute
    for attribute in LISTING_ATTRIBUTES
    if attribute.name in ("Brand", "Series", "Product type", "Colour", "Material", "Pack count")
)

_COLOUR, _PACK_COUNT = (
    next(number for number, attribute in enumerate(LISTING_ATTRIBUTES) if attribute.name == name)
    for name in ("Colour", "Pack count")
)

_STATED = 0.7
"""Share of what a listing may leave out that it says."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A product's text and its answers, attribute by attribute."""

    fields: Mapping[str, str]
    answers: list[Answer]


def make_listing(draw: random.Random, product: str, num_tokens: int, count: Callable[[Sequence[str]], int]) -> Listing:
    """A long listing with LISTING_ATTRIBUTES, of about `num_tokens`.

    Args:
        count: tokens of some texts.
    """

    def maybe(choices: Sequence[str]) -> str | None:
        return draw.choice(choices) if draw.random() < _STATED else None

    brand, series, colour = (
        draw.choice(words.BRANDS),
        draw.choice(words.SERIES),
        maybe(words.COLOURS),
    )
    adjective, place, pack = (
        draw.choice(words.ADJECTIVES),
        draw.choice(words.PLACES),
        maybe(words.PACKS[1:]),
    )
    material, care, country = maybe(words.MATERIALS), maybe(words.CARE), maybe(words.COUNTRIES)
    age, power, indoor = maybe(words.AGES), maybe(words.POWER), maybe(("true", "false"))
    weight, *sides = (str(draw.randint(low, high)) for low, high in ((80, 4000), (10, 120), (5, 80), (2, 60)))
    is_measured = draw.random() < _STATED
    features = draw.sample(words.FEATURES, draw.randint(0, 4))
    title = f"{brand} {series} {adjective} {product} for {place}"
    title += (f", {colour}" if colour else "") + (f" - Pack of {pack}" if pack else "")
    bullets = [
        f"MADE TO LAST - {material}, stitched twice" if material else "MADE TO LAST - built for years",
        f"Size & weight: {' x '.join(sides)} cm, {weight} g" if is_measured else "Comes ready to use, no assembly",
        f"【What you get】 {', '.join(features)}" if features else "【Simple】 nothing that you do not need",
        f"✓ EASY CARE - {care}" if care else "✓ 30 DAYS to try it at home",
    ]
    description = [
        *([f"Made in {country}."] if country else []),
        *([f"For {age}."] if age else []),
        *([f"Power: {power}."] if power else []),
        *([] if indoor is None else ["For indoor use only." if indoor == "true" else "Indoors or out."]),
    ]
    fields = {"title": title, "bullets": "\n".join(bullets), "description": " ".join(description)}
    fields["description"] += _filler(draw, num_tokens - count([render_document(fields)]), count)
    stated = [brand, series, product, colour, material, country]
    stated += [weight, *sides] if is_measured else [None] * 4
    single: list[Answer] = [None if item is None else [item] for item in [*stated, pack]]
    rest: list[Answer] = [None if item is None else [item] for item in (care, age, power, indoor)]
    return Listing(fields, [*single, features or None, *rest])


def make_variants(
    draw: random.Random, product: str, num_tokens: int, count: Callable[[Sequence[str]], int], size: int
) -> list[Listing]:
    """A listing in several colours and packs, 50 at most, which have its bullets and description in front.

    What differs is in the title, or in a line of its own below it. Other arguments as `make_listing` has them.
    """
    one = make_listing(draw, product, num_tokens, count)
    title = one.fields["title"].partition(",")[0].partition(" - Pack of ")[0]
    has_line = draw.random() < 0.5
    common = {name: one.fields[name] for name in ("bullets", "description")}
    variants = []
    for colour, pack in draw.sample(list(itertools.product(words.COLOURS, words.PACKS)), size):
        if has_line:
            fields = common | {"title": title, "variant": f"Colour: {colour}" + (f", pack of {pack}" if pack else "")}
        else:
            fields = common | {"title": f"{title}, {colour}" + (f" - Pack of {pack}" if pack else "")}
        answers = list(one.answers)
        answers[_COLOUR], answers[_PACK_COUNT] = [colour], [pack] if pack else None
        variants.append(Listing(fields, answers))
    return variants


def make_title(draw: random.Random, product: str) -> Listing:
    """A title alone, of 20 to 30 tokens, with TITLE_ATTRIBUTES."""
    brand, series = draw.choice(words.BRANDS), draw.choice(words.SERIES)
    colour, material, pack = (
        draw.choice(choices) if draw.random() < _STATED else None
        for choices in (words.COLOURS, words.MATERIALS, words.PACKS[1:])
    )
    title = f"{brand} {series} {draw.choice(words.ADJECTIVES)} {product} for {draw.choice(words.PLACES)}"
    title += "".join(f", {word}" for word in (material, colour) if word) + (f" - Pack of {pack}" if pack else "")
    answers = (brand, series, product, colour, material, pack)
    return Listing({"title": title}, [None if answer is None else [answer] for answer in answers])


def make_specification(draw: random.Random, product: str, names: Sequence[str]) -> Listing:
    """A title and a table with most of the attributes of these names (of `specification_names`)."""
    values = [draw.choice(words.ASPECTS[name.split()[1]]) if draw.random() < _STATED else None for name in names]
    title = f"{draw.choice(words.BRANDS)} {draw.choice(words.SERIES)} {product}, {draw.choice(words.COLOURS)}"
    table = [f"{name}: {value}" for name, value in zip(names, values, strict=True) if value is not None]
    return Listing(
        {"title": title, "specifications": "\n".join(table)}, [None if value is None else [value] for value in values]
    )


def specification_names() -> list[str]:
    """Every attribute that a specification may have."""
    return [f"{part} {aspect}" for part in words.PARTS for aspect in words.ASPECTS]


def category_names(count: int) -> list[str]:
    """Names of categories, all different.

    Raises:
        ValueError: there are not so many.
    """
    names = [f"{adjective} {product}s" for product in words.PRODUCTS for adjective in words.ADJECTIVES]
    if count > len(names):
        raise ValueError(f"{count} categories are asked for, there are {len(names)} names")
    return names[:count]


def _filler(draw: random.Random, num_tokens: int, count: Callable[[Sequence[str]], int]) -> str:
    """Sentences that answer nothing, of about so many tokens."""
    text, total = "", 0
    while True:
        for sentence in draw.sample(words.SENTENCES, len(words.SENTENCES)):
            size = count([f" {sentence}"])
            if total + size / 2 > num_tokens:
                return text
            text, total = f"{text} {sentence}", total + size
