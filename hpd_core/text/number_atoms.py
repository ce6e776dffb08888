"""Values of one atom of a number: digits with separators, with an exponent, or a sign such as ½.

The text around it is not looked at (number_forms.py does that): if separators alone are ambiguous, there are several
readings.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from hpd_core.text.separators import SPACES

_MAX_EXPONENT = 308  # of a double, in which every table and JSON reader can hold a number
_SURELY_FITS = 300
MAX_DIGITS = 400
_YEARS = range(1900, 2100)
DENOMINATORS = (2, 3, 4, 5, 6, 8, 16, 32, 64)
"""Denominators in measures and recipes: "24/7" and "220/240 V" are not fractions."""

VULGAR_FRACTIONS = "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"


def readings_of(word: str) -> tuple[tuple[str, ...], str | None, str | None]:
    """Return an atom's readings as plain decimals, what is open, and the decimal sign it shows (see `Whole`)."""
    if word.isdecimal():
        return ((without_zeros(word),) if len(word) <= _SURELY_FITS or fits(Decimal(word)) else ()), None, None
    if word in VULGAR_FRACTIONS:
        return (plain_decimal(vulgar_fraction(word)),), None, None
    power: int | None = None
    match = re.search(rf"(?:[eE]| ?[x×*·⋅] ?10\^?|^10\^?)([+-]?\d+|[⁺⁻]?[{SUPERSCRIPTS}]+)\Z", word)
    if match is not None and (word[match.start()] in "eE xX×*·⋅" or not word.isdecimal()):
        power = int(unicodedata.normalize("NFKC", match.group(1)).replace("−", "-"))
        word = word[: match.start()] or "1"
    readings, open_, decimal = _digits(word)
    if power is not None:
        if abs(power) > _MAX_EXPONENT:
            return (), None, None
        # No group stands before an exponent, and its point is that of programs in every country.
        kept = readings[:1] if open_ == "list" else readings[open_ is not None :]
        readings = tuple(_plain(Decimal(each).scaleb(power)) for each in kept)
        open_ = decimal = None
    return tuple(each for each in readings if len(each) <= MAX_DIGITS and fits(Decimal(each))), open_, decimal


def _digits(word: str) -> tuple[tuple[str, ...], str | None, str | None]:
    if len(word) > MAX_DIGITS:
        return (), None, None
    separators = [
        " " if letter in SPACES else "'" if letter in "'’" else letter for letter in word if not letter.isdecimal()
    ]
    parts = re.split(rf"[.,'’٫٬{SPACES}]", word)
    if not separators:
        return (without_zeros(word),), None, None
    *groups, tail = parts
    last = separators[-1]
    others = set(separators[:-1])
    if last == "٫" and others <= {"٬"}:
        return (f"{without_zeros(''.join(groups))}.{tail}",), None, None
    if len(separators) == 1 and last in ".,":
        whole = groups[0]
        if last == "," and not whole and tail[0] != "0":
            return (f"0.{tail}", tail), None, None  # ",5 l", or a slip of a comma: "Coffee ,10 oz"
        if len(tail) == 3 and 1 <= len(whole) <= 3 and whole[0] != "0":
            return (whole + tail, f"{whole}.{tail}"), last, None
        decimals = f"{without_zeros(whole)}.{tail}"
        if last == "," and whole[:1] not in ("", "0") and tail[0] != "0":
            return (decimals, whole, tail), "list", last
        # Without a unit "5.3" may be a version (numbers.py looks at what stands around it).
        return (decimals,), None, last
    if len({*separators}) == 1 and _are_groups(parts, last):
        readings = ("".join(parts),)
        if last == " " and len(parts) == 2 and " " in word and tail[0] != "0":
            return (*readings, *parts), " ", None
        return readings, None, {".": ",", ",": "."}.get(last)
    if last in ".," and len(others) == 1 and last not in others and _are_groups(groups, separators[0]):
        reading = f"{''.join(groups)}.{tail}"
        if others == {" "} and len(groups) == 2 and " " in word and groups[1][0] != "0":
            return (reading, groups[0], f"{groups[1]}.{tail}"), " ", last
        return (reading,), None, last
    if set(separators) == {","} or set(separators) == {"'"}:
        # A list without spaces, or a slip: "3,697,00".
        slip = (f"{''.join(groups)}.{tail}",) if len(parts) > 2 and len(tail) != 3 and _are_groups(groups, ",") else ()
        return (*dict.fromkeys((*map(without_zeros, parts), *slip)),), None, None
    return (), None, None


def _are_groups(parts: Sequence[str], separator: str) -> bool:
    head, *middle, last = parts
    if not head or head.startswith("0") or len(last) != 3:
        return False
    if len(head) <= 3 and all(len(part) == 3 for part in middle):
        return True
    # Lakhs and crores: 12,34,567.
    return separator == "," and len(head) <= 2 and bool(middle) and all(len(part) == 2 for part in middle)


def fraction(numerator: str, denominator: str, *, is_proper: bool = True) -> str | None:
    """Return the value of a fraction, as a plain decimal; None for alternatives, dates and the like.

    Args:
        is_proper: False if exactly one number is expected: "3/2" is one then, but two in a text.
    """
    if not (numerator.isdecimal() and denominator.isdecimal()) or len(numerator + denominator) > 6:
        return None
    top, bottom = int(numerator), int(denominator)
    is_padded = any(len(part) > 1 and part.startswith("0") for part in (numerator, denominator))
    if (
        is_padded
        or is_month_of_year(numerator, denominator)
        or not top
        or (is_proper and top >= bottom)
        or (bottom not in DENOMINATORS and (top > 1 or not is_proper))
    ):
        return None
    return plain_decimal(Fraction(top, bottom))


def is_month_of_year(month: str, year: str) -> bool:
    """Return whether "1/2024" and the like is a month of a year from 1900 to 2099."""
    return len(year) == 4 and year.isdecimal() and month.isdecimal() and int(month) <= 12 and int(year) in _YEARS


def vulgar_fraction(sign: str) -> Fraction:
    """Return the value of ½ and the like."""
    return Fraction(unicodedata.normalize("NFKC", sign).replace("⁄", "/"))


def plain_decimal(number: Fraction) -> str:
    """Return the number as a plain decimal; a third is rounded to a double."""
    rest = number.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest == 1:
        return format((Decimal(number.numerator) / Decimal(number.denominator)).normalize(), "f")
    return format(Decimal(repr(float(number))), "f")


def times(readings: Sequence[str], factor: int) -> tuple[str, ...]:
    """Return the readings multiplied, as plain decimals; those that do not fit a double are left out."""
    products = (_plain(Decimal(each) * factor) for each in readings)
    return tuple(each for each in products if len(each) <= MAX_DIGITS and fits(Decimal(each)))


def without_zeros(digits: str) -> str:
    """Return a whole number without leading zeros."""
    return digits.lstrip("0") or "0"


def _plain(number: Decimal) -> str:
    if not number:
        return "0"
    if abs(number.adjusted()) > _MAX_EXPONENT:
        return "1" * (MAX_DIGITS + 1)  # too long to be kept
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def fits(number: Decimal) -> bool:
    """Return whether the number is in the range of a double; digits may be lost."""
    return not number or (number.adjusted() >= -_MAX_EXPONENT and math.isfinite(float(number)))
