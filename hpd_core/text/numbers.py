"""Numbers as they are written in product texts, and their values.

    1,500 g    1500        ½, 1/2     0.5          2.5e6, 2.5×10^6   2500000
    1.250,5    1250.5      1 1/2      1.5          −20 °C            -20
    3 million  3000000     1万2000    12000        minus 18 °C       -18
    .33 l      0.33        4 x 1.5    4 and 1.5    10-12, 12:30, 1.2.3, 12.05.2024, +49 30 1234567: none

A number is never found inside another, in a name (E27, WH-1000XM4) or in a text that only looks like one. A lone comma
or dot before three digits may separate thousands or decimals: "1,500" is fifteen hundred or one and a half. The
product's whole text decides, in this order:

    its numbers     that are unambiguous: 1,250.50 or, with a unit, 1.5 kg. Without one, "0.9" may be a version,
                    "09.00" a time, "36,38" two sizes. Groups with spaces or apostrophes count as evidence, too: 1'200
    its language    text/separators.py
    the unit        thousands of grams, mAh or dollars are usual. So are thousands of kilograms and inches, but
                    thousandths of them, too: after a dot the unit alone decides nothing. Thousandths of a mAh are not
                    used

If these contradict each other, or say nothing, the number keeps all its readings: it is ambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property, lru_cache
from itertools import takewhile

from hpd_core.text.number_atoms import MAX_DIGITS, fits, fraction
from hpd_core.text.number_forms import MAX_WORD, Whole, scan, to_ascii
from hpd_core.text.separators import SPACES, decimal_signs, groups_with_spaces, unit_size

_PLAIN = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?")
_LONE_SEPARATOR = re.compile(r"[^\d.,]*\d*[.,]\d+[^\d]*")
_PADDED = re.compile(r"[+-]?0\d")
_OPEN = re.compile(r"(-?)([1-9]\d{0,2})[.,](\d{3})")


@dataclass(frozen=True, slots=True)
class ReadNumber:
    """Number at [start, end) of a text, including all its parts and its sign.

    Attributes:
        worths: possible values; several if it is ambiguous, none if it is not a single number (a range, a date).
    """

    start: int
    end: int
    worths: tuple[Decimal, ...]


def find_numbers(texts: Sequence[str]) -> list[list[ReadNumber]]:
    """Return the numbers of each of a product's texts, in order, without overlaps."""
    return [list(found) for found in _find(tuple(texts))]


@lru_cache(maxsize=64)
def _find(texts: tuple[str, ...]) -> tuple[tuple[ReadNumber, ...], ...]:
    """Find the numbers; cached, because several attributes of one product use the same texts."""
    scans = [list(scan(text)) for text in texts]
    evidence = _Evidence(texts, scans)
    return tuple(
        tuple(
            ReadNumber(each.start, each.end, tuple(dict.fromkeys(map(Decimal, each.readings))))
            for each in (evidence.decide(text, whole) if whole.open else whole for whole in wholes)
        )
        for text, wholes in zip(texts, scans, strict=True)
    )


def read_number(text: str) -> str | None:
    """Return one number as a plain decimal: "1,250.5" as "1250.5", "½" as "0.5", "1.50" as "1.50".

    "1,500" and "1.500" are returned as they are: `settle` finds their value. Return None if it is not one number.
    """
    if len(text) > MAX_DIGITS:
        return None
    if _PLAIN.fullmatch(text):
        return text if fits(Decimal(text)) else None
    text = to_ascii(text.strip())
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text.removeprefix("+"))
    found = next(scan(text), None) if text[:1] not in ("-", "+") else None
    if found is None or (found.start, found.end) != (0, len(text)) or not found.readings:
        return None
    if found.open in (".", ","):
        # "1,500 million" has no plain form before its value is settled.
        return sign + text if _OPEN.fullmatch(text) else None
    # If one number is expected, "12 500" is not two, and "3/2" is not an alternative.
    parts = re.split("[/⁄∕]", text)
    if len(found.readings) > 1 and len(parts) == 2:
        worth = fraction(parts[0].strip(), parts[1].strip(), is_proper=False)
        return None if worth is None else sign + worth
    return sign + found.readings[0] if len(found.readings) == 1 or found.open else None


def open_readings(item: str) -> tuple[str, str] | None:
    """Return both readings of a number that `read_number` left open, as a group and as decimals; None if it is not."""
    match = _OPEN.fullmatch(item)
    if match is None:
        return None
    sign, whole, rest = match.groups()
    return f"{sign}{whole}{rest}", f"{sign}{whole}.{rest}"


def is_undecided(item: str) -> bool:
    """Return whether a number is still open after `settle`: only open ones keep a comma."""
    return "," in item


def settle(item: str, texts: Sequence[str]) -> str | None:
    """Return the value, in the product's texts, of a number that `read_number` left open, as a plain decimal.

    Return None if the texts have both readings, or neither, or an ambiguous number with one of them.
    """
    readings = open_readings(item)
    if readings is None:
        return item
    written: set[str] = set()
    stated: set[str] = set()
    for text, numbers in zip(texts, find_numbers(texts), strict=True):
        for number in numbers:
            for reading in readings:
                if Decimal(reading) in number.worths:
                    if len(number.worths) > 1:
                        return None
                    stated.add(reading)
                    if text[number.start : number.end] == item:
                        written.add(reading)
    if len(written or stated) != 1:
        return None
    return (written or stated).pop()


class _Evidence:
    """Evidence in a product's texts on their ambiguous numbers."""

    def __init__(self, texts: Sequence[str], scans: Sequence[Sequence[Whole]]) -> None:
        self._texts, self._scans = texts, scans

    @cached_property
    def _decimals(self) -> frozenset[str]:
        """Decimal signs of the unambiguous numbers."""
        return frozenset(
            whole.decimal
            for text, wholes in zip(self._texts, self._scans, strict=True)
            for whole in wholes
            if whole.decimal is not None and self._is_decisive(text, whole)
        )

    @staticmethod
    def _is_decisive(text: str, whole: Whole) -> bool:
        """Return whether it has groups, too, or a unit: versions ("0.9"), times and lists ("36,38") have neither."""
        shown = to_ascii(text[whole.start : whole.end])
        if whole.decimal is None or whole.decimal not in shown or _LONE_SEPARATOR.fullmatch(shown) is None:
            return True
        is_padded = _PADDED.match(shown) is not None
        return not is_padded and unit_size(text, whole.start, whole.end) is not None

    @cached_property
    def _language_decimals(self) -> frozenset[str]:
        return decimal_signs(self._texts)

    @cached_property
    def _has_spaced_groups(self) -> bool:
        return groups_with_spaces(self._texts)

    @cached_property
    def _has_other_groups(self) -> bool:
        """Whether the texts write thousands with spaces or apostrophes."""
        return any(
            re.search(rf"\d[{SPACES}'’]\d{{3}}", to_ascii(text[whole.start : whole.end]))
            for text, wholes in zip(self._texts, self._scans, strict=True)
            for whole in wholes
            if whole.readings and whole.open is None
        )

    def decide(self, text: str, whole: Whole) -> Whole:
        """Return the number with one reading if the texts decide which; else unchanged."""
        if whole.open == "list":
            first, step = (0 if self._is_no_list(text, whole) else None), 3
        else:
            is_group = self._is_spaced(text, whole) if whole.open == " " else self._is_group(text, whole)
            first, step = (None if is_group is None else int(not is_group)), (3 if whole.open == " " else 2)
        if first is None:
            return whole
        # Each reading may be there twice, for a dash that may be a sign.
        return replace(whole, readings=whole.readings[first::step], open=None)

    def _is_no_list(self, text: str, whole: Whole) -> bool:
        """Return whether "36,38" is one number: it has a unit, or is unlike two sizes in a text of decimal commas."""
        if unit_size(text, whole.start, whole.end) is not None:
            return True
        _, left, right = whole.readings[:3]
        is_alike = 1 < len(left.lstrip("-")) == len(right.lstrip("-"))
        return not is_alike and (self._decimals or self._language_decimals) == {","}

    def _is_group(self, text: str, whole: Whole) -> bool | None:
        if len(self._decimals) > 1:
            return None
        size = unit_size(text, whole.start, whole.end)
        is_small = size in ("small", "whole")
        if self._decimals or self._has_other_groups:
            is_group = bool(self._decimals) and whole.open not in self._decimals
            return None if is_small and not is_group else is_group
        if size == "whole":
            return True
        if len(self._language_decimals) == 1:
            is_group = whole.open not in self._language_decimals
        else:
            # A lone comma in front of kilograms, too, unless it may be a language of decimal commas.
            has_thousands = is_small or (size == "large" and whole.open == "," and not self._language_decimals)
            return True if has_thousands else None
        return None if size is not None and not is_group else is_group

    def _is_spaced(self, text: str, whole: Whole) -> bool | None:
        """Return True for "12 500" in a language that groups with spaces, but not after a name ("iPhone 13 128 Go")."""
        before = text[max(0, whole.start - MAX_WORD) : whole.start].rstrip()
        is_name = any(map(str.isupper, takewhile(str.isalnum, reversed(before))))
        return True if self._has_spaced_groups and not is_name else None
