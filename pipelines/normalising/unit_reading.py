"""Reading of the unit at a number: after it, after the numbers that it is listed with, or in the label before it.

14 inches, 12", 5.5 ft.     after the number
10 x 20 x 30 cm, 5 to 8 kg  shared, after the last number
Weight (g): 500, in cm: 20  in the label
2 x 40 cm                   2 may count pieces of 40 cm: its unit is not sure
5' 6", 4 lb 3 oz            one quantity of two numbers
24"W, 24W x 12D cm          a letter for width, depth, height or length is skipped
15K rpm                     thousands
2 gallon (UK)               the words in brackets are part of the unit's name
1 pint (568 ml)             the metric quantity says which pint is meant
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from hpd_core.text.number_atoms import VULGAR_FRACTIONS
from hpd_core.text.numbers import open_readings, read_number
from hpd_core.text.separators import SPACES
from pipelines.normalising.units import LABELS, KnownUnit, convert, first_words, fold_word, same_kind, units_of

NUMBER = (
    rf"[-+−]?(?:[{VULGAR_FRACTIONS}]|[.,]?\d+(?:[.,'’]\d+|[{SPACES}]\d{{3}}(?!\d))*(?:[eE][+-]?\d{{1,3}})?"
    rf"(?:[{SPACES}]?[{VULGAR_FRACTIONS}]|(?:[{SPACES}-]\d{{1,2}})?[/⁄]\d{{1,2}}(?!\d))?)"
)
"""Pattern of texts that may be one number; `read_number` of hpd_core decides."""
TIMES = r"[xX×*✕✖хХ]"

_GAP = re.compile(rf"\+?[{SPACES}\t]{{0,2}}-?(?:max\.?[{SPACES}])?(?=[^\s-])", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_QUOTE = re.compile('["″”“]')
_OPEN_QUOTE = re.compile('(?:^|[\\s(\\[,:])["”“](?:(?=\\w)[^"”“]*)?\\Z')
_SINGLE_QUOTE, _OPEN_SINGLE_QUOTE = re.compile("['′’]"), re.compile("(?:^|[\\s(\\[,:])['‘’]\\Z")
_SIGN = re.compile(
    rf"(?:''|′′|’’|[\"″”“'′’])(?={TIMES}\s?\d)|"
    r"''|′′|’’|[\"″”“](?!\w(?<![WDHLwdhl])|\w\w)|['′’](?![^\W\d_])|[°º]\s?(?:[CFcf](?![^\W\d_]))?|[℃℉%％‰€£Ωℓ\u3371-\u33df]|\b1/min\b|/min\b|min⁻¹|US\$"
)
# Also Hebrew abbreviations, and units that are one letter.
_WORD = re.compile(r"[^\W\d_]+(?:(?<=[א-ת])[\"״](?=[א-ת])[^\W\d_]+)?\.?|[\u3371-\u33df]")
_BETWEEN_WORDS = re.compile(rf"[{SPACES}-]?(?=[^\W\d_])")
_IDEOGRAPHS = "㐀-鿿"
_MAY_FOLLOW = "入以約约重高長长宽寬幅厚深装裝用左右大小前后後付内外容的和或及至到款"
_POWER = re.compile(r"[²³]|\^?[23](?![.,]?\d)|⁻¹|-1(?!\d)")
_FACTOR = re.compile(
    rf"[{SPACES}]?[/·⋅*・][{SPACES}]?|\.(?=[^\W\d_])|[{SPACES}](?:per|pro|par|por)[{SPACES}]", re.IGNORECASE
)
_GOES_ON = re.compile(
    # A longer word of a script without spaces.
    rf"(?<=[{_IDEOGRAPHS}])(?![{_MAY_FOLLOW}])[{_IDEOGRAPHS}]"
    r"|(?<=[가-힣])(?![부이의용까은는을를로와과에도])[가-힣]|(?<=[ァ-ヿ])[ァ-ヿ]"
    # A power, of it or of a unit behind it.
    rf"|[{SPACES}]?(?:sq\b|squared|cubed|cu\b|carr[ée]|cubes?\b|кв|куб|\*\*|\^|[·⋅*]?[^\W\d_]{{0,3}}(?:⁻|\^-)"
    rf"|[^\W\d_]{{1,3}}-[1-4](?=[{SPACES}.,;)]|\Z))"
    rf"|-[123](?=[{SPACES}.,;)]|\Z)",
    re.IGNORECASE,
)
"""Text behind a unit that makes another one of it."""
_LENGTH = r"(?:[\"″”]|(?:in|inch|inches|cm|mm)\.?)"
_SIDE = re.compile(rf"{NUMBER}\s?({_LENGTH}?)(\s?[WDHLwdhl])\b")
_SIDES = re.compile(rf"{_SIDE.pattern}(?:\s?(?:{TIMES}|by)\s?{_SIDE.pattern})+")
_TIMES = re.compile(rf"{TIMES}|by")
_TIGHT_SIZE = re.compile(rf"\A([^\W\d_]{{1,3}}?)(?={TIMES}\d[\d.,]*\1)")  # 30cmx45cm
_LENGTH_BEHIND = re.compile(rf"[{SPACES}]?{_LENGTH}(?!\w)")
_THOUSANDS = re.compile(r"[kK](?:[ -](?=[^\W\d_])|\s?(?=\())")
_NOT_IN_THOUSANDS = frozenset({"temperature", "time", "length", "mass"})
_SYSTEM = re.compile(
    r"[ ,]{0,2}[(\[]?(?P<name>UK|GB|U\.K\.|British|imp(?:erial|\.)?|US|U\.S\.|troy)(?![\w])[)\]]?(?P<other>/)?",
    re.IGNORECASE,
)
_SYSTEM_BEFORE = re.compile(r"(?<!\w)(?:UK|U\.K\.|British|imp(?:erial|\.))\s\Z", re.IGNORECASE)
_SYSTEMS = {"u.k.": "UK", "gb": "UK", "british": "UK", "imp.": "imperial", "u.s.": "US"}
RESTATES = re.compile(r"\s?[(\[/=≈]\s?")
"""Sign between a quantity and the same one in another unit."""
# Scripts without spaces between words.
_UNSPACED = re.compile("[぀-ヿ㐀-鿿가-힯฀-๿]")
_MAX_WORDS, _MAX_LETTERS = 4, 8
_LINK = re.compile(
    rf"\s?(?:(?P<times>{TIMES}|(?<=\s)by(?=\s))|±|\+(?:\s?/\s?[-−])?|[-–—~〜/]|\.\.\.?|…|(?<=\s)(?:to|bis|à|до|tot|til|till|or|oder|ou)(?=\s))\s?"
    rf"(?P<number>{NUMBER})"
)
_LISTED = re.compile(
    rf"(?:(?:\s?{TIMES}\s?|[\s,;/&+~–—-]{{1,3}}(?:(?:x|by|to|or|and|up|bis|à|und|oder|et|ou|y|e|max\.?|min\.?)\s){{0,2}})"
    rf"{NUMBER})*",
    re.IGNORECASE,
)
"""Further numbers of a list, a range or a size."""
_WORD_GOES_ON = re.compile(
    rf"\+?[{SPACES}\t\u200b]{{0,4}}(?!(?:and|or|with|without|for|x|und|oder|mit|et|ou|avec|y|o|con)\b)(?:[a-zà-ÿ]|(?![A-ZÀ-Þ])[^\W\d_])"
)
"""A word in small letters, or of a script without capitals: it may be the number's own unit, though no table has it."""
_LINKED_BEFORE = re.compile(rf"(?P<number>{NUMBER})\s?(?P<link>{TIMES}|by|[-–—/]|to|bis|à)\s?\Z")
_TOLERANCE_BEFORE = re.compile(r"\d\s?(?:[^\W\d_]{1,10}\.?|[°\"″'′%]{1,2}[CF]?)?\s?(?:±|\+\s?/)\s?[-−]?\s?\Z")
"""A number and its unit, which the tolerance that follows is no second value of."""
_UNIT_NAME = r"[^()\[\]（）\d:：]{1,20}[²³23]?"
_LABEL = re.compile(
    rf"(?:[(\[（]\s?(?P<enclosed>{_UNIT_NAME})\s?[)\]）]|(?:(?<![^\W\d_])(?:in|en|em|im)\s|/)(?P<named>{_UNIT_NAME}))"
    r"\s?[:：=]?\s{0,2}\Z"
)
_ENCLOSED = re.compile(rf"\s?[(\[（]\s?(?P<name>{_UNIT_NAME})\s?[)\]）]")
_AGE = re.compile(r"([^\W\d_]+)[\s:]{1,2}\Z")
_JOINED = r"(?:(?P<comma>[,;]\s?(?:(?:and|und|et|y|e|en|&)\s)?|(?:and|und|et|y|e|en|&)\s)|(?P<dash>[-–+]\s?))?"
NEXT = re.compile(rf"\s?{_JOINED}(?P<number>{NUMBER})")
_PART_BEFORE = re.compile(rf"(?P<number>{NUMBER})\s?(?P<unit>[^\W\d_]{{1,14}}\.?|['′’])\s?{_JOINED}\Z")
_SURE_BEHIND_IN = re.compile(
    r"\s(?:wide|high|tall|long|deep|thick|diameter|diagonal|width|height|length|depth|x|by|w|h|l|d|screen|display|and|or|"
    r"to)\b",
    re.IGNORECASE,
)
_WORD_BEHIND = re.compile(rf"[{SPACES}\t]\w")  # a line's end ends a quantity
_NEVER_BEHIND_IN = re.compile(rf"[{SPACES}\t](?:a|an|the|one|our|your|each|this|total|all|stock|\d)\b", re.IGNORECASE)
_REST = re.compile(r"\d{1,3}(?![\d.,]*\d)")
# A bare rest may follow these after a space, too; after others, as in "1m80", only directly.
_HAVE_BARE_RESTS = frozenset({"hour", "minute", "foot"})
_HAVE_COMMAS = frozenset({"foot", "yard", "pound", "hour", "minute"})
_IN_PARTS = frozenset({"length", "mass", "volume", "time"})
_METRIC = ("meter", "gram", "liter", "metric_ton")
_LEAST_PART = Fraction(1, 5280)
"""Least share of a larger unit: feet of a mile. A smaller unit belongs to another quantity."""
_DECADE = re.compile(r"['’]?s\b")
_DECADES = range(1500, 2100, 10)
_WEIGHS = re.compile(
    r"(?:\b(?:net|nett|gross)\b|\bwt\b|\bweigh(?:s|t|ing)?\b|gewicht|\bpoids\b|\bpeso\b)[^\d\n]{0,16}\Z", re.IGNORECASE
)
_IN_GRAMS = re.compile(
    r"\.?\s?[(\[/|,=–-]?\s?\d+(?:[.,]\d+)?\s?(?:k?g|gr|gms?|grams?|grammes?|lbs?|mg)\b", re.IGNORECASE
)
_OF = re.compile(r"\.?\s(?:of|de|di|von)\s", re.IGNORECASE)
_IN_GRAMS_BEFORE = re.compile(r"\d\s?(?:k?g|gr|grams?)\s?[(\[/|,=–-]\s?\Z", re.IGNORECASE)
_ABOUT = r"(?:(?:approx\.?|about|ca\.?|circa)\s|~\s?)?"
_RESTATED = re.compile(rf"(?:(?P<opens>\s?[(\[])|{RESTATES.pattern}|\s?[|,;]\s?|\sor\s){_ABOUT}(?P<number>{NUMBER})")
_RESTATED_BEFORE = re.compile(rf"(?P<number>{NUMBER})\s?(?P<unit>[^\W\d_]{{1,10}})\s?(?:[(\[=≈/|,;]|or)\s?\Z")
_CLOSES = re.compile(r"\s?[)\]]")
_OTHER_MEASURES = {
    "ounce": "troy_ounce",
    "US_fluid_ounce": "imperial_fluid_ounce",
    "US_pint": "imperial_pint",
    "US_liquid_quart": "imperial_quart",
    "US_liquid_gallon": "imperial_gallon",
    "US_liquid_cup": None,
}
"""Units that share a name but differ in the US and the UK, or in the trade of gold."""
_ROUNDED = Fraction(1, 40)
"""Largest relative change of a ratio of two amounts by rounding."""
MAX_COUNTED = 99
"""Largest number before "x" that may be a count: "2 x 40 cm" may be two pieces, "130 x 220 cm" is a size."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """Number with the units that it may have.

    Attributes:
        is_sure: False if its unit may not be one ("12 in red"), or if it is a part of a quantity.
        is_weak_sure: False if its weak unit is doubtful: "16 oz of coffee" are hardly fluid ounces.
    """

    number: Fraction
    units: tuple[KnownUnit, ...] = ()
    is_sure: bool = True
    is_weak_sure: bool = True


@dataclass(frozen=True, slots=True)
class UnitFound:
    """Units that a part of a text, up to `end`, may mean; `is_sure` and `is_weak_sure` as in `Quantity`."""

    units: tuple[KnownUnit, ...]
    end: int
    is_sure: bool = True
    is_weak_sure: bool = True


CONTRADICTED = KnownUnit("contradicted", "contradicted", "")
"""Unit of a quantity that the text restates as quite another amount; its kind is never asked for."""

OwnNames = Mapping[str, KnownUnit]
"""Units that a schema names, by `fold_word` of the name: they are read even if no table has them."""


def read_unit(text: str, start: int, own: OwnNames) -> UnitFound | None:
    """Return the longest unit at `start`; None if there is none."""
    if sign := _SIGN.match(text, start):
        return _named(text, start, sign.end(), own)
    if not own and _is_other_word(text, start):
        return None
    longest = None
    for end in _ends(text, start):
        longest = _named(text, start, end, own) or longest
        if factor := _FACTOR.match(text, end):
            for further in _ends(text, factor.end()):
                longest = _named(text, start, further, own) or longest
    if longest is not None and _GOES_ON.match(text, longest.end):
        return replace(longest, is_sure=False)
    return longest


def _unit_behind(text: str, place: int, own: OwnNames) -> UnitFound | None:
    """Return the unit of a number that ends at `place`; None if there is none."""
    gap = _GAP.match(text, place)
    return read_unit(text, gap.end(), own) if gap else None


def _is_other_word(text: str, start: int) -> bool:
    """Return whether no unit can begin at `start`. Most words after numbers are not units, and are rejected quickly."""
    word = _WORD.match(text, start)
    if word is None:
        return True
    letters, behind = word.group().rstrip("."), text[word.end() : word.end() + 2]
    is_alone = behind[:1] in ("", " ", ",", ";", "\n", ")") and behind[1:2] not in ("/", "·", "*")
    return is_alone and letters.isascii() and letters.casefold() not in first_words()


def _ends(text: str, start: int) -> Iterator[int]:
    """Yield possible ends of a name of one or more words that begins at `start`, the first word's first."""
    place = start
    for _ in range(_MAX_WORDS):
        word = _WORD.match(text, place)
        if word is None:
            return
        letters = word.group()
        if unspaced := _UNSPACED.search(letters):
            latin = place + unspaced.start()
            yield from range(latin or place + 1, min(place + len(letters), latin + _MAX_LETTERS) + 1)
        else:
            yield word.end()
        if power := _POWER.match(text, word.end()):
            yield power.end()
        between = _BETWEEN_WORDS.match(text, word.end())
        if between is None:
            return
        place = between.end()


def _named(text: str, start: int, end: int, own: OwnNames) -> UnitFound | None:
    name = text[start:end]
    units = units_of(name)
    # "5 MW" are megawatts, even if a schema asks for "mw".
    if own and (mine := own.get(fold_word(name))) is not None and (not units or name == mine.shown):
        return UnitFound((mine,), end)
    if not units:
        return None
    if name.casefold() == "in" and not _SURE_BEHIND_IN.match(text, end):
        if _NEVER_BEHIND_IN.match(text, end):
            return None
        return UnitFound(units, end, is_sure=_WORD_BEHIND.match(text, end) is None)
    return UnitFound(units, end)


def quantity_at(number: Fraction, before: str, after: str, own: OwnNames) -> Quantity:
    """Return the number between two texts with its unit; without one if it is bare."""
    before, after, is_bare = _without_side_letters(before, _TIGHT_SIZE.sub(r"\1 ", after))
    if is_bare:
        return Quantity(number)
    if number < 1000 and (thousands := _THOUSANDS.match(after)):  # 3000 are kelvins
        named = read_unit(after, thousands.end(), own)
        counted = Quantity(1000 * number, named.units) if named else _enclosed(1000 * number, after[1:], own)
        if counted is not None and _NOT_IN_THOUSANDS.isdisjoint(unit.kind for unit in counted.units):
            return counted
    gap = _GAP.match(after)
    # "Commuter 12" is a name in quotes, and so is '12'.
    is_quoted = any(
        closing.match(after) and opening.search(before)
        for closing, opening in ((_QUOTE, _OPEN_QUOTE), (_SINGLE_QUOTE, _OPEN_SINGLE_QUOTE))
    )
    is_decade = number in _DECADES and _DECADE.match(after) is not None
    found = read_unit(after, gap.end(), own) if gap and not is_quoted and not is_decade else None
    if gap and found is not None:
        if any(unit.unit in _OTHER_MEASURES for unit in found.units):
            found = _of_system(found, after, after[gap.end() : found.end])
            found = replace(found, is_sure=False) if _SYSTEM_BEFORE.search(before) else found
        found = _weighed(found, before, after)
        if _is_second_part(number, found.units, before) or _TOLERANCE_BEFORE.search(before):
            return Quantity(number, found.units, is_sure=False)
        if restated := _restated(number, found, before, after, own):
            return restated
        whole = _with_second_part(number, found, after, own)
        return whole or Quantity(number, found.units, found.is_sure, found.is_weak_sure)
    shared = _shared(number, before, after, own) or _enclosed(number, after, own)
    if shared is not None:
        return shared
    labelled = _labelled(number, before, own)
    if labelled is not None and (listed := _LISTED.match(after)) and not _WORD_GOES_ON.match(after, listed.end()):
        return labelled
    return Quantity(number)


def _without_side_letters(before: str, after: str) -> tuple[str, str, bool]:
    """Remove the letters for width, depth, height and length from a size that the number is a part of.

    Returns both texts, and whether the size has no unit: its letters may then be units as well, and no label counts.
    """
    text, is_bare = f"{before}1{after}", False
    if _TIMES.search(text) is None:  # most texts have no size
        return before, after, False
    for sides in reversed(list(_SIDES.finditer(text))):
        found = list(_SIDE.finditer(text, sides.start(), sides.end()))
        if len({side[2].strip().casefold() for side in found}) < len(found):
            continue
        has_unit = any(side[1] for side in found) or _LENGTH_BEHIND.match(text, sides.end()) is not None
        if not has_unit:
            is_tight = not any(side[0][-2].isspace() or side[2] in "lL" for side in found)
            is_bare = is_bare or (is_tight and sides.start() <= len(before) < sides.end())
            continue
        for start, stop in (side.span(2) for side in reversed(found)):
            if start > len(before):
                after = after[: start - len(before) - 1] + after[stop - len(before) - 1 :]
            else:
                before = before[:start] + before[stop:]
    return before, after, is_bare


def _of_system(found: UnitFound, after: str, name: str) -> UnitFound:
    """Return the unit in the system that the text names after it; not sure if the table does not have it."""
    system = _SYSTEM.match(after, found.end)
    if system is None:
        return found
    said = system["name"].casefold()
    units = units_of(f"{_SYSTEMS.get(said, said)} {name}") if system["other"] is None else ()
    return UnitFound(units, system.end()) if units else replace(found, is_sure=False)


def _restated(number: Fraction, found: UnitFound, before: str, after: str, own: OwnNames) -> Quantity | None:
    """Return the metric amount beside a customary one, if it shows that another unit of the same name is meant.

    The unit is `CONTRADICTED` if the amount, alone in brackets, fits no such unit. Returns None if it adds nothing.
    """
    customary = [unit for unit in found.units if not unit.unit.endswith(_METRIC)]
    units: tuple[KnownUnit, ...] = ()
    is_alone = False
    if not customary or number <= 0:
        return None
    if match := _RESTATED.match(after, found.end):
        metric = _unit_behind(after, match.end(), own)
        units = metric.units if metric else ()
        is_alone = metric is not None and match["opens"] is not None and bool(_CLOSES.match(after, metric.end))
    elif match := _RESTATED_BEFORE.search(before):
        units = units_of(match["unit"])
    amount = number_of(match["number"]) if match else None
    for unit in units:
        for each in customary:
            if match is None or not amount or not unit.unit.endswith(_METRIC) or not same_kind(unit, each):
                continue
            ratio = convert(amount, unit, each) / number
            count = max(1, round(ratio))
            half_a_digit = Fraction(1, 2 * 10 ** len(match["number"].partition(".")[2]))
            if abs(ratio / count - 1) <= _ROUNDED or (count == 1 and abs(amount - amount / ratio) <= half_a_digit):
                return None
            other = _OTHER_MEASURES.get(each.unit)
            worth = ratio / convert(Fraction(1), replace(each, unit=other), each) if other else Fraction()
            if abs(worth - 1) <= _ROUNDED:
                return Quantity(amount, (unit,))
            return Quantity(number, (CONTRADICTED,)) if is_alone else None
    return None


def _weighed(found: UnitFound, before: str, after: str) -> UnitFound:
    """Remove weak units from weighed ounces, which are not fluid ones: "Net wt 12 oz (340g)". "16 oz of coffee" may be
    either, so `is_weak_sure` becomes False."""
    kinds = {unit.kind for unit in found.units}
    if not {"mass", "volume"} <= kinds:
        return found
    if _WEIGHS.search(before) or _IN_GRAMS.match(after, found.end) or _IN_GRAMS_BEFORE.search(before):
        return UnitFound(tuple(unit for unit in found.units if not unit.is_weak), found.end, found.is_sure)
    return replace(found, is_weak_sure=_OF.match(after, found.end) is None)


def _with_second_part(number: Fraction, found: UnitFound, after: str, own: OwnNames) -> Quantity | None:
    """Read "5' 6\"" as feet; return None if no second part fits. A bare rest ("5'6") makes the quantity unsure."""
    second = NEXT.match(after, found.end)
    value = number_of(second["number"]) if second else None
    if second is None or value is None:
        return None
    smaller = _unit_behind(after, second.end(), own)
    if smaller is None:
        # "2 h 30", "5'6": the unit of the rest is not stated.
        distance = second.start("number") - found.end
        is_rest = distance < 2 and _REST.match(after, second.start("number")) is not None
        is_open = is_rest and (not distance or any(unit.unit in _HAVE_BARE_RESTS for unit in found.units))
        return Quantity(number, found.units, is_sure=False) if is_open else None
    pairs = [(unit, _sum(number, unit, value, smaller.units)) for unit in found.units]
    # "5 ft, 6 in" is one length, "2 m, 50 cm" may be two.
    sums = [
        Quantity(total, (unit,), not second["dash"] and (second["comma"] is None or unit.unit in _HAVE_COMMAS))
        for unit, total in pairs
        if total is not None
    ]
    # "2h 30m" may be minutes, "6 ft 2 in rug" inches; "1 h 30 min 20 s" has a third part.
    has_hours = any(unit.kind == "time" for unit in found.units)
    is_open = has_hours and any(unit.unit == "meter" for unit in smaller.units)
    if is_open or (sums and (not smaller.is_sure or _has_further_part(value, smaller, after, own))):
        return Quantity(number, found.units, is_sure=False)
    return sums[0] if len(sums) == 1 else None


def _has_further_part(number: Fraction, found: UnitFound, after: str, own: OwnNames) -> bool:
    """Return whether a part of a smaller unit follows, as after "30 min" in "1 h 30 min 20 s"."""
    part = NEXT.match(after, found.end)
    rest = number_of(part["number"]) if part else None
    smaller = _unit_behind(after, part.end(), own) if part else None
    if rest is None or smaller is None:
        return False
    return any(_sum(number, unit, rest, smaller.units) is not None for unit in found.units)


def _sum(number: Fraction, unit: KnownUnit, rest: Fraction, smaller: tuple[KnownUnit, ...]) -> Fraction | None:
    """Return the sum of both in `unit`; None unless the rest is less than one of it, as in "5 ft 6 in"."""
    fitting = [each for each in smaller if same_kind(unit, each) and each.unit != unit.unit]
    # "2 ft, 3 mm" are two lengths.
    fitting = [each for each in fitting if each.unit.endswith(_METRIC) == unit.unit.endswith(_METRIC)]
    if len(fitting) != 1 or number.denominator != 1 or min(number, rest) < 0 or unit.kind not in _IN_PARTS:
        return None
    worth, one = convert(rest, fitting[0], unit), convert(Fraction(1), fitting[0], unit)
    return number + worth if 0 < worth < 1 and _LEAST_PART <= one < 1 else None


def _is_second_part(number: Fraction, units: tuple[KnownUnit, ...], before: str) -> bool:
    first = _PART_BEFORE.search(before) if _DIGIT.search(before) else None
    value = number_of(first["number"]) if first else None
    if first is None or value is None:
        return False
    return any(_sum(value, larger, number, units) is not None for larger in units_of(first["unit"]))


def _shared(number: Fraction, before: str, after: str, own: OwnNames) -> Quantity | None:
    """Return the number with the unit of the last number of a size, a range or alternatives; None without one."""
    place, links = 0, []
    while link := _LINK.match(after, place):
        links.append(link["times"] is not None)
        place = link.end()
        found = _unit_behind(after, place, own)
        if found is not None:
            if any(links) and not _is_size(number, links, before, found):
                return Quantity(number, found.units, is_sure=False) if found.units[0].kind == "length" else None
            return Quantity(number, found.units, found.is_sure)
    return None


def _is_size(number: Fraction, links: list[bool], before: str, found: UnitFound) -> bool:
    """Return whether numbers with "x" between them are lengths, and none of them counts the rest."""
    if any(unit.kind != "length" for unit in found.units):
        return False
    linked = _LINKED_BEFORE.search(before)
    return len(links) > 1 or linked is not None or number.denominator != 1 or number > MAX_COUNTED


def _labelled(number: Fraction, before: str, own: OwnNames) -> Quantity | None:
    """Return the number with the unit of a label before it ("Weight (g): 500"); None without one."""
    while _DIGIT.search(before) and (linked := _LINKED_BEFORE.search(before)):
        before = before[: linked.start()]
    if label := _LABEL.search(before):
        units = _units_named(label["enclosed"] or label["named"], own)
        if units:
            return Quantity(number, units)
    if before.rstrip()[-1:] in ("€", "£"):
        return Quantity(number, units_of(before.rstrip()[-1]))
    age = _AGE.search(before)
    if age is not None and (unit := LABELS.get(age.group(1).casefold())) is not None:
        return Quantity(number, units_of(unit))
    return None


def _enclosed(number: Fraction, after: str, own: OwnNames) -> Quantity | None:
    """Return the number with the unit after it in brackets ("100 (cm)"); None without one."""
    match = _ENCLOSED.match(after)
    units = _units_named(match["name"], own) if match else ()
    return Quantity(number, units) if units else None


def _units_named(name: str, own: OwnNames) -> tuple[KnownUnit, ...]:
    mine = own.get(fold_word(name.strip())) if own else None
    return units_of(name.strip()) if mine is None else (mine,)


@lru_cache(maxsize=4096)
def number_of(text: str) -> Fraction | None:
    """Return the value of a text that is one number; None if it is not, or may be one of two ("1,500")."""
    read = read_number(text.strip().replace("−", "-"))
    return None if read is None or open_readings(read) is not None else Fraction(read)
