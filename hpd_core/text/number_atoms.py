"""Values of one atom of a number: digits with separators, an exponent, or ½ alone (number_forms.py joins 2½).

The text around it is not looked at (number_forms.py does that): if separators alone are ambiguous, there are several
readings.

Words and signs next to digits belong to the number, too: "2 billion", "3만", "minus 18".
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from hpd_core.text.separators import SPACES, WORDS

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


_WORD = re.compile(rf"[{SPACES}-]?(?P<word>[^\W\d_]+)\.?")
_FACTOR_OF_WORD = {word: int(factor) for factor, words in WORDS["factors"].items() for word in words.split()}
# A dozen may be what is counted, and a mil is a thickness, too.
_PERHAPS = {"dozen": 12, "dutzend": 12, "douzaine": 12, "docena": 12, "mil": 1000}

_MYRIADS = {"万": 4, "萬": 4, "만": 4, "億": 8, "亿": 8, "억": 8, "兆": 12, "조": 12}
_BELOW_MYRIAD = {"十": 1, "십": 1, "百": 2, "백": 2, "千": 3, "천": 3}
EASTERN_SIGNS = "".join((*_BELOW_MYRIAD, *_MYRIADS))
EASTERN_SIGN = re.compile(
    rf"[{SPACES}]?(?:(?P<below>[{''.join(_BELOW_MYRIAD)}])?(?P<myriad>[{''.join(_MYRIADS)}])(?![能用向들赫])"
    r"|(?P<alone>[百백千천])(?![克瓦米卡帕伏赫焦安升斤]))"
)
"""Sign of a power of ten, unless it begins a word: kilogram (千克), universal (万能), to make (만들기)."""
_MONEY = "円元圆圓块원"

MINUS = re.compile(
    rf"(?<![^\W\d_])(?:(?P<sure>minus|minusz|mínusz|miinus|минус)|moins|menos|meno)[{SPACES}]\Z"
    rf"|(?P<below>零下|氷点下|マイナス|영하)[{SPACES}]?\Z|(?P<dash>(?<![^\s:=(\[<>≤≥~,;/])[-–][{SPACES}])\Z",
    re.IGNORECASE,
)
"""Words and dashes before a number that may be a minus; "au moins 20 °C" means "at least"."""
MAX_MINUS = 12
MINUS_ENDS = frozenset("sSzZoOсС-–下ス하")
"""Possible last characters of a MINUS, its final space not counted."""


def factor_behind(text: str, end: int) -> tuple[int, int, bool]:
    """Return the factor of the words at `end` ("2 hundred thousand"), the offset of their end, and whether it is sure.

    "20k mAh" are thousands, "14k gold" is not. Without such a word the factor is 1.
    """
    factor = 1
    while match := _WORD.match(text, end):
        word = match.group("word").lower()
        times = _FACTOR_OF_WORD.get(word)
        if times is None:
            perhaps = 1000 if match.group() == "k" else _PERHAPS.get(word, 1)
            return (factor, end, True) if factor > 1 or perhaps == 1 else (perhaps, end, False)
        factor, end = factor * times, match.end()
    return factor, end, True


def power_of(sign: re.Match[str]) -> int:
    """Return the power of ten of a match of EASTERN_SIGN."""
    return sum({**_BELOW_MYRIAD, **_MYRIADS}[name] for name in sign.groups() if name)


def surely_multiplies(sign: str, behind: str) -> bool:
    """Return whether `sign` followed by `behind` is a multiplier (万, 億), not the start of a word.

    Not sure: "3조각" are pieces, "5 천연" means natural, "512兆" are megabytes.
    """
    if behind and behind in _MONEY:
        return True
    return sign[-1] in "万萬만億亿억" or (sign in ("百", "백", "千", "천") and not behind.isalpha())
