"""Evidence: where the values stand in the record they were read from.

Three tries, from strict to lenient; the first that finds something gives all its places:

    exact    the value, letter for letter
    folded   after Unicode NFKC and case folding; white space, dashes and quotes of any kind are alike
    fuzzy    its words, without accents: joined or split ("non-stick", "nonstick"), or most of them together, inflected
             ("shoe", "shoes") or not

A word is never found inside a longer one, except in scripts that are written without spaces. Numbers are found by
what they are worth: 1500 stands in "1,500" and in "1.500". A boolean is a conclusion and has no place of its own.
Offsets are code points into the original field.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hpd_core.types import Attribute, CategorySchema, Evidence, MatchKind, Record, RecordResult

MAX_PLACES = 16
"""Places kept of one item; a text that repeats a value a thousand times proves nothing more by it."""

_ENOUGH_WORDS = 0.75  # share of a value's words that must stand together
_MAX_WORDS = 32  # a longer value is no attribute value but a paragraph; it is looked up literally only
_SLACK = 2  # foreign words that may stand between a value's own
_WORD = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"(?<![\w.,])[-−]?\d+(?:[.,]\d+)*")
# No spaces between words: kana, CJK ideographs, Thai, Lao, Myanmar, Khmer.
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_DASHES, _APOSTROPHES, _QUOTES = "\u2010\u2011\u2012\u2013\u2014\u2212", "‘’‛′`´", "“”„″«»"
_ALIKE = str.maketrans(_DASHES + _APOSTROPHES + _QUOTES, "-" * 6 + "'" * 6 + '"' * 6)

_Span = tuple[int, int]


def ground(record: Record, schema: CategorySchema, result: RecordResult) -> RecordResult:
    """The result with `Value.evidence` filled: one tuple of places per item, empty where it stands nowhere."""
    grounder = Grounder(record.fields)
    attributes = {attribute.name: attribute for attribute in schema.attributes}
    values = {
        name: replace(value, evidence=tuple(grounder.find(attributes[name], item) for item in value.items))
        for name, value in result.values.items()
    }
    return replace(result, values=values)


class Grounder:
    """Looks values up in one record."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = [_Field(name, text) for name, text in fields.items()]

    def find(self, attribute: Attribute, item: str) -> tuple[Evidence, ...]:
        """The places of one item, in the order of the fields; at most MAX_PLACES."""
        if attribute.type == "boolean" or not item.strip():
            return ()
        for kind, look_up in _NUMBER_TRIES if attribute.type == "number" else _TEXT_TRIES:
            found = [
                Evidence(field.name, start, end, field.text[start:end], kind)
                for field in self._fields
                for start, end in look_up(field, item)
            ]
            if found:
                return tuple(found[:MAX_PLACES])
        return ()


@dataclass(frozen=True, slots=True)
class _Folded:
    """A folded text; character i comes from the original's [starts[i], ends[i])."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    def original(self, span: _Span) -> _Span:
        """From folded to original offsets."""
        first, last = span
        return self.starts[first], self.ends[last - 1]


class _Field:
    """One field, made ready step by step: most values are found as they are."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    @cached_property
    def _folded(self) -> _Folded:
        return _fold(self.text)

    @cached_property
    def _words(self) -> list[tuple[str, _Span]]:
        """Folded words without accents, and their folded offsets."""
        return [(_bare(match.group()), match.span()) for match in _WORD.finditer(self._folded.text)]

    @cached_property
    def _numbers(self) -> list[tuple[str, _Span]]:
        return [(match.group(), match.span()) for match in _NUMBER.finditer(self.text)]

    def exact(self, item: str) -> Iterator[_Span]:
        """Places of the very letters."""
        return _places(item, self.text)

    def folded(self, item: str) -> Iterator[_Span]:
        """Places of the folded letters."""
        return map(self._folded.original, _places(_fold(item).text, self._folded.text))

    def fuzzy(self, item: str) -> Iterator[_Span]:
        """Places of its words."""
        wanted = [_bare(match.group()) for match in _WORD.finditer(_fold(item).text)]
        if not 0 < len(wanted) <= _MAX_WORDS:
            return iter(())
        spans = list(_joined(wanted, self._words)) or list(_together(wanted, self._words))
        return map(self._folded.original, spans)

    def number(self, item: str) -> Iterator[_Span]:
        """Places of a number as it is written."""
        return (span for text, span in self._numbers if text == item)

    def equal_number(self, item: str) -> Iterator[_Span]:
        """Places of a number of the same worth."""
        wanted = float(item)
        return (span for text, span in self._numbers if wanted in _worths(text))


_Tries = Sequence[tuple[MatchKind, Callable[[_Field, str], Iterator[_Span]]]]
_TEXT_TRIES: _Tries = (("exact", _Field.exact), ("folded", _Field.folded), ("fuzzy", _Field.fuzzy))
_NUMBER_TRIES: _Tries = (("exact", _Field.number), ("folded", _Field.equal_number))


def _fold(text: str) -> _Folded:
    """Folds cluster by cluster (a character and its combining marks), so that offsets can be led back."""
    folded: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for start, end in _clusters(text):
        letters = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text[start:end]).casefold())
        for letter in letters.translate(_ALIKE):
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
    if folded and folded[-1] == " ":
        folded.pop()
    return _Folded("".join(folded), starts, ends)


def _clusters(text: str) -> Iterator[_Span]:
    start = 0
    for index in range(1, len(text) + 1):
        if index == len(text) or not _is_mark(text[index]):
            yield start, index
            start = index


def _bare(word: str) -> str:
    """`word` without accents."""
    return "".join(letter for letter in unicodedata.normalize("NFD", word) if not unicodedata.combining(letter))


def _is_mark(letter: str) -> bool:
    # Vowels and finals of decomposed Hangul compose with what stands before them, too.
    return unicodedata.combining(letter) > 0 or "\u1160" <= letter <= "\u11ff"


def _places(wanted: str, text: str) -> Iterator[_Span]:
    """Where `wanted` stands in `text`, not inside of words; no two places overlap."""
    if not wanted:
        return
    start = text.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        is_whole = not _joins(text[start - 1 : start], wanted[0]) and not _joins(wanted[-1], text[end : end + 1])
        if is_whole:
            yield start, end
        start = text.find(wanted, end if is_whole else start + 1)


def _joins(left: str, right: str) -> bool:
    """Whether two neighbours belong to one word: both letters or both digits, of a script with spaces."""
    if not (left.isalnum() and right.isalnum()) or left.isdigit() != right.isdigit():
        return False
    return not (_UNSPACED.match(left) or _UNSPACED.match(right))


def _joined(wanted: Sequence[str], words: Sequence[tuple[str, _Span]]) -> Iterator[_Span]:
    """Stretches of words that read like the wanted ones without the spaces between them."""
    letters = "".join(wanted)
    last_end = 0
    for index, (_, (start, _)) in enumerate(words):
        if start < last_end:
            continue
        text = ""
        for word, (_, end) in words[index:]:
            text += word
            if not letters.startswith(text):
                break
            if text == letters:
                yield start, end
                last_end = end
                break


def _together(wanted: Sequence[str], words: Sequence[tuple[str, _Span]]) -> Iterator[_Span]:
    """The stretches that hold most of the wanted words, _SLACK words longer than the value at most.

    Of those with the most words the shortest, from left to right; no two overlap.
    """
    matches = [next((item for item in wanted if _alike(item, word)), None) for word, _ in words]
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
                if len(wanted) - left.total() >= needed:
                    found.append((left.total() - len(wanted), last + 1 - first, first))
    best = min(found)[0] if found else 0
    last_end = 0
    for _, length, first in sorted(filter(lambda item: item[0] == best, found), key=lambda item: (item[2], item[1])):
        if first >= last_end:
            yield words[first][1][0], words[first + length - 1][1][1]
            last_end = first + length


def _alike(item: str, word: str) -> bool:
    """The same word, or an inflection: all but two letters are the same beginning, four at least."""
    if item == word:
        return True
    short, long = sorted((item, word), key=len)
    size = max(4, len(long) - 2)
    return short[:size] == long[:size] and len(short) >= size and not any(map(str.isdigit, item + word))


def _worths(text: str) -> Iterator[float]:
    """What a written number may be worth: 1,500 is fifteen hundred here and one and a half there."""
    sign, digits = (-1.0, text[1:]) if text[0] in "-−" else (1.0, text)
    whole, *groups = re.split("[.,]", digits)
    separators = {letter for letter in digits if letter in ".,"}
    if not groups:
        yield sign * float(whole)
        return
    are_thousands = len(whole) <= 3 and all(len(group) == 3 for group in groups)
    if len(separators) == 1 and are_thousands:
        yield sign * float(whole + "".join(groups))
    *groups, decimals = groups
    are_thousands = len(whole) <= 3 and all(len(group) == 3 for group in groups)
    if not groups or (are_thousands and digits.count(digits[-len(decimals) - 1]) == 1):
        yield sign * float(f"{whole}{''.join(groups)}.{decimals}")
