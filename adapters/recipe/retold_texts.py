"""Products rewritten in another form, so that an adapter learns more than short titles (see also
invented_texts.py).

    numbers     "Chips 12 oz", Weight "12 oz"  ->  "Chips 7 oz", Weight "7 oz"; only a few units, because 3M and
                7 For All Mankind are not quantities. Only if every label stands in the text, so that no label is
                inferred from the number
    details     some of the labelled values listed in a second field; the title keeps them or not
    cut         the title cut in two fields, between two labelled values

The labels stay true of the text. Everything is drawn from the given generator.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

from adapters.recipe.schema_variants import QUANTITY
from hpd_core import CategorySchema, Record
from pipelines.training.labelled_products import Items
from pipelines.training.swapped_values import items_of, places_of, stands_alone

_RENUMBERED, _DETAILED, _MOVED, _CUT = 0.5, 0.4, 0.5, 0.5
"""Shares: quantities that change; texts with details; listed values that leave the title; other texts that are cut."""
_FIELD_NAMES = (("title", "description"), ("title", "bullets"), ("name", "details"), ("title", "features"))
_UNITS = re.compile(
    r"(?:fl\.? ?)?oz|ounces?|lbs?|pounds?|k?g|mg|grams?|ml|lit(?:er|re)s?|gallons?|count|ct|packs?|pcs|pieces|bags|"
    r"capsules|tablets|softgels|gummies|loads|inch(?:es)?|[cm]m|feet|ft|watts?|volts?|mah|hours?|minutes?|months?|years?",
    re.IGNORECASE,
)
_NAMED_LINES = ("{name}: {value}", "{name} - {value}", "{name} {value}", "{name}: {value}.")
_LINES = (*_NAMED_LINES, "{value}")
_JOINTS = ("\n", "; ", " | ", ", ")


def retell(
    record: Record, schema: CategorySchema, labels: Mapping[str, Items], generator: random.Random
) -> tuple[Record, dict[str, Items]]:
    """Rewrite the record. Return it with its labels; a record of several fields is returned unchanged."""
    told = dict(labels)
    if len(record.fields) != 1:
        return record, told
    text = next(iter(record.fields.values())).strip()
    free = frozenset(attribute.name for attribute in schema.attributes if attribute.type == "string")
    if all(places_of(item, text) for item in items_of(told)):
        for name in filter(free.__contains__, labels):
            text = _renumber(text, told, name, generator)
    chance = generator.random()
    if chance < _DETAILED:
        fields = _detail(text, told, free, generator)
    elif chance < _DETAILED + (1 - _DETAILED) * _CUT:
        fields = _cut(text, told, generator)
    else:
        fields = {next(iter(record.fields)): text}
    return Record(record.id, record.category, fields), told


def _renumber(text: str, labels: dict[str, Items], name: str, generator: random.Random) -> str:
    """Replace the number in the quantity of attribute `name` at random, in text and label. Return the text."""
    items = labels[name]
    match = QUANTITY.fullmatch(items[0]) if items and len(items) == 1 else None
    if match is None or not _UNITS.fullmatch(match.group(2).strip()) or generator.random() >= _RENUMBERED:
        return text
    value = match.group()
    if not stands_alone(value, text, items_of(labels, name)):
        return text
    changed = _other_number(match.group(1), generator) + value[match.end(1) :]
    [(first, last)] = places_of(value, text)
    labels[name] = [changed]
    return text[:first] + changed + text[last:]


def _other_number(number: str, generator: random.Random) -> str:
    """Draw a number from 1 to four times `number` (at least 9), with as many decimals."""
    decimals = len(number.partition(".")[2])
    largest = max(9.0, 4 * float(number))
    return f"{generator.uniform(1, largest):.{decimals}f}"


def _detail(text: str, labels: Mapping[str, Items], free: frozenset[str], generator: random.Random) -> dict[str, str]:
    """List some of the values in a second field. Only strings (`free`) may be listed without their attribute's name."""
    stated = [name for name, items in labels.items() if items]
    if not stated:
        return {"title": text}
    chosen = generator.sample(stated, generator.randint(1, len(stated)))
    line = generator.choice(_LINES if free.issuperset(chosen) else _NAMED_LINES)
    lines = []
    for name in chosen:
        items = labels[name] or ()
        lines.append(line.format(name=name, value=", ".join(items)))
        is_movable = name in free and len(items) == 1 and generator.random() < _MOVED
        if is_movable and stands_alone(items[0], text, items_of(labels, name)):
            [(first, last)] = places_of(items[0], text)
            shorter = f"{text[:first].rstrip()} {text[last:].lstrip()}".strip()
            text = shorter if shorter.strip(" ,-|/") else text
    title, details = generator.choice(_FIELD_NAMES)
    return {title: text, details: generator.choice(_JOINTS).join(lines)}


def _cut(text: str, labels: Mapping[str, Items], generator: random.Random) -> dict[str, str]:
    """Cut the text into two fields, but never inside a labelled value."""
    spans = [match.span() for item in items_of(labels) for match in re.finditer(re.escape(item), text)]
    places = [match.start() for match in re.finditer(r"\s", text)]
    places = [place for place in places if not any(start <= place < stop for start, stop in spans)]
    if not places:
        return {"title": text}
    place = generator.choice(places)
    first, second = generator.choice(_FIELD_NAMES)
    return {first: text[:place], second: text[place + 1 :]}
