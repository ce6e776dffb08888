"""Products with swapped values, so that a model learns where a value stands instead of memorizing values.

    "Ellie Shoes Women's 8400, Red Patent"    Brand "Ellie Shoes", Model name "8400"
    "Crocs Women's Jayna, Red Patent"         Brand "Crocs", Model name "Jayna"

A value is replaced by one that another product of its category has for the same attribute ("mention replacement" of
Dai and Adel, 2020, arXiv 2010.11683). The labels stay true of the text. Everything is drawn from the given generator.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence

from hpd_core import CategorySchema, Record
from pipelines.training.labelled_products import Items, LabelledProduct

_SWAPPED = 0.5  # share of the values of a product that are swapped


def swappable_values(products: Iterable[LabelledProduct]) -> dict[str, list[str]]:
    """Return attribute -> values of a category's products that stand in their texts, one entry per product."""
    found: dict[str, list[str]] = {}
    for product in products:
        text = "\n".join(product.record.fields.values())
        for name in _single_strings(product.schema, product.answers):
            (value,) = product.answers[name] or ()
            if places_of(value, text):
                found.setdefault(name, []).append(value)
    return found


def swap_values(
    record: Record,
    schema: CategorySchema,
    labels: Mapping[str, Items],
    values: Mapping[str, Sequence[str]],
    generator: random.Random,
) -> tuple[Record, dict[str, Items]]:
    """Swap some of the record's values. Return it with its labels, both unchanged if the result would be ambiguous.

    Only a value that stands in one place of the record, without overlapping another value, is swapped.

    Args:
        values: `swappable_values` of its category.
    """
    told, fields = dict(labels), dict(record.fields)
    stated = _stated(labels, fields)
    swapped: list[str] = []
    for name in _single_strings(schema, labels):
        (value,) = labels[name] or ()
        if name not in values or generator.random() >= _SWAPPED:
            continue
        other = generator.choice(values[name])
        if other == value or not stands_alone(value, "\n".join(fields.values()), items_of(told, name)):
            continue
        places = [(key, span) for key, text in fields.items() for span in places_of(value, text)]
        if not places:
            continue  # it goes from one field into the next
        ((field, (first, last)),) = places
        fields[field] = fields[field][:first] + other + fields[field][last:]
        told[name] = [other]
        swapped.append(other)
    text = "\n".join(fields.values())
    is_clear = all(len(places_of(value, text)) == 1 for value in swapped)
    if not swapped or not is_clear or not stated <= _stated(told, fields):
        return record, dict(labels)
    return Record(record.id, record.category, fields), told


def _single_strings(schema: CategorySchema, labels: Mapping[str, Items]) -> list[str]:
    """Return the names of single-string attributes with one value, in the schema's order."""
    names = [each.name for each in schema.attributes if each.type == "string" and not each.multiple]
    return [name for name in names if len(labels.get(name) or ()) == 1]


def _stated(labels: Mapping[str, Items], fields: Mapping[str, str]) -> set[str]:
    """Return the attributes whose values all stand in the text."""
    text = "\n".join(fields.values())
    return {name for name, items in labels.items() if items and all(item in text for item in items)}


def places_of(value: str, text: str) -> list[tuple[int, int]]:
    """Return the spans (start, end) of `value` in `text` as whole words."""
    return [match.span() for match in re.finditer(rf"(?<![\w.]){re.escape(value)}(?!\w)", text)]


def stands_alone(value: str, text: str, others: Sequence[str]) -> bool:
    """Return whether `value` stands in `text` exactly once and overlaps none of `others` there."""
    places = places_of(value, text)
    if len(places) != 1 or text.count(value) != 1:
        return False
    first, last = places[0]
    spans = [match.span() for other in others if other for match in re.finditer(re.escape(other), text)]
    return all(stop <= first or start >= last for start, stop in spans)


def items_of(labels: Mapping[str, Items], but: str | None = None) -> list[str]:
    """Return all items of the labels, except those of attribute `but`."""
    return [item for name, items in labels.items() if name != but for item in items or ()]
