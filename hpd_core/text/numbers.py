"""Numbers as they are written in product texts, as wholes, and what each is worth.

    1,500 g    1500        ½, 1/2     0.5          2.5e6, 2.5×10^6   2500000
    1.250,5    1250.5      1 1/2      1.5          −20 °C            -20
    .33 l      0.33        4 x 1.5    4 and 1.5    10-12, 12:30, 1.2.3, 12.05.2024, +49 30 1234567: no number

No number is found inside another, in a name (E27, WH-1000XM4) or in what only looks like one. A lone comma or dot with
three digits behind it may end a group or the whole: "1,500" is fifteen hundred or one and a half. The product's whole
text decides, in this order:

    its numbers     that can be read in one way only: 1.5 kg, 1,250.50
    its language    text/separators.py
    the unit        thousands of grams, mAh or dollars are usual. So are thousands of kilograms and inches, but
                    thousandths of them, too: behind a dot that alone decides nothing. Nobody writes
                    thousandths of a mAh

What they contradict each other in, or do not tell, keeps all its readings: it is ambiguous.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import takewhile

from hpd_core.text.separators import SPACES, decimal_signs, groups_with_spaces, unit_size

_MAX_EXPONENT = 308  # of a double, in which every table and JSON reader can hold a number
_MAX_DIGITS = 400
DENOMINATORS = (2, 3, 4, 5, 6, 8, 16, 32, 64)
"""Of measures and recipes: "24/7" and "220/240 V" are no fractions."""

VULGAR_FRACTIONS = "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
_SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_SPACED = rf"[1-9]\d{{0,2}}(?:[{SPACES}]\d{{3}}(?!\d))+(?:[.,٫]\d+)?(?![.,]?\d)"
_CORE = r"\d+(?:[.,'’٫٬]\d+)*|(?<![^\W_])(?<![.,])[.,٫]\d+"
_EXPONENT = rf"[eE][+-]?\d{{1,3}}(?!\w)| ?[x×*·⋅] ?10(?:\^[+-]?\d{{1,3}}(?!\d)|[⁺⁻]?[{_SUPERSCRIPTS}]+)"
_POWER = rf"10(?:\^[+-]?\d{{1,3}}(?!\d)|[⁺⁻]?[{_SUPERSCRIPTS}]+)"
_ATOM = rf"(?:[{VULGAR_FRACTIONS}](?!\d)|{_POWER}|(?:{_SPACED}|{_CORE})(?:{_EXPONENT})?)"
_MIXED_WITH = (
    rf"(?:[{SPACES}](?:(?:and|&|und|et|y|e)[{SPACES}])?)?"
    rf"(?=[{VULGAR_FRACTIONS}](?!\d)|(?<=[{SPACES}])\d{{1,3}}[/⁄∕]\d{{1,3}}(?!\d))"
)
_TIGHT_LINK = rf"[{SPACES}]?[/⁄∕][{SPACES}]?|[:·⋅]"
_RANGE_LINK = (
    rf"[{SPACES}]?[-‐‑–—÷^][{SPACES}]?[-+]?|[~〜～]|[{SPACES}][~〜～][{SPACES}]|(?:\.{{2,3}}|…)[-+]?"
    rf"|[{SPACES}](?:to|bis|à|a|до|tot|til|till)[{SPACES}][-+]?"
)
_TIGHT_ATOM = rf"(?:[{VULGAR_FRACTIONS}](?!\d)|{_CORE})"
_PARTS = rf"(?:(?:{_TIGHT_LINK}){_TIGHT_ATOM}|(?:{_RANGE_LINK}){_ATOM})"
_WHOLE = re.compile(rf"(?<!\d){_ATOM}(?:{_MIXED_WITH}(?:[{VULGAR_FRACTIONS}](?!\d)|\d+[/⁄∕]\d+))?{_PARTS}*")
_PART = re.compile(rf"(?P<link>{_TIGHT_LINK}|{_RANGE_LINK}|{_MIXED_WITH})(?P<atom>{_TIGHT_ATOM}|{_ATOM})")
_FIRST = re.compile(_ATOM)
_PHONE = re.compile(r"(?:\+|\b00)\d{1,3}(?:[ /().-]{1,2}\d{2,}){2,}|\b0\d{2,4}(?:[ /-]\d{2,})+")
_BETWEEN = re.compile(
    rf"\b(?:between|zwischen|entre|tussen|mellan|mellem|tra|fra)[{SPACES}]+(?P<range>(?:{_CORE})"
    rf"[{SPACES}]+(?:and|und|et|y|e|en|och|og)[{SPACES}]+(?:{_CORE}))",
    re.IGNORECASE,
)
# Not "2er-Pack", which is two.
_ORDINAL = re.compile(r"(?:st|nd|rd|th|(?<=1)(?:er|re|ère|ere)|e|ème|eme|º|ª)(?!\w)", re.IGNORECASE)
_SUFFIX = re.compile(rf"[{SPACES}]?(?P<word>[^\W\d_]+)\.?")
_TIMES = {
    **dict.fromkeys(("thousand", "tausend", "tsd", "tys", "mille", "тыс"), 3),
    **dict.fromkeys(("million", "millions", "millionen", "mio", "mln", "millones", "milioni", "milhões", "млн"), 6),
    **{"lakh": 5, "lakhs": 5, "crore": 7, "crores": 7, "万": 4, "萬": 4, "億": 8, "亿": 8},
}
_SIGNED_UNIT = re.compile(rf"[{SPACES}]?(?:[°º℃℉]|[CFK]\b|grad|degrees?|deg\b|db[amiu]?\b|dpt|dioptr)", re.IGNORECASE)
_IDENTIFIER = re.compile(r"(?:\w|[.,'’](?=\d))*")
_MAX_WORD = 40  # what is looked at before a number
_WITH_UNIT = re.compile(r"(?<!\w)\d\w*\Z")
_TIMES_SIGN = "xX×хХ*✕✖"
_UNSPACED = re.compile("[぀-ヿ㐀-鿿฀-๿]")
# Money without cents: "1.500,-".
_NO_CENTS = re.compile(r"[.,](?:[-–—]{1,2})(?!\w)")
_PLAIN = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?")
BARE_NUMBER = re.compile(
    rf"[-+−]?(?:[{VULGAR_FRACTIONS}]|[.,]?\d+)(?:(?:[.,'’:^]|[{SPACES}]?[-–—x×*/⁄][{SPACES}]?|[{SPACES}]|[eE][+-]?)\d+)*[{VULGAR_FRACTIONS}]?"
)
"""What begins with a digit and goes on like a number, all of it; whether it is one number, `read_number` says."""
_OPEN = re.compile(r"(-?)([1-9]\d{0,2})[.,](\d{3})")


@dataclass(frozen=True, slots=True)
class Number:
    """What stands at [start, end) of a text, all parts of the number and its sign included.

    Attributes:
        worths: what it may be worth; several: it is ambiguous; none: it is no number of its own (a range, a date).
    """

    start: int
    end: int
    worths: tuple[Decimal, ...]


@dataclass(frozen=True, slots=True)
class _Whole:
    """A number before its product's text has been looked at.

    Attributes:
        readings: as plain decimals. If `open` is set, the group's comes first.
        open: what the text has to decide: "." or ",", or " " for "12 500".
        decimal: the decimal sign that can be read off it.
    """

    start: int
    end: int
    readings: tuple[str, ...] = ()
    open: str | None = None
    decimal: str | None = None


def find_numbers(texts: Sequence[str]) -> list[list[Number]]:
    """The numbers of a product's texts, in order; none overlaps another one."""
    return [list(found) for found in _find(tuple(texts))]


@lru_cache(maxsize=64)
def _find(texts: tuple[str, ...]) -> tuple[tuple[Number, ...], ...]:
    """Several attributes of one product ask for the same texts."""
    scans = [list(_scan(text)) for text in texts]
    evidence = _Evidence(texts, scans)
    return tuple(
        tuple(
            Number(each.start, each.end, tuple(dict.fromkeys(map(Decimal, each.readings))))
            for each in (evidence.decide(text, whole) if whole.open else whole for whole in wholes)
        )
        for text, wholes in zip(texts, scans, strict=True)
    )


def read_number(text: str) -> str | None:
    """One number as a plain decimal: "1,250.5" as "1250.5", "½" as "0.5", "1.50" as "1.50".

    "1,500" and "1.500" are left as they are: `settle` knows what they are worth. None: it is not one number.
    """
    if len(text) > _MAX_DIGITS:
        return None
    if _PLAIN.fullmatch(text):
        return text if _fits(Decimal(text)) else None
    text = _ascii(text.strip())
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text.removeprefix("+"))
    found = next(_scan(text), None) if text[:1] not in ("-", "+") else None
    if found is None or (found.start, found.end) != (0, len(text)) or not found.readings:
        return None
    if found.open in (".", ","):
        return sign + text
    # "12 500" is no two numbers where one is asked for, and "3/2" is no alternative.
    parts = re.split("[/⁄∕]", text)
    if len(found.readings) > 1 and len(parts) == 2:
        worth = _fraction(parts[0].strip(), parts[1].strip(), is_proper=False)
        return None if worth is None else sign + worth
    return sign + found.readings[0] if len(found.readings) == 1 or found.open else None


def open_readings(item: str) -> tuple[str, str] | None:
    """What a number that `read_number` left open may be: its digits as a group, and as decimals; None if it is not."""
    match = _OPEN.fullmatch(item)
    if match is None:
        return None
    sign, whole, rest = match.groups()
    return f"{sign}{whole}{rest}", f"{sign}{whole}.{rest}"


def settle(item: str, texts: Sequence[str]) -> str | None:
    """What a number that `read_number` left open is worth in the product's texts, as a plain decimal.

    None: both readings stand there, or neither, or only a number that is ambiguous itself.
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


def _scan(text: str) -> Iterator[_Whole]:
    """The numbers of one text, from left to right."""
    plain = _ascii(text)
    phones = {match.start(): match.end() for match in _PHONE.finditer(plain)} if "0" in plain or "+" in plain else {}
    between = {match.start("range"): match.end("range") for match in _BETWEEN.finditer(plain)}
    place = 0
    while match := _WHOLE.search(plain, place):
        start, end = match.span()
        for known in (phones, between):
            begin = next((place for place in (start, start - 1) if place in known), None)
            if begin is not None:
                stop = known[begin]
                yield _Whole(begin, stop)
                place = stop
                break
        else:
            if _is_in_name(plain, start, end):
                place = max(_IDENTIFIER.match(plain, start).end(), start + 1)  # type: ignore[union-attr]
                continue
            for whole in _read(text, plain, start, end):
                yield whole
                place = whole.end


def _ascii(text: str) -> str:
    """Digits and signs of other scripts as ASCII's, character by character, so that offsets stay."""
    if text.isascii():
        return text
    return "".join(
        letter
        if letter.isascii() or letter in SPACES
        else str(unicodedata.decimal(letter))
        if letter.isdecimal()
        else _SIGNS.get(letter, letter)
        for letter in text
    )


_SIGNS = {
    "−": "-",
    "－": "-",
    "﹣": "-",
    "＋": "+",
    "．": ".",
    "，": ",",
    "／": "/",
    "：": ":",
    "\u2007": " ",
    "\u2008": " ",
}


def _is_in_name(plain: str, start: int, end: int) -> bool:
    """Whether what could be a number is a part of a name: E27, WH-1000XM4, 3rd, 12V3A."""
    before, behind = plain[start - 1 : start], plain[end : end + 1]
    if (
        before in ("_", *VULGAR_FRACTIONS)
        or behind in ("_", *_SUPERSCRIPTS)
        or re.search(r"(?<![^\W\d_])[^\W\d_]\.\Z", plain[max(0, start - 3) : start])
    ):
        return True
    if before.isalpha() and not _UNSPACED.match(before) and before not in "Øø":
        is_times = before in _TIMES_SIGN and not plain[start - 2 : start - 1].isalpha()
        if not is_times:
            return True
    is_hyphen = before == "-" and plain[start - 2 : start - 1].isalpha() and not _UNSPACED.match(plain[start - 2])
    # "10cm-12cm" is no name: what stands there is a number with its unit.
    if is_hyphen and not _WITH_UNIT.search(plain, max(0, start - _MAX_WORD), start - 1):
        return True
    if behind.isalpha():
        if _ORDINAL.match(plain, end):
            return True
        word = re.match(r"[^\W\d_]+(?=\d)", plain[end : end + 20])
        return word is not None and word.group() not in _TIMES_SIGN and not _UNSPACED.match(word.group())
    return behind == "-" and re.match(r"-[A-Za-z]{1,4}\d", plain[end : end + 8]) is not None


def _read(text: str, plain: str, start: int, end: int) -> Iterator[_Whole]:
    first = _FIRST.match(plain, start, end)
    assert first is not None
    atoms, links = [first.span()], []
    for part in _PART.finditer(plain, first.end(), end):
        links.append(part.group("link"))
        atoms.append(part.span("atom"))
    if not links:
        yield _single(text, plain, start, end)
        return
    words = [plain[left:right] for left, right in atoms]
    readings = _joined(words, links)
    begin, _ = _sign(text, plain, start, end)
    if readings is not None:
        yield _signed(text, plain, start, end, readings)
    elif _is_spread(words, links):
        # A dash between words, or alternatives ("220/240"): each may be meant, or what they make together.
        quotient = _fraction(words[0], words[1], is_proper=False) if len(words) == 2 and links[0] in _SLASHES else None
        each = tuple(reading for word in words for reading in _core(word)[0])
        yield _Whole(begin, end, each if quotient is None else (*each, quotient))
    else:
        yield _Whole(begin, end)


def _joined(words: Sequence[str], links: Sequence[str]) -> tuple[str, ...] | None:
    """What a fraction or a mixed number is worth; None for anything else."""
    kinds = [link.strip(SPACES) for link in links]
    if len(words) == 2 and kinds[0] in _SLASHES:
        worth = _fraction(words[0], words[1])
        return None if worth is None else (worth,)
    is_mixed = kinds[0] in ("", "-", "and", "&", "und", "et", "y", "e") and links[0] not in (" - ", "- ", " -")
    if not is_mixed or not words[0].isdecimal():
        return None
    if len(words) == 2 and words[1] in VULGAR_FRACTIONS:
        return (_exact(int(words[0]) + _vulgar(words[1])),)
    if len(words) == 3 and kinds[1] in _SLASHES and _fraction(words[1], words[2]) is not None:
        return (_exact(int(words[0]) + Fraction(int(words[1]), int(words[2]))),)
    return None


_SLASHES = ("/", "⁄", "∕")


def _is_spread(words: Sequence[str], links: Sequence[str]) -> bool:
    """Whether the parts may be numbers of their own: "220/240", "12 - 10", "2 24/7"; a range and a date have none."""
    kinds = {link.strip(SPACES) for link in links}
    if kinds <= {*_SLASHES, ""}:
        is_date = len(words) >= 3 and any(len(word) == 4 for word in words)
        return not is_date and not any(len(word) > 1 and word.startswith("0") for word in words if word.isdecimal())
    if len(words) != 2 or not re.fullmatch(rf"[{SPACES}][-–—][{SPACES}]", links[0]):
        return False
    ends = [_core(word)[0] for word in words]
    return all(ends) and Decimal(ends[0][0]) > Decimal(ends[1][0])


def _fraction(numerator: str, denominator: str, *, is_proper: bool = True) -> str | None:
    if not (numerator.isdecimal() and denominator.isdecimal()) or len(numerator + denominator) > 6:
        return None
    top, bottom = int(numerator), int(denominator)
    is_padded = any(len(part) > 1 and part.startswith("0") for part in (numerator, denominator))
    if (
        is_padded
        or not top
        or (is_proper and top >= bottom)
        or (bottom not in DENOMINATORS and (top > 1 or not is_proper))
    ):
        return None
    return _exact(Fraction(top, bottom))


def _vulgar(sign: str) -> Fraction:
    return Fraction(unicodedata.normalize("NFKC", sign).replace("⁄", "/"))


def _exact(number: Fraction) -> str:
    """As a decimal; a third is what a double holds of it."""
    rest = number.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest == 1:
        return format((Decimal(number.numerator) / Decimal(number.denominator)).normalize(), "f")
    return format(Decimal(repr(float(number))), "f")


def _single(text: str, plain: str, start: int, end: int) -> _Whole:
    """One atom: its readings, its sign and what multiplies it."""
    word = plain[start:end]
    readings, open_, decimal = _core(word)
    no_cents = _NO_CENTS.match(plain, end)
    if no_cents and open_ in (".", ",") and open_ != plain[end]:
        readings, open_, decimal = readings[:1], None, plain[end]
    suffix = _SUFFIX.match(plain, end)
    if suffix is not None:
        name = suffix.group("word").lower()
        power = _TIMES.get(name) or _TIMES.get(name[0])
        if power is not None:
            readings = tuple(_plain(Decimal(each).scaleb(power)) for each in readings)
            end = suffix.end() if name in _TIMES else suffix.start("word") + 1
        elif suffix.group() == "k":
            # "20k mAh" are thousands; "14k gold" is not.
            readings = (*readings, *(_plain(Decimal(each).scaleb(3)) for each in readings))
    whole = _signed(text, plain, start, end, readings)
    return replace(whole, open=open_, decimal=decimal)


def _core(word: str) -> tuple[tuple[str, ...], str | None, str | None]:
    """The readings of digits with separators, what of it is open, and the decimal sign that it shows."""
    if word in VULGAR_FRACTIONS:
        return (_exact(_vulgar(word)),), None, None
    power = 0
    match = re.search(rf"(?:[eE]| ?[x×*·⋅] ?10\^?|^10\^?)([+-]?\d+|[⁺⁻]?[{_SUPERSCRIPTS}]+)\Z", word)
    if match is not None and (word[match.start()] in "eE xX×*·⋅" or not word.isdecimal()):
        power = int(unicodedata.normalize("NFKC", match.group(1)).replace("−", "-"))
        word = word[: match.start()] or "1"
    readings, open_, decimal = _digits(word)
    if power:
        if abs(power) > _MAX_EXPONENT:
            return (), None, None
        # No group stands before an exponent, and its point is that of programs in every country.
        readings = tuple(_plain(Decimal(each).scaleb(power)) for each in readings[open_ is not None :])
        open_ = decimal = None
    return tuple(each for each in readings if len(each) <= _MAX_DIGITS and _fits(Decimal(each))), open_, decimal


def _digits(word: str) -> tuple[tuple[str, ...], str | None, str | None]:
    if len(word) > _MAX_DIGITS:
        return (), None, None
    separators = [
        " " if letter in SPACES else "'" if letter in "'’" else letter for letter in word if not letter.isdecimal()
    ]
    parts = re.split(rf"[.,'’٫٬{SPACES}]", word)
    if not separators:
        return (_trimmed(word),), None, None
    *groups, tail = parts
    last = separators[-1]
    others = set(separators[:-1])
    if last == "٫" and others <= {"٬"}:
        return (f"{_trimmed(''.join(groups))}.{tail}",), None, None
    if len(separators) == 1 and last in ".,":
        whole = groups[0]
        if len(tail) == 3 and 1 <= len(whole) <= 3 and whole[0] != "0":
            return (whole + tail, f"{whole}.{tail}"), last, None
        # Without a unit "5.3" may be a version (`_Evidence`).
        return (f"{_trimmed(whole)}.{tail}",), None, last
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
        return (*dict.fromkeys((*map(_trimmed, parts), *slip)),), None, None
    return (), None, None


def _are_groups(parts: Sequence[str], separator: str) -> bool:
    head, *middle, last = parts
    if not head or head.startswith("0") or len(last) != 3:
        return False
    if len(head) <= 3 and all(len(part) == 3 for part in middle):
        return True
    # Lakhs and crores: 12,34,567.
    return separator == "," and len(head) <= 2 and bool(middle) and all(len(part) == 2 for part in middle)


def _trimmed(digits: str) -> str:
    return digits.lstrip("0") or "0"


def _plain(number: Decimal) -> str:
    if not number:
        return "0"
    if abs(number.adjusted()) > _MAX_EXPONENT:
        return "1" * (_MAX_DIGITS + 1)  # too long to be kept
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _fits(number: Decimal) -> bool:
    return not number or (number.adjusted() >= -_MAX_EXPONENT and math.isfinite(float(number)))


def _sign(text: str, plain: str, start: int, end: int) -> tuple[int, str]:
    """Where the number begins with its sign, and the sign: "-", "+", or "?" for a dash that may be one."""
    sign, before = plain[start - 1 : start], plain[start - 2 : start - 1]
    if sign == "+" and start and not before.isalnum():
        return start - 1, "+"
    if start == 0 or sign not in "-–" or before.isalnum() or before in ("-", ")", "]", "%", '"', "'", "°", "_", "."):
        return start, "+"
    # A dash in front of a line or behind a word may be a bullet or a pause.
    ahead = plain[max(0, start - _MAX_WORD) : start - 1].rstrip(SPACES)[-1:]
    is_minus = text[start - 1] == "−" or not ahead or ahead in ":=([<>≤≥~,;/" or _SIGNED_UNIT.match(plain, end)
    return start - 1, "-" if is_minus else "?"


def _signed(text: str, plain: str, start: int, end: int, readings: tuple[str, ...]) -> _Whole:
    begin, sign = _sign(text, plain, start, end)
    negative = tuple(each if each == "0" else f"-{each}" for each in readings)
    return _Whole(begin, end, {"+": readings, "-": negative, "?": readings + negative}[sign])


class _Evidence:
    """What a product's texts tell about the numbers in them that can be read in several ways."""

    def __init__(self, texts: Sequence[str], scans: Sequence[Sequence[_Whole]]) -> None:
        self._texts, self._scans = texts, scans

    @cached_property
    def _decimals(self) -> frozenset[str]:
        """The decimal signs that numbers show which can be read in one way only."""
        return frozenset(
            whole.decimal
            for text, wholes in zip(self._texts, self._scans, strict=True)
            for whole in wholes
            if whole.decimal is not None and (whole.decimal == "," or self._is_measure(text, whole))
        )

    @staticmethod
    def _is_measure(text: str, whole: _Whole) -> bool:
        """Versions ("Bluetooth 5.3") have dots in every country."""
        shown = text[whole.start : whole.end]
        is_decisive = "," in shown or shown.lstrip("+-−").startswith(("0", "."))
        return is_decisive or unit_size(text, whole.start, whole.end) is not None

    @cached_property
    def _language_decimals(self) -> frozenset[str]:
        return decimal_signs(self._texts)

    @cached_property
    def _has_spaced_groups(self) -> bool:
        return groups_with_spaces(self._texts)

    @cached_property
    def _has_other_groups(self) -> bool:
        """Whether thousands are written with spaces or apostrophes here."""
        return any(
            re.search(rf"\d[{SPACES}'’]\d{{3}}", text[whole.start : whole.end])
            for text, wholes in zip(self._texts, self._scans, strict=True)
            for whole in wholes
            if whole.readings and whole.open is None
        )

    def decide(self, text: str, whole: _Whole) -> _Whole:
        """The same with one reading, where the texts tell which."""
        is_group = self._is_spaced(text, whole) if whole.open == " " else self._is_group(text, whole)
        if is_group is None:
            return whole
        # Several for a dash that may be a sign, too: each with its group first.
        step = len(whole.readings) if whole.open == " " else 2
        first = 0 if is_group else 1
        return replace(whole, readings=whole.readings[first::step], open=None)

    def _is_group(self, text: str, whole: _Whole) -> bool | None:
        if len(self._decimals) > 1:
            return None
        size = unit_size(text, whole.start, whole.end)
        is_small = size in ("small", "whole")
        if self._decimals:
            is_group = whole.open not in self._decimals
            return None if is_small and not is_group else is_group
        if size == "whole":
            return True
        if len(self._language_decimals) == 1:
            is_group = whole.open not in self._language_decimals
        elif self._has_other_groups:
            is_group = False
        else:
            # A lone comma in front of kilograms, too, unless it may be a language of decimal commas.
            has_thousands = is_small or (size == "large" and whole.open == "," and not self._language_decimals)
            return True if has_thousands else None
        return None if size is not None and not is_group else is_group

    def _is_spaced(self, text: str, whole: _Whole) -> bool | None:
        """ "12 500" is one number in a language that writes so, but behind a name ("iPhone 13 128 Go")."""
        before = text[max(0, whole.start - _MAX_WORD) : whole.start].rstrip()
        is_name = any(map(str.isupper, takewhile(str.isalnum, reversed(before))))
        return True if self._has_spaced_groups and not is_name else None
