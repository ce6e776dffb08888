"""Evidence: places of values in the record they were read from.

There are three matchers, from strict to lenient. The first that finds something gives all its places:

    exact    the value, letter for letter
    folded   after Unicode NFKC and case folding; white space, dashes and quotes of any kind are alike
    fuzzy    its words, without accents: joined or split ("non-stick", "nonstick"), or most of them together, inflected
             ("shoe", "shoes") or not

A word is never found inside a longer one ("12" in "B12"; "12oz" is two words), except in scripts without spaces.
A number is never found in another one ("5 oz" in "1.5 oz", "2 inch" in "1/2 inch"). A boolean is a conclusion and has
no place. A `number` is found by its numeric value in the product's text (text/numbers.py):

    exact         same letters, same value: 1500 in "1500 g"
    equal number  other letters: 1500 in "1,500 g", 0.5 in "1/2 inch"
    ambiguous     a number that may have this value or another one: 1.125 in "1.125 inch"

A text that may end inside a number is ambiguous, too: "500 ml" in "1 500 ml".

Offsets are code points into the original field.
"""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Literal

import regex

from hpd_core.text.number_atoms import VULGAR_FRACTIONS
from hpd_core.text.numbers import ReadNumber, find_numbers, open_readings, read_number, settle
from hpd_core.text.separators import SPACES
from hpd_core.types import Attribute, CategorySchema, Evidence, MatchKind, Record, RecordResult

MAX_PLACES = 16
"""Maximum places kept of one item; more repetitions prove nothing more."""

_ENOUGH_WORDS = 0.75  # share of a value's words that must stand together
_MAX_WORDS = 32  # a longer value is a paragraph, not an attribute value; it is looked up literally only
_SLACK = 2  # foreign words that may stand between a value's own
_SIGNS = ("™", "®", "©", "℠")  # they stand at words, not in them; NFKC would make letters of some
# No spaces between words: kana, CJK ideographs, Thai, Lao, Myanmar, Khmer.
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
# ASCII without runs of spaces is folded by lower-casing it. Its last letter is left out where a mark may follow.
_PLAIN = re.compile(r"[!-~]+(?: [!-~]+)*(?![^\x00-\x7f])")
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+(?:(?<=[0-9])[.,](?=[0-9])[A-Za-z0-9]+)*")
_WORD = regex.compile(r"[\p{L}\p{N}](?:[\p{L}\p{N}\p{M}]|(?<=\p{Nd})[.,](?=\p{Nd}))*")
# Vowels and finals of decomposed Hangul, and half-width kana's voicing, compose with what stands before them.
_MARK = r"[\p{M}\u1160-\u11ff\uff9e\uff9f]"
_CLUSTER = regex.compile(rf".{_MARK}*", regex.DOTALL)
_DIGIT = re.compile(rf"[\d{VULGAR_FRACTIONS}]")
# Of mixed numbers, too: "a box of 100 1/4 inch".
_MAY_BE_GROUPS = re.compile(rf"[-+−]?\d{{1,3}}[{SPACES}](?:\d{{3}}(?:[.,]\d+)?|\d+[/⁄∕]\d+|[{VULGAR_FRACTIONS}])")
_STEM = 4  # letters that inflected words have in common at least
_DASHES, _APOSTROPHES, _QUOTES = "\u2010\u2011\u2012\u2013\u2014\u2212", "‘’‛′`´", "“”„″«»"
_ALIKE = str.maketrans(_DASHES + _APOSTROPHES + _QUOTES, "-" * 6 + "'" * 6 + '"' * 6)

_Span = tuple[int, int]


def ground(record: Record, schema: CategorySchema, result: RecordResult) -> RecordResult:
    """Return the result with `Value.evidence` filled: a tuple of places per item, empty if it was not found."""
    evidence = find_evidence(record, schema, result)
    values = {
        name: replace(value, evidence=evidence[name]) if name in evidence else value
        for name, value in result.values.items()
    }
    return replace(result, values=values)


def find_evidence(
    record: Record, schema: CategorySchema, result: RecordResult
) -> dict[str, tuple[tuple[Evidence, ...], ...]]:
    """Return the evidence of `ground` alone, by attribute, for attributes that have items."""
    grounder = Grounder(record.fields)
    attributes = {attribute.name: attribute for attribute in schema.attributes}
    found = {
        name: tuple([grounder.find(attributes[name], item) for item in value.items])
        for name, value in result.values.items()
        if value.items
    }
    for name, value in result.values.items():
        if value.choice is not None and attributes[name].type == "string" and found.get(name) == ((),):
            found[name] = (grounder.find_copied(value.items[0]),)
    return found


class Grounder:
    """Finder of values in one record."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = [_Field(name, text) for name, text in fields.items()]

    def find(self, attribute: Attribute, item: str) -> tuple[Evidence, ...]:
        """Return the places of one item, in the order of the fields; at most MAX_PLACES."""
        if attribute.type == "boolean" or not item.strip():
            return ()
        if attribute.type == "number":
            return self._find_number(item)
        has_number = _DIGIT.search(item) is not None
        perhaps: tuple[Evidence, ...] = ()
        for kind, look_up in _TEXT_TRIES:
            found, cut_perhaps = [], []
            for index, field in enumerate(self._fields):
                for start, end in look_up(field, item):
                    cut = self._cut(index, start, end) if has_number else None
                    place = Evidence(field.name, start, end, field.text[start:end], kind)
                    if cut is None:
                        found.append(place)
                    elif cut == "perhaps":
                        cut_perhaps.append(replace(place, match="ambiguous"))
            if found:
                return tuple(found[:MAX_PLACES])
            perhaps = perhaps or tuple(cut_perhaps[:MAX_PLACES])
        return perhaps

    def find_copied(self, item: str) -> tuple[Evidence, ...]:
        """Return the places of an item that was copied from the texts, and may end inside a word."""
        places = [
            (field.name, place.span()) for field in self._fields for place in re.finditer(re.escape(item), field.text)
        ]
        return tuple([Evidence(name, *span, item, "ambiguous") for name, span in places[:MAX_PLACES]])

    @cached_property
    def _numbers(self) -> list[list[ReadNumber]]:
        return find_numbers([field.text for field in self._fields])

    def _find_number(self, item: str) -> tuple[Evidence, ...]:
        worths, is_open = self._worths(item)
        found: dict[MatchKind, list[Evidence]] = {kind: [] for kind in _NUMBER_KINDS}
        for field, numbers in zip(self._fields, self._numbers, strict=True):
            for number in numbers:
                if worths.isdisjoint(number.worths):
                    continue
                text = field.text[number.start : number.end]
                kind: MatchKind = "exact" if text == item else "equal number"
                if is_open or len(number.worths) > 1:
                    kind = "ambiguous"
                found[kind].append(Evidence(field.name, number.start, number.end, text, kind))
        if not is_open and item == format(next(iter(worths), Decimal(0)).normalize(), "f"):
            # As a number is chosen, however the text spells it: "1,500 ml, 1500 W".
            found["exact"] += found["equal number"]
        return tuple((found["exact"] or found["equal number"] or found["ambiguous"])[:MAX_PLACES])

    def _worths(self, item: str) -> tuple[set[Decimal], bool]:
        """Return the possible values of a number, and whether it is ambiguous: "1.500" unless the text settles it."""
        readings = open_readings(item)
        if readings is None:
            read = read_number(item)
            return (set() if read is None else {Decimal(read)}), False
        settled = settle(item, [field.text for field in self._fields])
        # As it is written, "1.500" is one and a half to every reader of the table.
        if settled is None or ("." in item and settled != item):
            return set(map(Decimal, readings)), True
        return {Decimal(settled)}, False

    def _cut(self, field: int, start: int, end: int) -> Literal["surely", "perhaps"] | None:
        """Return whether [start, end) begins or ends inside a number, or inside a range or date without spaces.

        "perhaps": "12 500" may be one number or two, unless its first part belongs to a name ("iPhone 13").
        """
        cut: Literal["surely", "perhaps"] | None = None
        text, numbers = self._fields[field].text, self._numbers[field]
        for edge in (start, end):
            index = bisect_left(numbers, edge, key=attrgetter("start")) - 1
            if index < 0 or edge >= numbers[index].end:
                continue
            number = numbers[index]
            shown = text[number.start : number.end]
            is_whole = len(number.worths) == 1 or not (number.worths or " " in shown)
            if is_whole and text[number.start : edge] != "+":
                return "surely"
            is_named = edge == end and text[start].isalpha()
            if number.worths and not is_named and _MAY_BE_GROUPS.fullmatch(shown):
                cut = "perhaps"
        return cut


@dataclass(frozen=True, slots=True)
class _Folded:
    """Folded text; character i comes from the original's [starts[i], ends[i])."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]


class _Field:
    """Field of a record, folded and split lazily: most values are found literally."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    @cached_property
    def _folded(self) -> _Folded:
        return _fold(self.text)

    @cached_property
    def _words(self) -> list[tuple[str, _Span]]:
        """Folded words without accents, and their folded offsets."""
        text = self._folded.text
        if text.isascii():
            return [(match.group(), match.span()) for match in _ASCII_WORD.finditer(text)]
        return [(_bare(text[start:end]), (start, end)) for start, end in _words(text)]

    def exact(self, item: str) -> Iterator[_Span]:
        """Find the item literally; yield spans."""
        return _places(item, self.text)

    def folded(self, item: str) -> Iterator[_Span]:
        """Find the folded item; yield spans."""
        return self._original(_places(_fold_item(item)[0], self._folded.text))

    def fuzzy(self, item: str) -> Iterator[_Span]:
        """Find the item by its words; yield spans. Items of no words, or of too many, are not found."""
        _, wanted = _fold_item(item)
        if not 0 < len(wanted) <= _MAX_WORDS:
            return iter(())
        spans = list(_joined(wanted, self._words)) or list(_together(wanted, self._words))
        return self._original(spans)

    def _original(self, spans: Iterable[_Span]) -> Iterator[_Span]:
        """Map folded spans to original offsets; drop those that begin or end inside a character ("2" in "½")."""
        starts, ends = self._folded.starts, self._folded.ends
        for first, last in spans:
            is_cut = (first > 0 and starts[first - 1] == starts[first]) or (
                last < len(ends) and ends[last] == ends[last - 1]
            )
            if not is_cut:
                yield starts[first], ends[last - 1]


_Tries = Sequence[tuple[MatchKind, Callable[[_Field, str], Iterator[_Span]]]]
_TEXT_TRIES: _Tries = (("exact", _Field.exact), ("folded", _Field.folded), ("fuzzy", _Field.fuzzy))
_NUMBER_KINDS: tuple[MatchKind, ...] = ("exact", "equal number", "ambiguous")


def _fold(text: str) -> _Folded:
    """Fold cluster by cluster (a character and its combining marks), so that offsets can be mapped back."""
    if _PLAIN.fullmatch(text):
        return _Folded(_fold_plain(text), range(len(text)), range(1, len(text) + 1))
    folded: list[str] = []
    starts: list[int] = []
    ends: list[int] = []

    def add_clusters(first: int, last: int) -> None:
        for start, end in (cluster.span() for cluster in _CLUSTER.finditer(text, first, last)):
            for letter in _fold_cluster(text[start:end]):
                if letter.isspace():
                    if not folded:
                        continue
                    if folded[-1] == " ":
                        ends[-1] = end
                        continue
                    letter = " "
                folded.append(letter)
                starts.append(start)
                ends.append(end)

    done = 0
    for match in _PLAIN.finditer(text):
        start, end = match.span()
        add_clusters(done, start)
        folded.extend(_fold_plain(match.group()))
        starts.extend(range(start, end))
        ends.extend(range(start + 1, end + 1))
        done = end
    add_clusters(done, len(text))
    if folded and folded[-1] == " ":
        folded.pop()
    return _Folded("".join(folded), starts, ends)


def _fold_plain(text: str) -> str:
    return text.lower().replace("`", "'")


@lru_cache(maxsize=256)
def _fold_item(item: str) -> tuple[str, tuple[str, ...]]:
    """Return an item folded, and its words without accents; cached, as all fields and other records use them."""
    text = _fold(item).text
    return text, tuple(_bare(text[start:end]) for start, end in _words(text))


@lru_cache(maxsize=4096)
def _fold_cluster(cluster: str) -> str:
    if cluster in _SIGNS:
        return ""
    letters = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", cluster).casefold())
    return letters.translate(_ALIKE)


def _bare(word: str) -> str:
    """Return `word` without accents."""
    if word.isascii():
        return word
    return "".join(letter for letter in unicodedata.normalize("NFD", word) if not unicodedata.combining(letter))


def _is_mark(letter: str) -> bool:
    return not letter.isascii() and regex.match(_MARK, letter) is not None


def _words(text: str) -> Iterator[_Span]:
    """Yield the spans of runs of letters and digits with their marks; "1.5" is one."""
    return (match.span() for match in (_ASCII_WORD if text.isascii() else _WORD).finditer(text))


def _places(wanted: str, text: str) -> Iterator[_Span]:
    """Yield the non-overlapping spans of `wanted` in `text` that do not cut words."""
    if not wanted:
        return
    start = text.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        is_whole = not _joins(text, start) and not _joins(text, end)
        if is_whole:
            yield start, end
        start = text.find(wanted, end if is_whole else start + 1)


def _joins(text: str, place: int) -> bool:
    """Return whether the characters on both sides of `place` belong to one word or number."""
    if not 0 < place < len(text):
        return False
    left, right = text[place - 1], text[place]
    if right == " " or (left == " " and right.isascii()):
        return False
    if _is_mark(right):
        return True
    if left.isdigit() and right in ".,":
        return text[place + 1 : place + 2].isdigit()
    if left in ".," and right.isdigit():
        return text[place - 2 : place - 1].isdigit() if place > 1 else False
    if not (left.isalnum() or _is_mark(left)) or not right.isalnum() or (left.isdigit() and not right.isdigit()):
        return False
    return not (_UNSPACED.match(left) or _UNSPACED.match(right))


def _joined(wanted: Sequence[str], words: Sequence[tuple[str, _Span]]) -> Iterator[_Span]:
    """Yield spans of consecutive words that equal the wanted ones when spaces are ignored."""
    letters = "".join(wanted)
    first = 0
    while first < len(words):
        if not letters.startswith(words[first][0]):
            first += 1
            continue
        text, last = "", first
        while last < len(words) and len(text) < len(letters) and letters.startswith(text):
            text += words[last][0]
            last += 1
        if text == letters:
            yield words[first][1][0], words[last - 1][1][1]
            first = last
        else:
            first += 1


def _together(wanted: Sequence[str], words: Sequence[tuple[str, _Span]]) -> Iterator[_Span]:
    """Yield the spans that hold most of the wanted words, at most _SLACK words longer than the value.

    They are the spans with the most wanted words, from left to right, shorter ones first; no two overlap.
    """
    stems = {item[:_STEM] for item in wanted}
    matches = [
        next((item for item in wanted if _alike(item, word)), None) if word[:_STEM] in stems else None
        for word, _ in words
    ]
    needed = math.ceil(len(wanted) * _ENOUGH_WORDS)
    found: list[tuple[int, int, int]] = []  # (-words, length, first)
    for first, match in enumerate(matches):
        if match is None:
            continue
        left = Counter(wanted)
        for last in range(first, min(len(words), first + len(wanted) + _SLACK)):
            item = matches[last]
            if item is not None and left[item]:
                left[item] -= 1
                # Numbers must all match: "size 10" is not "size 12".
                has_numbers = not any(count and any(map(str.isdigit, item)) for item, count in left.items())
                if has_numbers and len(wanted) - left.total() >= needed:
                    found.append((left.total() - len(wanted), last + 1 - first, first))
    best = min(found)[0] if found else 0
    last_end = 0
    for _, length, first in sorted(filter(lambda item: item[0] == best, found), key=lambda item: (item[2], item[1])):
        if first >= last_end:
            yield words[first][1][0], words[first + length - 1][1][1]
            last_end = first + length


def _alike(item: str, word: str) -> bool:
    """Return whether the words are equal, or one is the other with an ending of one or two letters."""
    short, long = sorted((item, word), key=len)
    is_inflected = len(short) >= _STEM and len(long) - len(short) <= 2 and long.startswith(short)
    return item == word or (is_inflected and long.isalpha())
