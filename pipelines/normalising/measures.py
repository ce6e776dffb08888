"""Reading of texts that are, as a whole, a quantity, a range or a size.

14 inches, 12", 5' 6", 4 lb 3 oz, ca. 500 g       one
10-12 cm, from 5 to 8 kg, -10...+40 °C            a range
≥ 5 kg, up to 40 °C, 8+, min. 5                   a range with one end
10 x 20 x 30 cm, W 10 x H 20 cm, 5.5" x 8.5"      a size; its parts in the order of the text
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from hpd_core.text.numbers import open_readings, read_number, settle
from hpd_core.text.separators import SPACES
from pipelines.normalising.unit_reading import (
    MAX_COUNTED,
    NEXT,
    NUMBER,
    RESTATES,
    TIMES,
    OwnNames,
    Quantity,
    quantity_at,
    read_unit,
)

Form = Literal["one", "range", "at least", "at most", "size"]

_MAX_LENGTH = 120
_ABOUT = re.compile(
    r"(?:ca\.?|circa|approx(?:imately|\.)?|about|~|≈|etwa|env(?:iron|\.)?|aprox(?:imadamente|\.)?|около|約|约|±)\s*",
    re.IGNORECASE,
)
_AT_LEAST = re.compile(
    r"(?:≥|>=|>|at least|min(?:imum|imal|\.)?|from|ab|mindestens|au moins|mínimo|al menos|over|more than|über|от)"
    r"(?=[\s\d.,])\s*",
    re.IGNORECASE,
)
_AT_MOST = re.compile(
    r"(?:≤|<=|<|at most|max(?:imum|imal|\.)?|up to|bis(?: zu)?|höchstens|jusqu'à|jusqu’à|hasta|máximo|fino a|under|"
    r"less than|unter|до)(?=[\s\d.,])\s*",
    re.IGNORECASE,
)
_OR_MORE = re.compile(
    r"\s*(?:\+|(?:or|and) (?:more|up|over|above|older)|und mehr|et plus|o más|以上|이상)\Z", re.IGNORECASE
)
_BETWEEN = re.compile(
    rf"(?:between|zwischen|entre|from|von|de|da|od|от)[{SPACES}]+(?P<low>.+?)[{SPACES}]+"
    rf"(?:and|und|et|y|to|bis|à|a|до|e)[{SPACES}]+(?P<high>.+)",
    re.IGNORECASE,
)
_RANGE = re.compile(
    rf"(?P<low>{NUMBER}.*?)\s?(?:[-‐‑–—~〜～]|\.\.\.?|…|(?<=\s)(?:to|bis|à|a|до|tot|til|till)(?=\s)|÷)\s?(?P<high>{NUMBER}.*)",
    re.IGNORECASE,
)
_TIMES = re.compile(
    rf"\s*(?:(?<=[\d\s\W])|(?<=[a-zа-я]))\s?{TIMES}\s?(?=[^\s])|\s+(?:by|mal|por|par)\s+", re.IGNORECASE
)
_LABEL_IN_FRONT = re.compile(r"\A(?P<label>[LWHDBTØ]|Dia)[.:]?\s?(?=\d)")
_LABEL_ENCLOSED = re.compile(r"\s?\((?P<label>[LWHDBT])\)")
_LABEL_AFTER = re.compile(r"(?<=[\"″”])\s?(?P<label>[LWHD])\Z")
_NUMBER = re.compile(NUMBER)
_OTHER_SIGNS = str.maketrans(".,", ",.")
_ZERO = re.compile(r"(?<![\d.,])0+(?:[.,]0+)?(?![\d.,])")  # 5 ft 0 in
_GAP = re.compile(rf"[{SPACES}\t]{{0,2}}-?")


@dataclass(frozen=True, slots=True)
class Measure:
    """Measure that a text states.

    Attributes:
        parts: its quantities: two of a range, those of a size in the text's order.
        labels: labels of the parts of a size; "" for a part without one.
    """

    form: Form
    parts: tuple[Quantity, ...]
    labels: tuple[str, ...] = ()


def read_measure(text: str, own: OwnNames, before: str = "", after: str = "") -> Measure | None:
    """Return the measure that the whole of `text` states; None if it is not a measure.

    Args:
        own: units that the schema names.
        before, after: text around it where it was found; searched for a unit that `text` does not have.
    """
    text = text.strip()
    if match := _ABOUT.match(text):
        text = text[match.end() :]
    if not 0 < len(text) <= _MAX_LENGTH or _NUMBER.search(text) is None:
        return None
    one = _part(text, own, before, after)
    if one is not None:
        return Measure("one", (one,))
    return _one_ended(text, own, before, after) or _range(text, own, before, after) or _size(text, own, before, after)


def _one_ended(text: str, own: OwnNames, before: str, after: str) -> Measure | None:
    forms: tuple[tuple[Form, re.Pattern[str]], ...] = (("at least", _AT_LEAST), ("at most", _AT_MOST))
    for form, words in forms:
        if match := words.match(text):
            part = _part(text[match.end() :], own, before, after)
            return None if part is None else Measure(form, (part,))
    if match := _OR_MORE.search(text):
        part = _part(text[: match.start()], own, before, after)
        return None if part is None else Measure("at least", (part,))
    # "8+ years"
    number = _NUMBER.match(text)
    if number and re.match(r"\+\s?[^\d\s]", text[number.end() :]):
        part = _part(number.group() + text[number.end() + 1 :], own, before, after)
        return None if part is None else Measure("at least", (part,))
    return None


def _range(text: str, own: OwnNames, before: str, after: str) -> Measure | None:
    match = _BETWEEN.fullmatch(text) or _RANGE.fullmatch(text)
    if match is None:
        return None
    high = _part(match["high"], own, before, after)
    low = _part(match["low"], own, _label_before(match["high"], own, before, after), "")
    # "2-in-1" is not a range.
    if high is None or low is None or (low.units and not high.units):
        return None
    return Measure("range", (_with_units(low, high), high))


def _size(text: str, own: OwnNames, before: str, after: str) -> Measure | None:
    texts = _TIMES.split(text)
    if not 2 <= len(texts) <= 4:
        return None
    pairs = [_label(each) for each in texts]
    ends = [*("" for _ in texts[1:]), after]
    label = _label_before(pairs[-1][1], own, before, after)
    parts = [_part(number, own, label, end) for (_, number), end in zip(pairs, ends, strict=True)]
    found = [part for part in parts if part is not None]
    last = found[-1] if len(found) == len(parts) else None
    if last is None or any(unit.kind != "length" for part in found for unit in part.units):
        # "6 x 500 ml" is not a size.
        return None
    # "2 x 40 cm" may be two pieces.
    first = found[0]
    may_count = len(found) == 2 and not first.units and first.number.denominator == 1 and first.number <= MAX_COUNTED
    shared = [_with_units(part, last) for part in found]
    if may_count and last.units and not any(label for label, _ in pairs):
        shared[0] = replace(shared[0], is_sure=False)
    return Measure("size", tuple(shared), tuple(label for label, _ in pairs))


def _label_before(last: str, own: OwnNames, before: str, after: str) -> str:
    """Return `before`; "" if the last of several numbers has a unit: it then holds for all, whatever a label says."""
    part = _part(last, own, "", after)
    return "" if part is not None and part.units else before


def _with_units(part: Quantity, last: Quantity) -> Quantity:
    return part if part.units else Quantity(part.number, last.units, part.is_sure and last.is_sure)


def _label(text: str) -> tuple[str, str]:
    """Split "W 10 cm", "10 cm (W)" and '10"W' into label and rest."""
    for pattern in (_LABEL_IN_FRONT, _LABEL_ENCLOSED, _LABEL_AFTER):
        if match := pattern.search(text):
            return match["label"], text[: match.start()] + text[match.end() :]
    return "", text


def _part(text: str, own: OwnNames, before: str, after: str) -> Quantity | None:
    """Read a number, its unit, and nothing else; with a unit from the text around it if it has none."""
    text = text.strip()
    match = _NUMBER.match(text)
    read = read_number(match.group().strip().replace("−", "-")) if match else None
    if match is None or read is None:
        return None
    rest = text[match.end() :]
    num_units = _num_units(rest, own) if rest else 0
    if num_units is None:
        return None
    settled = _settled(read, f"{before}{text}{after}")
    if settled is None:
        # "1.500 kg" may be either.
        return Quantity(Fraction(), is_sure=False)
    following = after if not rest or RESTATES.match(after) else ""
    quantity = quantity_at(Fraction(settled), before, rest + following, own)
    # "10 cm and 20 cm" is not one quantity, so neither is the measure.
    is_one = num_units < 2 or not quantity.is_sure or quantity.number != Fraction(settled)
    return quantity if is_one or _ZERO.search(rest) else None


def _settled(read: str, text: str) -> str | None:
    """Return the value of a number; None for one like "1,250" unless "1.250" has it in a text with swapped signs.

    Then the text's numbers or unit decide it, and not the frequency of English texts.
    """
    if open_readings(read) is None:
        return read
    settled = settle(read, [text])
    other = settle(read.translate(_OTHER_SIGNS), [text.translate(_OTHER_SIGNS)])
    return settled if settled is not None and other is not None and Fraction(settled) == Fraction(other) else None


def _num_units(rest: str, own: OwnNames) -> int | None:
    """Return the number of units that make up the text, one, or two with a number in between; None for other texts."""
    place = 0
    for count in (1, 2):
        gap = _GAP.match(rest, place)
        found = read_unit(rest, gap.end() if gap else place, own)
        if found is None:
            return None
        if not rest[found.end :].strip(" ."):
            return count
        second = NEXT.match(rest, found.end)
        if second is None:
            return None
        place = second.end()
    return None
