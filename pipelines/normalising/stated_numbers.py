"""Numbers that a product's text states and an attribute with a unit can have: the engine chooses among them.

    1.5 kg, 18 V, 2 speeds     weight in g: 1.5     voltage in V: 18     torque in Nm: none, so the answer is null

A number whose unit converts into the attribute's is one. If there is none, so is a number without a unit that nothing
but a sign or the end of its line follows ("Weight: 500"). Of one amount in two units (16 oz, 454 g) that in the
attribute's own counts.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from hpd_core import Attribute, CategorySchema, Record
from hpd_core.text.numbers import ReadNumber, find_numbers, open_readings, read_number
from pipelines.normalising.asked import CONTEXT, Asked
from pipelines.normalising.normalise import Normaliser
from pipelines.normalising.unit_reading import NUMBER, Quantity, quantity_at

_ENDS = re.compile(r"[ \t]*(?:\Z|[\n;|,)/])")
_SAME = Fraction(1, 100)
"""Largest relative difference of one amount in two units, both rounded."""


def stated_numbers(record: Record, schema: CategorySchema) -> dict[str, tuple[str, ...]]:
    """Return the stated numbers, as plain decimals, of each single number attribute with a unit (`Record.numbers`)."""
    asked = _asked(schema)
    if not asked:
        return {}
    texts = list(record.fields.values())
    places = [place for text, each in zip(texts, find_numbers(texts), strict=True) for place in _places(text, each)]
    found: dict[str, tuple[str, ...]] = {}
    for own in dict.fromkeys(tuple(each.own.items()) for each in asked.values()):  # for most attributes the same, none
        read = [
            (quantity_at(Fraction(worth), before, after, dict(own)), format(worth, "f"), is_alone)
            for worth, before, after, is_alone in places
        ]
        found |= {name: _numbers(read, each) for name, each in asked.items() if tuple(each.own.items()) == own}
    return found


@lru_cache(maxsize=256)
def _asked(schema: CategorySchema) -> Mapping[str, Asked]:
    def is_measured(attribute: Attribute) -> bool:
        return attribute.type == "number" and attribute.unit is not None and not attribute.multiple

    return {each.name: Asked.of(each) for each in schema.attributes if is_measured(each)}


_Place = tuple[Decimal, str, str, bool]
"""A number, the text before and after it, and whether nothing follows it and it is no part of a range."""


def _places(text: str, numbers: list[ReadNumber]) -> Iterator[_Place]:
    """Yield the numbers of a text; of a range both ends; all readings of an ambiguous one."""
    for number in numbers:
        found = [(number.start, number.end, worth) for worth in number.worths]
        for match in re.finditer(NUMBER, text[number.start : number.end]) if not found else ():
            # A dash in front of the second number is no sign.
            if read := read_number(match.group().strip().lstrip("-+−")):
                span = number.start + match.start(), number.start + match.end()
                found += [(*span, Decimal(each)) for each in open_readings(read) or (read,)]
        for start, end, worth in found:
            after = text[end : end + CONTEXT]
            is_alone = bool(number.worths) and _ENDS.match(after) is not None
            yield worth, text[max(0, start - CONTEXT) : start], after, is_alone


def _numbers(read: Sequence[tuple[Quantity, str, bool]], asked: Asked) -> tuple[str, ...]:
    stated: list[tuple[bool, Fraction, str]] = []
    bare: dict[Fraction, str] = {}
    for quantity, number, is_alone in read:
        amounts = asked.amounts(quantity)
        if amounts:
            stated.append((amounts[0].digits is not None, amounts[0].number, number))
        elif amounts is not None and is_alone:
            bare.setdefault(quantity.number, number)
    kept: dict[str, None] = {}
    known: list[Fraction] = []  # ascending
    for is_converted, amount, number in sorted(stated, key=lambda each: each[0]):
        place = bisect_left(known, amount)
        near = known[max(0, place - 1) : place + 1]
        if not is_converted or not any(abs(amount - other) <= _SAME * abs(other) for other in near):
            kept.setdefault(number)
            known.insert(place, amount)
    return tuple(kept) or tuple(bare.values())


@lru_cache(maxsize=4096)
def label_numbers(attribute: Attribute, label: str) -> tuple[str, ...]:
    """Return the number of a label in another unit than the attribute's, as it is written and converted.

    900 and 0.9 for "900 MHz" where GHz are asked for; empty if it is no such number.
    """
    number = re.match(NUMBER, label)
    written = read_number(number.group().strip()) if number and attribute.type == "number" and attribute.unit else None
    found = Normaliser(attribute).normalise(label) if written and open_readings(written) is None else None
    return (written, found.norm) if written and found and found.norm and found.num is not None else ()
