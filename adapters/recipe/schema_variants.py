"""Variants of a category's schema, so that an adapter learns to read schemas. (retold_texts.py varies the texts.)

A model that has only seen ten fixed lists of free-text attributes answers any list as if it were one of those. A
variant asks the same product other questions whose answers follow from its labels:

    order       attributes in another order, some left out, some with a description (in words, or examples of values)
    name        "Brand" -> "Manufacturer"
    number      "Capacity: 12 oz" -> {type: number, unit: oz}: 12
    enum        "Gender: Women's" -> {type: enum, values: [...]}: Women's
    boolean     "Material: Leather" -> {name: Leather, type: boolean}: true; another: at times false; none: null
    list        "Color: Black/White" -> {multiple: true}: ["Black", "White"]
    invented    attributes that no label decides, stated in a text that is added to the product's (invented_texts.py)

Everything is drawn from the given generator.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from adapters.recipe.invented_texts import draw_asked, draw_language, stated_in, suitable
from adapters.recipe.specifications import Specification, topic_words
from hpd_core import Attribute, CategorySchema, Member, Unit
from pipelines.quality.scoring import fold
from pipelines.training.labelled_products import Items

UNTAUGHT = "untaught"
"""Return value of a question's `convert` if the label does not decide the answer."""

QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([^\d\s]\D{0,14})")
"""Pattern of a number with its unit, such as "12 oz"."""
_SEPARATORS = re.compile(r"\s*[/,]\s*")
_MIN_COUNT = 3  # times a value must occur to be asked for
_KEPT, _DESCRIBED, _RENAMED = 0.85, 0.5, 0.35  # shares: attributes kept, with a description, with another name
_UNDESCRIBED = 0.4  # share of the descriptions that are left out
_FALSE = 0.25  # share of the boolean questions that teach false
_SPECIFIED = 0.8  # share of the variants that ask for invented specifications, too
_SPECIFICATIONS_DESCRIBED = 0.6  # share of those that are asked with their description

_OTHER_NAMES: Mapping[str, Sequence[str]] = {
    "age range": ("Suitable ages", "For ages"),
    "benefit": ("Good for", "Effect"),
    "brand": ("Maker", "Manufacturer", "Label", "Company"),
    "brand name": ("Maker", "Manufacturer", "Trade mark"),
    "closure type": ("Fastening", "Closes with"),
    "color": ("Shade", "Color name", "Hue"),
    "country": ("Produced in", "Home country"),
    "fabric type": ("Fabric", "Cloth"),
    "flavor": ("Taste", "Flavor variety"),
    "frame color": ("Color of the frame",),
    "frame material": ("Material of the frame",),
    "gender": ("For whom", "Intended for", "Target gender"),
    "hair type": ("For which hair",),
    "item form": ("Product form", "Consistency"),
    "material": ("Made of", "Main material"),
    "mask type": ("Kind of mask",),
    "model name": ("Product line", "Product name"),
    "model number": ("Model no.", "Reference", "Model code"),
    "net content": ("Contents", "Net quantity", "Amount"),
    "pack size": ("Units per pack", "Items in pack"),
    "pattern": ("Design", "Print"),
    "roast type": ("Roast level", "Degree of roasting"),
    "scent": ("Aroma", "Smell"),
    "shoe type": ("Kind of shoe",),
    "size": ("Dimension", "Product size"),
    "specialty": ("Special feature", "Claims"),
    "sport type": ("Sport", "Discipline"),
    "tea variety": ("Kind of tea",),
    "volume": ("Fill quantity", "Content volume"),
    "weight": ("Product weight", "Mass"),
}
"""Attribute name -> synonyms, so that a model reads names instead of recognizing them."""

DESCRIPTIONS: Mapping[str, Sequence[str]] = {
    "age range": ("Ages for which it is made.",),
    "benefit": ("What it is said to do for its user.",),
    "brand": ("Who makes it.", "The name under which it is sold."),
    "brand name": ("Who makes it.", "The name under which it is sold."),
    "closure type": ("How it is closed.",),
    "color": ("As the seller names it.", "Its main colour or colours."),
    "fabric type": ("The cloth it is made of.",),
    "flavor": ("What it tastes of.",),
    "gender": ("For whom it is made.",),
    "item form": ("The form in which it comes.",),
    "material": ("What it is made of.", "Main material."),
    "model name": ("Name of the model without the brand.",),
    "model number": ("The maker's code for this model.",),
    "net content": ("How much the package holds.",),
    "pack size": ("How many come together.",),
    "pattern": ("What is printed or woven on it.",),
    "scent": ("What it smells of.",),
    "shoe type": ("What kind of shoe it is.",),
    "size": ("Its size as printed.",),
    "specialty": ("What is special about it.",),
    "sport type": ("The sport it is made for.",),
    "volume": ("How much it holds.",),
    "weight": ("How heavy it is.",),
}
"""Attribute name -> descriptions that a person might write in a schema."""


@dataclass(frozen=True, slots=True)
class VariantQuestion:
    """Attribute to ask for, and how its answer follows from the label of attribute `source`."""

    attribute: Attribute
    source: str
    convert: Callable[[Items], Items | str]


@dataclass(frozen=True, slots=True)
class Variant:
    """Variant of a category's schema.

    Attributes:
        specifications: invented specifications that are asked, too.
        unasked: other invented specifications that a text may state.
        language: language of their statements; None is English.
    """

    schema: CategorySchema
    questions: Sequence[VariantQuestion]
    specifications: Sequence[Specification]
    unasked: Sequence[Specification]
    language: str | None

    def answers(self, labels: Mapping[str, Items]) -> dict[str, Items]:
        """Return the answers to the questions for a product, without attributes that its labels do not decide."""
        found: dict[str, Items] = {}
        for question in self.questions:
            if question.source in labels:
                answer = question.convert(labels[question.source])
                if not isinstance(answer, str):
                    found[question.attribute.name] = answer
        return found


def draw_variant(schema: CategorySchema, values: Mapping[str, Counter[str]], generator: random.Random) -> Variant:
    """Draw a variant of `schema`. `values`: attribute -> counts of its values in the category."""
    questions: list[VariantQuestion] = []
    names: set[str] = set()
    attributes = [attribute for attribute in schema.attributes if generator.random() < _KEPT]
    for attribute in attributes or schema.attributes[:1]:
        counts = values.get(attribute.name, Counter())
        if attribute.path:
            # The answer is by its whole name, and what is invented may be called as its object.
            attribute = attribute.model_copy(update={"path": ()})
        question = _ask(attribute, counts, generator)
        question = _renamed(_described(question, counts, generator), schema, generator)
        if question.attribute.name not in names:
            names.add(question.attribute.name)
            questions.append(question)
    suited = [item for item in suitable(schema) if item.attribute.name not in names]
    language, free = stated_in(draw_language(generator), suited)
    specifications = draw_asked(free, generator) if generator.random() < _SPECIFIED else []
    unasked = [item for item in free if item not in specifications]
    asked = [item.attribute for item in questions]
    for item in specifications:
        is_described = generator.random() < _SPECIFICATIONS_DESCRIBED
        asked.append(item.attribute if is_described else item.attribute.model_copy(update={"description": None}))
    generator.shuffle(asked)
    return Variant(
        CategorySchema(category=schema.category, attributes=tuple(asked)), questions, specifications, unasked, language
    )


def _renamed(question: VariantQuestion, schema: CategorySchema, generator: random.Random) -> VariantQuestion:
    """Rename the question's attribute at random, unless another attribute of the catalog uses a word of the name."""
    taken = frozenset(
        word for item in schema.attributes if item.name != question.source for word in topic_words(item.name)
    )
    others = [
        name for name in _OTHER_NAMES.get(question.attribute.name.casefold(), ()) if not topic_words(name) & taken
    ]
    if not others or generator.random() >= _RENAMED:
        return question
    attribute = question.attribute.model_copy(update={"name": generator.choice(others)})
    return VariantQuestion(attribute, question.source, question.convert)


def _ask(attribute: Attribute, values: Counter[str], generator: random.Random) -> VariantQuestion:
    plain = VariantQuestion(attribute, attribute.name, lambda items: items)
    if attribute.type != "string" or attribute.multiple or not values:
        return plain
    kinds = [_as_number, _as_enum, _as_boolean, _as_list]
    kind = generator.choice([None, None, *kinds])
    question = kind(attribute, values, generator) if kind is not None else None
    return plain if question is None else question


def _described(question: VariantQuestion, values: Counter[str], generator: random.Random) -> VariantQuestion:
    """Leave out its description at random, or add one, if it has none and still has its catalog name."""
    attribute = question.attribute
    if attribute.description and generator.random() < _UNDESCRIBED:
        return replace(question, attribute=attribute.model_copy(update={"description": None}))
    if attribute.description or attribute.name != question.source or generator.random() >= _DESCRIBED:
        return question
    choices = list(DESCRIPTIONS.get(attribute.name.casefold(), ()))
    if attribute.type == "string" and values:
        choices.append(f"for example {', '.join(generator.sample(sorted(values), min(2, len(values))))}")
    if not choices:
        return question
    described = attribute.model_copy(update={"description": generator.choice(choices)})
    return VariantQuestion(described, question.source, question.convert)


def _as_number(attribute: Attribute, values: Counter[str], generator: random.Random) -> VariantQuestion | None:
    units: Counter[str] = Counter()
    for value, count in values.items():
        if match := QUANTITY.fullmatch(value):
            units[match.group(2).strip()] += count
    common = [unit for unit, count in units.items() if count >= _MIN_COUNT]
    if not common:
        return None
    unit = generator.choice(common)

    def convert(items: Items) -> Items | str:
        if items is None:
            return None
        match = QUANTITY.fullmatch(items[0])
        if match is None or match.group(2).strip() != unit:
            return UNTAUGHT
        return [json.dumps(float(match.group(1)) if "." in match.group(1) else int(match.group(1)))]

    asked = Attribute(
        name=attribute.name, type="number", unit=Unit(want=unit), max_value_tokens=attribute.max_value_tokens
    )
    return VariantQuestion(asked, attribute.name, convert)


def _as_enum(attribute: Attribute, values: Counter[str], generator: random.Random) -> VariantQuestion | None:
    common = [value for value, count in values.items() if count >= _MIN_COUNT]
    if len(common) < 3:
        return None
    chosen = generator.sample(common, min(len(common), generator.randint(3, 8)))

    def convert(items: Items) -> Items | str:
        return items if items is None or items[0] in chosen else UNTAUGHT

    members = tuple(Member(label=each) for each in chosen)
    asked = Attribute(name=attribute.name, type="enum", values=members, max_value_tokens=attribute.max_value_tokens)
    return VariantQuestion(asked, attribute.name, convert)


def _as_boolean(attribute: Attribute, values: Counter[str], generator: random.Random) -> VariantQuestion | None:
    common = [value for value, count in values.items() if count >= _MIN_COUNT and re.fullmatch(r"[^\d]{3,20}", value)]
    if not common:
        return None
    value = generator.choice(common)
    # Seldom: another value rules this one out, but a listing rarely denies what it could have stated.
    teaches_false = generator.random() < _FALSE

    def convert(items: Items) -> Items | str:
        if items is None or items[0] == value:
            return None if items is None else ["true"]
        # "Genuine Leather" is leather, too, perhaps.
        return ["false"] if teaches_false and fold(value) not in fold(items[0]) else UNTAUGHT

    return VariantQuestion(Attribute(name=value, type="boolean"), attribute.name, convert)


def _as_list(attribute: Attribute, values: Counter[str], generator: random.Random) -> VariantQuestion | None:
    def convert(items: Items) -> Items | str:
        if items is None:
            return None
        parts = [part.strip() for part in _SEPARATORS.split(items[0])]
        is_list = len(set(parts)) == len(parts) > 1 and all(len(part) > 2 for part in parts)
        return parts if is_list else list(items)

    # Only one string is copied from the text.
    asked = attribute.model_copy(update={"multiple": True, "verbatim": False, "shares_text_with": ()})
    return VariantQuestion(asked, attribute.name, convert)
