"""Scanner of one text for numbers, which joins their atoms: mixed numbers (2½), fractions, ranges, dates.

A *whole* is an atom (digits with separators, an exponent, a sign), or several joined to a fraction, mixed number,
range or date. Its parts are not separate numbers, unless they may be alternatives ("220/240 V").
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from hpd_core.text.number_atoms import (
    EASTERN_SIGN,
    EASTERN_SIGNS,
    MAX_MINUS,
    MINUS,
    MINUS_ENDS,
    SUPERSCRIPTS,
    VULGAR_FRACTIONS,
    factor_behind,
    fraction,
    is_month_of_year,
    plain_decimal,
    power_of,
    readings_of,
    surely_multiplies,
    times,
    vulgar_fraction,
    without_zeros,
)
from hpd_core.text.separators import SPACES

_MAX_MIXED = 6  # digits in front of a fraction

_SUPERSCRIPT_POWER = rf"[{SUPERSCRIPTS}]{{1,3}}(?![{SUPERSCRIPTS}])"
_SPACED = rf"[1-9]\d{{0,2}}(?:[{SPACES}]\d{{3}}(?!\d))+(?:[.,٫]\d+)?(?![.,]?\d)"
_CORE = r"\d+(?:[.,'’٫٬]\d+)*|(?<![^\W_])(?<![.,])[.,٫]\d+"
_POWER = rf"10(?:\^[+-]?\d{{1,3}}(?![.,]?\d)|[⁺⁻]?{_SUPERSCRIPT_POWER})"
_EXPONENT = rf"[eE][+-]?\d{{1,3}}(?!\w)| ?[x×*·⋅] ?{_POWER}"
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
# The first character is looked at first: that rejects most letters.
_WHOLE = re.compile(
    rf"(?=[\d.,٫{VULGAR_FRACTIONS}])(?<!\d){_ATOM}(?:{_MIXED_WITH}(?:[{VULGAR_FRACTIONS}](?!\d)|\d+[/⁄∕]\d+))?{_PARTS}*"
)
_PART = re.compile(rf"(?P<link>{_TIGHT_LINK}|{_RANGE_LINK}|{_MIXED_WITH})(?P<atom>{_TIGHT_ATOM}|{_ATOM})")
_FIRST = re.compile(_ATOM)
_PHONE = re.compile(r"(?=[+0])(?:\+|\b00)\d{1,3}(?:[ /().-]{1,2}\d{2,}){2,}|\b0\d{2,4}(?:[ /-]\d{2,})+")
_BETWEEN = re.compile(
    rf"\b(?:between|zwischen|entre|tussen|mellan|mellem|tra|fra)[{SPACES}]+\Z",
    re.IGNORECASE,
)
_AND_NUMBER = re.compile(rf"[{SPACES}]+(?:and|und|et|y|e|en|och|og)[{SPACES}]+(?:{_CORE})")
# Not "2er-Pack", which is two.
_ORDINAL = re.compile(r"(?:st|nd|rd|th|(?<=1)(?:er|re|ère|ere)|e|ème|eme|º|ª)(?!\w)", re.IGNORECASE)
# "12만 5,000" is one number, and so is "1万2000".
_EASTERN_NEXT = re.compile(rf"(?:(?<=[만억천백조])[{SPACES}])?(?P<digits>{_CORE})")
_EASTERN_RANGE = re.compile(rf"(?:{_RANGE_LINK})(?:{_CORE})(?:[{SPACES}]?[{EASTERN_SIGNS}](?:{_CORE})?)*")
_RANGE_OF_SAME_UNITS = re.compile(
    rf"[{SPACES}]?(?P<unit>[^\W\d_]{{1,12}}|%|[°º][CFK]?|[\"″′])(?P<link>{_RANGE_LINK})(?P<to>{_ATOM})"
    rf"[{SPACES}]?(?P=unit)(?!\w)"
)
_COUNTED = re.compile(rf"\b(?:pack|set|box|case|bag|lot|kit|pair)s?(?:[{SPACES}]of)?[:{SPACES}]+\Z", re.IGNORECASE)
_SIGNED_UNIT = re.compile(
    rf"[{SPACES}]?(?:[°º℃℉]|[CFK]\b|度|도|grad|degrees?|deg\b|celsius|fahrenheit|db[amiu]?\b|dpt|dioptr)", re.IGNORECASE
)
_IDENTIFIER = re.compile(r"(?:\w|[.,'’](?=\d))*")
# Where a line may break, and which way it runs.
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
MAX_WORD = 40  # characters looked at before a number
_WITH_UNIT = re.compile(r"(?<!\w)\d\w*\Z")
_ONE_LETTER = re.compile(r"(?<![^\W\d_])[^\W\d_]\.\Z")
_TIMES_SIGN = "xX×хХ*✕✖"
_BEFORE_SIZE = re.compile(rf"\d(?P<unit>[^\W\d_]{{1,3}}?)[{_TIMES_SIGN}]\Z")  # "30cmx" before 45cm
_BEHIND_SIZE = re.compile(rf"(?P<unit>[^\W\d_]{{1,3}}?)[{_TIMES_SIGN}]\d[\d.,]*(?P=unit)")
_UNSPACED = re.compile("[぀-ヿ㐀-鿿฀-๿]")
# Money without cents: "1.500,-".
_NO_CENTS = re.compile(r"[.,](?:[-–—]{1,2})(?!\w)")
BARE_NUMBER = re.compile(
    rf"[-+−]?(?:[{VULGAR_FRACTIONS}]|[.,]?\d+)(?:(?:[.,'’´`:^]|[{SPACES}]?[-–—x×*/⁄][{SPACES}]?|[{SPACES}]|[eE][+-]?)\d+)*[{VULGAR_FRACTIONS}]?"
)
"""Longest text that begins and continues like a number; `read_number` says whether it is one number."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Number before its product's text has been looked at.

    Attributes:
        readings: as plain decimals; empty for a range, a date and the like. If `open` is set, the group's comes first.
        open: what the text must decide: "." or ",", " " for "12 500", "list" for "36,38" (decimals come first).
        decimal: the decimal sign that it shows.
    """

    start: int
    end: int
    readings: tuple[str, ...] = ()
    open: str | None = None
    decimal: str | None = None


def scan(text: str) -> Iterator[Whole]:
    """Yield the numbers of one text, from left to right."""
    shown = _INVISIBLE.sub("", text) if not text.isascii() else text
    if len(shown) == len(text):
        yield from _scan(text)
        return
    places = [place for place, letter in enumerate(text) if not _INVISIBLE.match(letter)]
    for whole in _scan(shown):
        yield replace(whole, start=places[whole.start], end=places[whole.end - 1] + 1)


def _scan(text: str) -> Iterator[Whole]:
    plain = to_ascii(text)
    phones = {match.start(): match.end() for match in _PHONE.finditer(plain)} if "0" in plain or "+" in plain else {}
    place = 0
    while match := _WHOLE.search(plain, place):
        start, end = match.span()
        phone = next((begin for begin in (start, start - 1) if begin in phones), None) if phones else None
        if phone is not None:
            whole = Whole(phone, phones[phone])
        elif _is_in_name(plain, start, end):
            place = max(_IDENTIFIER.match(plain, start).end(), start + 1)  # type: ignore[union-attr]
            continue
        elif (other := _AND_NUMBER.match(plain, end)) and _BETWEEN.search(plain, max(0, start - MAX_WORD), start):
            whole = Whole(start, other.end())
        else:
            whole = _read(text, plain, start, end)
        yield whole
        place = whole.end


def to_ascii(text: str) -> str:
    """Replace digits and signs of other scripts by ASCII, character by character, so that offsets stay."""
    if text.isascii():
        return text.replace("`", "'")
    return "".join(
        letter
        if (letter.isascii() and letter != "`") or letter in SPACES
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
    **dict.fromkeys("`´ʼ‘", "'"),
    "\u2007": " ",
    "\u2008": " ",
}


def _is_in_name(plain: str, start: int, end: int) -> bool:
    """Return whether a candidate is a part of a name: E27, WH-1000XM4, 3rd, 12V3A."""
    before, behind = plain[start - 1 : start], plain[end : end + 1]
    if (
        before in ("_", *VULGAR_FRACTIONS)
        or behind in ("_", *SUPERSCRIPTS)
        or (before == "." and _ONE_LETTER.search(plain, max(0, start - 3), start))
    ):
        return True
    if before.isalpha() and not _UNSPACED.match(before) and before not in "Øø":
        size = _BEFORE_SIZE.search(plain, max(0, start - MAX_WORD), start)
        is_times = before in _TIMES_SIGN and not plain[start - 2 : start - 1].isalpha()
        if not is_times and (size is None or not plain.startswith(size["unit"], end)):
            return True
    is_hyphen = before == "-" and plain[start - 2 : start - 1].isalpha() and not _UNSPACED.match(plain[start - 2])
    # "10cm-12cm" is not a name: there is a number with its unit.
    if is_hyphen and not _WITH_UNIT.search(plain, max(0, start - MAX_WORD), start - 1):
        return True
    if behind.isalpha():
        if _ORDINAL.match(plain, end):
            return True
        word = re.match(r"[^\W\d_]+(?=\d)", plain[end : end + 20])
        if word is None or word.group() in _TIMES_SIGN or _BEHIND_SIZE.match(plain, end):
            return False
        return not _UNSPACED.match(word.group())
    return behind == "-" and re.match(r"-[A-Za-z]{1,4}\d", plain[end : end + 8]) is not None


def _read(text: str, plain: str, start: int, end: int) -> Whole:
    first = _FIRST.match(plain, start, end)
    assert first is not None
    if first.end() == end:
        return _single(text, plain, start, end)
    words, links = [first.group()], []
    for part in _PART.finditer(plain, first.end(), end):
        links.append(part.group("link"))
        words.append(part.group("atom"))
    readings = _joined(words, links)
    if readings is not None:
        is_counted = len(words[0]) > 2 or _COUNTED.search(plain, max(0, start - MAX_WORD), start)
        if links[0] and links[0] in SPACES and is_counted:
            # "A box of 100 1/4 inch screws" may tell two numbers.
            rest = (
                (plain_decimal(vulgar_fraction(words[1])),) if len(words) == 2 else _joined(words[1:], links[1:]) or ()
            )
            readings = (*readings, without_zeros(words[0]), *rest)
        return _signed(text, plain, start, end, readings)
    begin, _ = _sign(text, plain, start, end)
    if not _is_spread(words, links):
        return Whole(begin, end)
    # A dash between words, or alternatives ("220/240"): each may be meant, or what they make together.
    quotient = fraction(words[0], words[1], is_proper=False) if len(words) == 2 and links[0] in _SLASHES else None
    parts = [readings_of(word)[0] for word in words]
    each = tuple(itertools.chain(*parts)) if all(parts) else ()
    return Whole(begin, end, each if quotient is None else (*each, quotient))


def _joined(words: Sequence[str], links: Sequence[str]) -> tuple[str, ...] | None:
    """Return the value of a fraction or a mixed number; None for anything else."""
    kinds = [link.strip(SPACES) for link in links]
    if len(words) == 2 and kinds[0] in _SLASHES:
        worth = fraction(words[0], words[1])
        return None if worth is None else (worth,)
    is_mixed = kinds[0] in ("", "-", "and", "&", "und", "et", "y", "e") and links[0] not in (" - ", "- ", " -")
    if not is_mixed or not words[0].isdecimal() or len(words[0]) > _MAX_MIXED:
        return None
    if len(words) == 2 and words[1] in VULGAR_FRACTIONS:
        return (plain_decimal(int(words[0]) + vulgar_fraction(words[1])),)
    if len(words) == 3 and kinds[1] in _SLASHES and fraction(words[1], words[2]) is not None:
        return (plain_decimal(int(words[0]) + Fraction(int(words[1]), int(words[2]))),)
    return None


_SLASHES = ("/", "⁄", "∕")


def _is_spread(words: Sequence[str], links: Sequence[str]) -> bool:
    """Return whether the parts may be separate numbers: "220/240", "12 - 10", "2 24/7"; False for ranges and dates."""
    kinds = {link.strip(SPACES) for link in links}
    if kinds <= {*_SLASHES, ""}:
        is_month = len(words) == 2 and is_month_of_year(*words)
        is_date = is_month or (len(words) >= 3 and any(len(word) == 4 for word in words))
        return not is_date and not any(len(word) > 1 and word.startswith("0") for word in words if word.isdecimal())
    if len(words) != 2 or not re.fullmatch(rf"[{SPACES}][-–—][{SPACES}]", links[0]):
        return False
    ends = [readings_of(word)[0] for word in words]
    return all(ends) and Decimal(ends[0][0]) > Decimal(ends[1][0])


def _single(text: str, plain: str, start: int, end: int) -> Whole:
    """Read one atom: its readings, its sign and its multiplier."""
    word = plain[start:end]
    readings, open_, decimal = readings_of(word)
    no_cents = _NO_CENTS.match(plain, end)
    if no_cents and open_ in (".", ",") and open_ != plain[end]:
        readings, open_, decimal = readings[:1], None, plain[end]
    spread = _RANGE_OF_SAME_UNITS.match(plain, end)
    if spread is not None and not _is_spread((word, spread.group("to")), (spread.group("link"),)):
        return Whole(_sign(text, plain, start, end)[0], spread.end("to"))
    if EASTERN_SIGN.match(plain, end):
        return _eastern(text, plain, start, end)
    factor, end, is_sure = factor_behind(plain, end)
    if factor > 1:
        if open_ == "list":
            readings, open_ = readings[:1], None
        multiplied = times(readings, factor)
        readings, open_ = (multiplied, open_) if is_sure else ((*readings, *multiplied), None)
    return _signed(text, plain, start, end, readings, open_, decimal)


def _eastern(text: str, plain: str, start: int, end: int) -> Whole:
    """Read a number with signs for hundreds and more after its digits, the first of which are plain[start:end]."""
    parts: list[tuple[str, int]] = []
    digits, place, last = plain[start:end], end, end
    while sign := EASTERN_SIGN.match(plain, place):
        parts.append((digits, power_of(sign)))
        last, place, digits = place, sign.end(), ""
        if behind := _EASTERN_NEXT.match(plain, place):
            digits, place = behind.group("digits"), behind.end()
        else:
            break
    if digits:
        parts.append((digits, 0))
    if to := _EASTERN_RANGE.match(plain, place):
        return Whole(_sign(text, plain, start, place)[0], to.end())
    if len(parts) > 1:
        return _signed(text, plain, start, place, _sum(parts))
    readings, open_, _ = readings_of(parts[0][0])
    scaled = times(readings, 10 ** parts[0][1])
    if surely_multiplies(plain[last:place], plain[place : place + 1]):
        return _signed(text, plain, start, place, scaled, open_)
    return _signed(text, plain, start, end, (*readings, *scaled))


def _sum(parts: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    """Return the value of "1万2000" and the like; () if a part is ambiguous, or not below the one before."""
    total, least = Decimal(0), None
    for digits, power in parts:
        readings, open_, _ = readings_of(digits)
        # Commas are groups where these signs are written.
        if not readings or (len(readings) > 1 and open_ != ","):
            return ()
        amount = Decimal(readings[0]).scaleb(power)
        if least is not None and amount >= least:
            return ()
        total, least = total + amount, Decimal(10) ** power
    return times((str(total),), 1)


def _sign(text: str, plain: str, start: int, end: int) -> tuple[int, str]:
    """Return the start of the number with its sign, and the sign: "-", "+", or "?" for a possible minus."""
    sign, before = plain[start - 1 : start], plain[start - 2 : start - 1]
    if sign == "+" and start and not before.isalnum():
        return start - 1, "+"
    last = before if sign in SPACES else sign
    is_signed_unit = last in MINUS_ENDS and _SIGNED_UNIT.match(plain, end) is not None
    if last in MINUS_ENDS and (minus := MINUS.search(plain, max(0, start - MAX_MINUS), start)):
        if minus["dash"] is None:
            return minus.start(), "-" if is_signed_unit and (minus["sure"] or minus["below"]) else "?"
        # A dash with a space after it is a bullet or a pause, but in front of a temperature it may be a minus.
        is_open = plain[max(0, minus.start() - MAX_WORD) : minus.start()].rstrip(SPACES)[-1:] in tuple(":=([<>≤≥~")
        return (minus.start(), "?") if is_signed_unit or is_open else (start, "+")
    if start == 0 or sign not in "-–" or before.isalnum() or before in ("-", ")", "]", "%", '"', "'", "°", "_", "."):
        return start, "+"
    # A dash at the start of a line or after a word may be a bullet or a pause.
    ahead = plain[max(0, start - MAX_WORD) : start - 1].rstrip(SPACES)[-1:]
    is_minus = text[start - 1] == "−" or not ahead or ahead in ":=([<>≤≥~,;/" or is_signed_unit
    return start - 1, "-" if is_minus else "?"


def _signed(
    text: str,
    plain: str,
    start: int,
    end: int,
    readings: tuple[str, ...],
    open_: str | None = None,
    decimal: str | None = None,
) -> Whole:
    begin, sign = _sign(text, plain, start, end)
    if sign != "+":
        negative = tuple(each if each == "0" else f"-{each}" for each in readings)
        readings = negative if sign == "-" else readings + negative
    return Whole(begin, end, readings, open_, decimal)
