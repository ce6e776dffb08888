"""Numbers that a product's text states and an attribute with a unit can have: the engine chooses among them.

    1.5 kg, 18 V, 2 speeds     weight in g: 1.5     voltage in V: 18     torque in Nm: none, so the answer is null

A number whose unit converts into the attribute's is one. If there is none, so is a number without a unit that nothing
but a sign or the end of its line follows ("Weight: 500"). Of one amount in two units (16 oz, 454 g) that in the
attribute's own counts.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from hpd_core import Attribute, CategorySchema, Record
from hpd_core.text.numbers import ReadNumber, find_numbers, open_readings, read_number
from pipelines.normalising.asked import CONTEXT, Asked
from pipelines.normalising.normalise import Normaliser
from pipelines.normalising.unit_reading import NUMBER, Quantity, quantity_at

_ENDS = re.compile(r" *(?:\Z|[\t\r\n\u2028;|,)/+•]|\.(?!\d)| [-–—] )")
_NUMBER = re.compile(NUMBER)
_SAME = Fraction(1, 100)
"""Largest relative difference of one amount in two units, both rounded."""


def stated_numbers(record: Record, schema: CategorySchema) -> dict[str, tuple[str, ...]]:
    """Return the stated numbers, as plain decimals, of each single number attribute with a unit (`Record.numbers`)."""
    asked = _asked(schema)
    if not asked:
        return {}
    found_in = zip(record.fields.items(), find_numbers(list(record.fields.values())), strict=True)
    places = [place for (name, text), numbers in found_in for place in _places(name, text, numbers)]
    found: dict[str, tuple[str, ...]] = {}
    for own in {tuple(each.own.items()): each.own for each in asked.values()}.values():  # for most the same, none
        read = [
            (quantity_at(Fraction(worth), before, after, own), format(worth, "f"), is_alone)
            for worth, before, after, is_alone in places
        ]
        found |= {name: _numbers(read, each) for name, each in asked.items() if each.own == own}
    return found


@lru_cache(maxsize=256)
def _asked(schema: CategorySchema) -> Mapping[str, Asked]:
    def is_measured(attribute: Attribute) -> bool:
        return attribute.type == "number" and attribute.unit is not None and not attribute.multiple

    return {each.name: Asked.of(each) for each in schema.attributes if is_measured(each)}


_Place = tuple[Decimal, str, str, bool]
"""A number, the text before and after it, and whether nothing follows it and it is no part of a range."""


def _places(name: str, text: str, numbers: list[ReadNumber]) -> Iterator[_Place]:
    """Yield the numbers of a field; of a range both ends; all readings of an ambiguous one."""
    for number in numbers:
        found = [(number.start, number.end, worth) for worth in number.worths]
        for start, end, worth in found or _ends_of_range(text, number):
            label = f"{name}: " if start < CONTEXT else ""
            after = text[end : end + CONTEXT]
            is_alone = bool(number.worths) and _ENDS.match(after) is not None
            yield worth, (label + text[max(0, start - CONTEXT) : start])[-CONTEXT:], after, is_alone


def _ends_of_range(text: str, number: ReadNumber) -> Iterator[tuple[int, int, Decimal]]:
    for match in _NUMBER.finditer(text, number.start, number.end):
        before, written = text[number.start : match.start()][-1:], match.group().strip()
        written = written.lstrip(".") if before == "." else written  # 10..40
        unsigned = written.lstrip("-+−")
        # A dash may be a sign after a space ("-18 to -22"), and is none after a number or its unit.
        written = unsigned if before.isalnum() or before in tuple("\"'°)%") else written
        for form in dict.fromkeys((written, unsigned) if before.isspace() else (written,)):
            if read := read_number(form):
                yield from ((*match.span(), Decimal(each)) for each in open_readings(read) or (read,))


def _numbers(read: Sequence[tuple[Quantity, str, bool]], asked: Asked) -> tuple[str, ...]:
    stated: list[tuple[bool, Fraction, str, str]] = []
    bare: dict[Fraction, str] = {}
    for quantity, number, is_alone in read:
        amounts = asked.amounts(quantity)
        if amounts:
            stated.append((amounts[0].digits is not None, amounts[0].number, number, quantity.units[0].unit))
        elif amounts is not None and is_alone:
            bare.setdefault(quantity.number, number)
    kept: dict[str, None] = {}
    known: dict[str, list[Fraction]] = {}  # by the unit they are written in, ascending
    for is_converted, amount, number, unit in sorted(stated, key=lambda each: each[0]):
        others = (_nearest(each, amount) for name, each in known.items() if name != unit)
        if not is_converted or not any(abs(amount - other) <= _SAME * abs(other) for near in others for other in near):
            kept.setdefault(number)
            insort(known.setdefault(unit, []), amount)
    return tuple(kept) or tuple(bare.values())


def _nearest(ascending: list[Fraction], amount: Fraction) -> list[Fraction]:
    place = bisect_left(ascending, amount)
    return ascending[max(0, place - 1) : place + 1]


@lru_cache(maxsize=4096)
def label_numbers(attribute: Attribute, label: str) -> tuple[str, ...]:
    """Return the number of a label in another unit than the attribute's, as it is written and converted.

    900 and 0.9 for "900 MHz" where GHz are asked for; empty if it is no such number.
    """
    number = _NUMBER.match(label)
    written = read_number(number.group().strip()) if number and attribute.type == "number" and attribute.unit else None
    found = Normaliser(attribute).normalise(label) if written and open_readings(written) is None else None
    return (written, found.norm) if written and found and found.norm and found.num is not None else ()
