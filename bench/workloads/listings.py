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
from pathlib import Path

import yaml

from bench.workloads.workload import Answer
from hpd_core import Attribute, Member, Unit
from hpd_core.text.template import render_document

WORDS: Mapping[str, list[str]] = yaml.safe_load(Path(__file__).with_name("listing_words.yaml").read_text("utf-8"))

_ASPECTS = {
    "colour": WORDS["colours"],
    "material": WORDS["materials"],
    "origin": WORDS["countries"],
    "finish": WORDS["finishes"],
}
"""Questions about a part, and their answers."""

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
    Attribute(name="Age group", type="enum", values=tuple(Member(label=age) for age in WORDS["ages"])),
    Attribute(name="Power source", type="enum", values=tuple(Member(label=power) for power in WORDS["power"])),
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
    """Make a long listing with LISTING_ATTRIBUTES, of about `num_tokens`.

    Args:
        count: tokens of some texts.
    """

    def maybe(choices: Sequence[str]) -> str | None:
        return draw.choice(choices) if draw.random() < _STATED else None

    brand, series, colour = draw.choice(WORDS["brands"]), draw.choice(WORDS["series"]), maybe(WORDS["colours"])
    adjective, place, pack = draw.choice(WORDS["adjectives"]), draw.choice(WORDS["places"]), maybe(WORDS["packs"][1:])
    material, care, country = maybe(WORDS["materials"]), maybe(WORDS["care"]), maybe(WORDS["countries"])
    age, power, indoor = maybe(WORDS["ages"]), maybe(WORDS["power"]), maybe(("true", "false"))
    weight, *sides = (str(draw.randint(low, high)) for low, high in ((80, 4000), (10, 120), (5, 80), (2, 60)))
    is_measured = draw.random() < _STATED
    features = draw.sample(WORDS["features"], draw.randint(0, 4))
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
    """Make a listing in several colours and packs, 50 at most, with the same bullets and description in front.

    What differs is in the title, or in a line of its own below it. Other arguments as `make_listing` has them.
    """
    one = make_listing(draw, product, num_tokens, count)
    title = one.fields["title"].partition(",")[0].partition(" - Pack of ")[0]
    has_line = draw.random() < 0.5
    common = {name: one.fields[name] for name in ("bullets", "description")}
    variants = []
    for colour, pack in draw.sample(list(itertools.product(WORDS["colours"], WORDS["packs"])), size):
        if has_line:
            fields = common | {"title": title, "variant": f"Colour: {colour}" + (f", pack of {pack}" if pack else "")}
        else:
            fields = common | {"title": f"{title}, {colour}" + (f" - Pack of {pack}" if pack else "")}
        answers = list(one.answers)
        answers[_COLOUR], answers[_PACK_COUNT] = [colour], [pack] if pack else None
        variants.append(Listing(fields, answers))
    return variants


def make_title(draw: random.Random, product: str) -> Listing:
    """Make a title alone, of 20 to 30 tokens, with TITLE_ATTRIBUTES."""
    brand, series = draw.choice(WORDS["brands"]), draw.choice(WORDS["series"])
    colour, material, pack = (
        draw.choice(choices) if draw.random() < _STATED else None
        for choices in (WORDS["colours"], WORDS["materials"], WORDS["packs"][1:])
    )
    title = f"{brand} {series} {draw.choice(WORDS['adjectives'])} {product} for {draw.choice(WORDS['places'])}"
    title += "".join(f", {word}" for word in (material, colour) if word) + (f" - Pack of {pack}" if pack else "")
    answers = (brand, series, product, colour, material, pack)
    return Listing({"title": title}, [None if answer is None else [answer] for answer in answers])


def make_specification(draw: random.Random, product: str, names: Sequence[str]) -> Listing:
    """Make a title and a table with most of the attributes of these names (`specification_names`)."""
    values = [draw.choice(_ASPECTS[name.split()[1]]) if draw.random() < _STATED else None for name in names]
    title = f"{draw.choice(WORDS['brands'])} {draw.choice(WORDS['series'])} {product}, {draw.choice(WORDS['colours'])}"
    table = [f"{name}: {value}" for name, value in zip(names, values, strict=True) if value is not None]
    return Listing(
        {"title": title, "specifications": "\n".join(table)}, [None if value is None else [value] for value in values]
    )


def specification_names() -> list[str]:
    """Return every attribute that a specification may have."""
    return [f"{part} {aspect}" for part in WORDS["parts"] for aspect in _ASPECTS]


def category_names(count: int) -> list[str]:
    """Return at most 1,000 names of categories, all different."""
    return [f"{adjective} {product}s" for product in WORDS["products"] for adjective in WORDS["adjectives"]][:count]


def _filler(draw: random.Random, num_tokens: int, count: Callable[[Sequence[str]], int]) -> str:
    """Return sentences that answer nothing, of about so many tokens."""
    text, total = "", 0
    while True:
        for sentence in draw.sample(WORDS["sentences"], len(WORDS["sentences"])):
            size = count([f" {sentence}"])
            if total + size / 2 > num_tokens:
                return text
            text, total = f"{text} {sentence}", total + size
