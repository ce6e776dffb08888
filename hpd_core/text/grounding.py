"""Evidence: where the values stand in the record they were read from.

Three tries, from strict to lenient; the first that finds something gives all its places:

    exact    the value, letter for letter
    folded   after Unicode NFKC and case folding; white space, dashes and quotes of any kind are alike
    fuzzy    its words, without accents: joined or split ("non-stick", "nonstick"), or most of them together, inflected
             ("shoe", "shoes") or not

A word is never found inside a longer one ("12" in "B12"; "12oz" is two words), nor a number in another one ("5 oz" in
"1.5 oz"), except in scripts that are written without spaces. A `number` is found by what it is worth: 1500 stands in
"1,500" and in "1.500". A boolean is a conclusion and has no place of its own.
Offsets are code points into the original field.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from hpd_core.types import Attribute, CategorySchema, Evidence, MatchKind, Record, RecordResult

MAX_PLACES = 16
"""Places kept of one item; a text that repeats a value a thousand times proves nothing more by it."""

_ENOUGH_WORDS = 0.75  # share of a value's words that must stand together
_MAX_WORDS = 32  # a longer value is no attribute value but a paragraph; it is looked up literally only
_SLACK = 2  # foreign words that may stand between a value's own
# Not behind letters (E27), but behind the x of 12x24.
# What it begins with is looked at first: that settles it at most letters.
_NUMBER = re.compile(r"(?=[\d.,])(?:(?<![\w.,])|(?<=\d[xX×*]))(?:\d+(?:[.,]\d+)*|[.,]\d+)")
_DIGITS = re.compile(r"\d+")
_SIGNS = ("™", "®", "©", "℠")  # they stand at words, not in them; NFKC would make letters of some
# No spaces between words: kana, CJK ideographs, Thai, Lao, Myanmar, Khmer.
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
# ASCII without runs of spaces is folded by lower-casing it. Its last letter is left out where a mark may follow.
_PLAIN = re.compile(r"[!-~]+(?: [!-~]+)*(?![^\x00-\x7f])")
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+(?:(?<=[0-9])[.,](?=[0-9])[A-Za-z0-9]+)*")
_STEM = 4  # letters that inflected words have in common at least
_DASHES, _APOSTROPHES, _QUOTES = "\u2010\u2011\u2012\u2013\u2014\u2212", "‘’‛′`´", "“”„″«»"
_ALIKE = str.maketrans(_DASHES + _APOSTROPHES + _QUOTES, "-" * 6 + "'" * 6 + '"' * 6)

_Span = tuple[int, int]


def ground(record: Record, schema: CategorySchema, result: RecordResult) -> RecordResult:
    """The result with `Value.evidence` filled: one tuple of places per item, empty where it stands nowhere."""
    evidence = find_evidence(record, schema, result)
    values = {
        name: replace(value, evidence=evidence[name]) if name in evidence else value
        for name, value in result.values.items()
    }
    return replace(result, values=values)


def find_evidence(
    record: Record, schema: CategorySchema, result: RecordResult
) -> dict[str, tuple[tuple[Evidence, ...], ...]]:
    """As `ground`: the evidence alone, by attribute, of those that have items."""
    grounder = Grounder(record.fields)
    attributes = {attribute.name: attribute for attribute in schema.attributes}
    return {
        name: tuple([grounder.find(attributes[name], item) for item in value.items])
        for name, value in result.values.items()
        if value.items
    }


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
        text = self._folded.text
        if text.isascii():
            return [(match.group(), match.span()) for match in _ASCII_WORD.finditer(text)]
        return [(_bare(text[start:end]), (start, end)) for start, end in _words(text)]

    @cached_property
    def _numbers(self) -> list[tuple[str, _Span]]:
        """Numbers without sign; the parts of what is no number as a whole ("1,5,10")."""
        found: list[tuple[str, _Span]] = []
        for match in _NUMBER.finditer(self.text):
            if match.group().isdecimal() or any(True for _ in _worths(match.group())):
                found.append((match.group(), match.span()))
            else:
                found += ((part.group(), part.span()) for part in _DIGITS.finditer(self.text, *match.span()))
        return found

    def exact(self, item: str) -> Iterator[_Span]:
        """Places of the very letters."""
        return _places(item, self.text)

    def folded(self, item: str) -> Iterator[_Span]:
        """Places of the folded letters."""
        return self._original(_places(_fold_item(item)[0], self._folded.text))

    def fuzzy(self, item: str) -> Iterator[_Span]:
        """Places of its words."""
        _, wanted = _fold_item(item)
        if not 0 < len(wanted) <= _MAX_WORDS:
            return iter(())
        spans = list(_joined(wanted, self._words)) or list(_together(wanted, self._words))
        return self._original(spans)

    def number(self, item: str) -> Iterator[_Span]:
        """Places of a number as it is written."""
        return self._signed(item, "-", (span for text, span in self._numbers if text == item.removeprefix("-")))

    def equal_number(self, item: str) -> Iterator[_Span]:
        """Places of a number of the same worth."""
        wanted = abs(float(item))
        return self._signed(item, "-−", (span for text, span in self._numbers if wanted in _worths(text)))

    def _signed(self, item: str, minus: str, spans: Iterable[_Span]) -> Iterator[_Span]:
        """For a negative number the places with a minus; for others all, as a dash is often only a dash."""
        for start, end in spans:
            if not item.startswith("-"):
                yield start, end
            elif start > 0 and self.text[start - 1] in minus:
                yield start - 1, end

    def _original(self, spans: Iterable[_Span]) -> Iterator[_Span]:
        """From folded to original offsets; what begins or ends inside of a character ("2" in "½") is left out."""
        starts, ends = self._folded.starts, self._folded.ends
        for first, last in spans:
            is_cut = (first > 0 and starts[first - 1] == starts[first]) or (
                last < len(ends) and ends[last] == ends[last - 1]
            )
            if not is_cut:
                yield starts[first], ends[last - 1]


_Tries = Sequence[tuple[MatchKind, Callable[[_Field, str], Iterator[_Span]]]]
_TEXT_TRIES: _Tries = (("exact", _Field.exact), ("folded", _Field.folded), ("fuzzy", _Field.fuzzy))
_NUMBER_TRIES: _Tries = (("exact", _Field.number), ("folded", _Field.equal_number))


def _fold(text: str) -> _Folded:
    """Folds cluster by cluster (a character and its combining marks), so that offsets can be led back."""
    if _PLAIN.fullmatch(text):
        return _Folded(_fold_plain(text), range(len(text)), range(1, len(text) + 1))
    folded: list[str] = []
    starts: list[int] = []
    ends: list[int] = []

    def add_clusters(first: int, last: int) -> None:
        for start, end in _clusters(text, first, last):
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
    """A value folded, and its words without accents: every field is searched for them, and the next record's, too."""
    text = _fold(item).text
    return text, tuple(_bare(text[start:end]) for start, end in _words(text))


@lru_cache(maxsize=4096)
def _fold_cluster(cluster: str) -> str:
    if cluster in _SIGNS:
        return ""
    letters = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", cluster).casefold())
    return letters.translate(_ALIKE)


def _clusters(text: str, first: int, last: int) -> Iterator[_Span]:
    """Those of text[first:last], which begins with one and ends with one."""
    start = first
    for index in range(first + 1, last + 1):
        if index == last or not _is_mark(text[index]):
            yield start, index
            start = index


def _bare(word: str) -> str:
    """`word` without accents."""
    if word.isascii():
        return word
    return "".join(letter for letter in unicodedata.normalize("NFD", word) if not unicodedata.combining(letter))


def _is_mark(letter: str) -> bool:
    if letter.isascii():
        return False
    # Vowels and finals of decomposed Hangul, and half-width kana's voicing, compose with what stands before them.
    return unicodedata.category(letter).startswith("M") or "\u1160" <= letter <= "\u11ff" or letter in "\uff9e\uff9f"


def _words(text: str) -> Iterator[_Span]:
    """Runs of letters and digits with their marks; "1.5" is one."""
    if text.isascii():
        yield from (match.span() for match in _ASCII_WORD.finditer(text))
        return
    start: int | None = None
    for index, letter in enumerate(text):
        is_decimal = (
            letter in ".," and text[max(0, index - 1) : index].isdigit() and text[index + 1 : index + 2].isdigit()
        )
        if letter.isalnum() or (start is not None and (is_decimal or _is_mark(letter))):
            start = index if start is None else start
        elif start is not None:
            yield start, index
            start = None
    if start is not None:
        yield start, len(text)


def _places(wanted: str, text: str) -> Iterator[_Span]:
    """Where `wanted` stands in `text`, not inside of words; no two places overlap."""
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
    """Whether the characters on both sides of `place` belong to one word or number."""
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
    """Stretches of words that read like the wanted ones without the spaces between them."""
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
    """The stretches that hold most of the wanted words, _SLACK words longer than the value at most.

    Of those with the most words the shortest, from left to right; no two overlap.
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
                # A number is no word among others: "size 10" is not "size 12".
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
    """The same word, or one is the other with an ending of one or two letters."""
    short, long = sorted((item, word), key=len)
    is_inflected = len(short) >= _STEM and len(long) - len(short) <= 2 and long.startswith(short)
    return item == word or (is_inflected and long.isalpha())


def _worths(text: str) -> Iterator[float]:
    """What a number without sign may be worth: 1,500 is fifteen hundred here and one and a half there."""
    whole, *groups = re.split("[.,]", text)
    if not groups:
        yield float(whole)
        return
    separators = {letter for letter in text if letter in ".,"}
    if len(separators) == 1 and _are_thousands(whole, groups):
        yield float(whole + "".join(groups))
    *groups, decimals = groups
    if not groups or (_are_thousands(whole, groups) and text.count(text[-len(decimals) - 1]) == 1):
        yield float(f"{whole}{''.join(groups)}.{decimals}")


def _are_thousands(whole: str, groups: Sequence[str]) -> bool:
    return 0 < len(whole) <= 3 and all(len(group) == 3 for group in groups)
