"""Regular expressions as automata over bytes.

    text   "^a{1,2}[0-9]$"          a user's pattern, or an expression of ours
    parts  Repeated, Characters     what `_Reader` makes of it
    places one for each character   that stands in it, with repetitions written out, and which ones may follow
    states sets of places           found from the first one on (McNaughton and Yamada, 1960), over classes of
                                    characters that the expression does not tell apart, and then over their UTF-8 bytes

A pattern is searched for, as in JSON Schema: `^` and `$` at the ends of its alternatives anchor it. `\\d` and `\\w` are
those of ASCII. A small expression may have 2**n states, such as `[ab]*a[ab]{20}`: the places that are looked at while
they are found are counted, and above `_MOST_WORK` there is no automaton.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import pairwise
from operator import or_
from typing import NamedTuple, TypeAlias

import regex

from hpd_core.errors import HPDError

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Code points as (first, last), ascending, no two beside each other."""

_DEEPEST = 50
_LETTERS = {"d": "[0-9]", "w": "[A-Za-z0-9_]"}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
_REPEAT = re.compile(r"(?:([*+?])|\{([0-9]+)(,?)([0-9]*)\})([?+]?)")
# The library that checks answers reads it as fuzzy matching or a maximum count; others as plain characters.
_FUZZY = re.compile(r"\{(?:\s*(?:\d+\s*<=?\s*)?\d*[dies]|,[\d}])")
_POSIX = re.compile(r":\^?\w+:\]")
_BRACES = {"p": re.compile(r"\{\w+(?:[=:]\w+)?\}|[LMNPSZC]"), "x": re.compile(r"\w\w"), "u": re.compile(r"\w{4}")}
_NAMED = re.compile(r"\?P?<[A-Za-z_]\w*>")
_LONGEST = 20_000
"""Maximum characters of a pattern, and of the ranges that its classes name."""
_MOST_WRITTEN = 50_000
"""Maximum parts of an expression in the library that checks answers, which crashes with some hundred thousand."""
_MANY = 10**9
"""Cap of counts."""
_LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
_MOST_WORK = 200_000
"""Places, ranges and bytes looked at while an automaton is made: about a fifth of a second."""
_MOST_PLACES = 2_000
_TIMES_OURS = 20
"""Schemas are trusted: a number may have hundreds of units."""
_MOST_CHECKED, _MOST_REPEATED = 1_000, 10_000
"""Maximum characters of a pattern that is only checked, and of the product of its counts."""
_COUNTS = re.compile(r"\{([0-9]*),?([0-9]*)\}")
_PATTERNS_KEPT = 16
"""Maximum number of cached automata, each of some MB at most."""


class PatternError(HPDError):
    """Regular expression that cannot be decoded; the message says which part, and how to fix it."""


class LookingError(PatternError):
    """Part of a pattern that looks around, or anchors it in the middle: it can be checked, but not decoded."""


class _TooLargeError(Exception):
    """More work than `_MOST_WORK`."""


@dataclass(frozen=True, slots=True)
class Characters:
    """One character out of some. No text has the character 0."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class InSequence:
    """Parts one after the other."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class OneOfParts:
    """One of some parts."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """Part that stands `least` to `most` times; None: any number of times."""

    part: Part
    least: int
    most: int | None


Part: TypeAlias = Characters | InSequence | OneOfParts | Repeated


def _united(ranges: Iterable[tuple[int, int]]) -> Ranges:
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return tuple(found)


def _others(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the characters that are not among some: no surrogate, and not the character 0."""
    taken = _united([*ranges, (0, 0), _SURROGATES])
    return tuple((a[1] + 1, b[0] - 1) for a, b in pairwise([*taken, (_LAST + 1, _LAST + 1)]) if a[1] + 1 < b[0])


@lru_cache(maxsize=1)
def _all_characters() -> tuple[tuple[int, str], ...]:
    """Return all characters below and above surrogates, with the first one's code point."""
    halves = (range(_SURROGATES[0]), range(_SURROGATES[1] + 1, _LAST + 1))
    return tuple((half.start, "".join(map(chr, half))) for half in halves)


@lru_cache(maxsize=64)
def _of_unicode(escape: str) -> Ranges:
    r"""Return the characters of `\s`, `\S`, or an escape such as `\p{Lu}`."""
    try:
        if len(escape) > 2 and regex.fullmatch(escape, escape[1:]):
            raise regex.error(f"{escape!r} is no class of characters")  # a name that is not known is read as it stands
        runs = [(start, match) for start, half in _all_characters() for match in regex.finditer(f"{escape}+", half)]
    except regex.error as error:
        raise PatternError(f"it is no regular expression: {error}") from error
    return _without_zero((start + match.start(), start + match.end() - 1) for start, match in runs)


def _without_zero(ranges: Iterable[tuple[int, int]]) -> Ranges:
    return _others(_others(ranges))


_ANY = Repeated(Characters(_others(())), 0, None)


@lru_cache(maxsize=_PATTERNS_KEPT)
def read_pattern(pattern: str) -> Part:
    """Return what fully matches the texts in which `pattern` is found.

    Raises:
        PatternError: the pattern is malformed, or has something that no automaton can do.
    """
    if len(pattern) > _LONGEST:
        raise PatternError(f"it has more than {_LONGEST:,} characters, in {pattern[:80]!r}: check it afterwards")
    read = _Reader(pattern).read(is_searched=True)
    if _written(read) > _MOST_WRITTEN:
        raise PatternError(
            f"it has more than {_MOST_WRITTEN:,} characters when its repetitions are written out: repeat less "
            "often, or check it afterwards"
        )
    return read


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern, self._place = pattern, 0
        self._num_ranges = 0

    def read(self, *, is_searched: bool) -> Part:
        found = [self._searched() if is_searched else self._alternatives(0)]
        while self._takes("|"):
            found.append(self._searched())
        if self._place < len(self._pattern):
            raise self._refusal(f"{self._pattern[self._place]!r} stands where it cannot")
        return OneOfParts(tuple(found))

    def _searched(self) -> Part:
        before = () if self._takes("^") else (_ANY,)
        part = self._sequence(0, is_searched=True)
        return InSequence((*before, part, *(() if self._takes("$") else (_ANY,))))

    def _takes(self, sign: str) -> bool:
        is_there = self._pattern.startswith(sign, self._place)
        self._place += len(sign) * is_there
        return is_there

    def _next(self) -> str:
        """Consume a character."""
        if self._place >= len(self._pattern):
            raise self._refusal("no regular expression: it ends behind a backslash or a bracket")
        self._place += 1
        return self._pattern[self._place - 1]

    def _counted(self, ranges: Ranges) -> Ranges:
        self._num_ranges += len(ranges)
        if self._num_ranges > _LONGEST:
            raise self._refusal("classes of too many characters")
        return ranges

    def _refusal(self, what: str, kind: type[PatternError] = PatternError) -> PatternError:
        return kind(f"{what}, in {self._pattern[:80]!r}: write it without, or check it afterwards")

    def _alternatives(self, depth: int) -> Part:
        if depth > _DEEPEST:
            raise self._refusal("too many brackets stand in each other")
        found = [self._sequence(depth)]
        while self._takes("|"):
            found.append(self._sequence(depth))
        return OneOfParts(tuple(found)) if len(found) > 1 else found[0]

    def _sequence(self, depth: int, *, is_searched: bool = False) -> Part:
        found: list[Part] = []
        while self._place < len(self._pattern) and self._pattern[self._place] not in "|)":
            if self._pattern[self._place] == "$" and is_searched:
                break
            found.append(self._repeated(self._atom(depth)))
        return InSequence(tuple(found))

    def _repeated(self, atom: Part) -> Part:
        if _FUZZY.match(self._pattern, self._place):
            raise self._refusal("'{' that is no count (write '\\{')")
        repeat = _REPEAT.match(self._pattern, self._place)
        if repeat is None:
            return atom
        self._place = repeat.end()
        sign, least, comma, most, manner = repeat.groups()
        if manner == "+":
            raise self._refusal("a repetition that gives nothing back")
        if sign:
            return Repeated(atom, int(sign == "+"), 1 if sign == "?" else None)
        highest = _count(most or least) if most or not comma else None
        if highest is not None and highest < _count(least):
            raise self._refusal(f"no regular expression: {repeat[0]!r}")
        return Repeated(atom, _count(least), highest)

    def _atom(self, depth: int) -> Part:
        sign = self._pattern[self._place]
        if sign in "^$":
            raise self._refusal(f"{sign!r} in the middle", LookingError)
        if _REPEAT.match(self._pattern, self._place):
            raise self._refusal(f"no regular expression: {sign!r} stands behind nothing")
        self._place += 1
        if sign == "(":
            return self._group(depth)
        if sign == "[":
            return Characters(self._counted(self._class()))
        if sign == ".":
            return Characters(_others(((10, 10),)))
        if sign == "\\":
            return Characters(self._counted(self._escape(is_in_class=False)))
        if not _without_zero(_single(sign)):
            raise self._refusal("half of a surrogate pair, or a zero")
        return Characters(_single(sign))

    def _group(self, depth: int) -> Part:
        named = _NAMED.match(self._pattern, self._place)
        if named is not None:
            self._place = named.end()
        elif not self._takes("?:") and self._takes("?"):
            raise self._refusal("looking ahead or behind, or flags", LookingError)
        inside = self._alternatives(depth + 1)
        if not self._takes(")"):
            raise self._refusal("a bracket that is not closed")
        return inside

    def _escape(self, *, is_in_class: bool) -> Ranges:
        """Read an escape after its backslash: one character, or several."""
        letter = self._next()
        where = " in a class" if is_in_class else ""
        if not is_in_class and (letter.isdigit() or letter in "kg"):
            raise self._refusal("a backreference", LookingError)
        if letter.lower() in _LETTERS:
            ranges = _Reader(_LETTERS[letter.lower()][1:])._class()
            return ranges if letter.islower() else _others(ranges)
        if letter in _CONTROLS:
            return _single(_CONTROLS[letter])
        if letter in "sSpP":
            name = self._braces(letter).strip("{}").lower().replace("_", "")  # however it is spelled
            return _of_unicode(f"\\{letter}" + (f"{{{name}}}" if name else ""))
        if letter in "xu":
            try:
                found = _single(chr(int(self._braces(letter), 16)))
            except ValueError:
                raise self._refusal(f"'\\{letter}'{where}") from None
            if not is_in_class and not _without_zero(found):
                raise self._refusal("half of a surrogate pair, or a zero")
            return found
        if letter.isalpha() or letter.isdigit():
            raise self._refusal(f"'\\{letter}'{where}", LookingError if letter in "bB" else PatternError)
        return _single(letter)

    def _braces(self, letter: str) -> str:
        """Consume and return the rest of an escape after its letter: {Lu}, 1f, 20ac."""
        form = _BRACES.get(letter.lower())
        if form is None:
            return ""
        found = form.match(self._pattern, self._place)
        if found is None:
            raise self._refusal(f"'\\{letter}'")
        self._place = found.end()
        return found[0]

    def _class(self) -> Ranges:
        """Read a class after its bracket."""
        is_negated = self._takes("^")
        first, found = self._place, list[tuple[int, int]]()
        while self._pattern[self._place : self._place + 1] != "]" or self._place == first:
            if self._place >= len(self._pattern):
                raise self._refusal("a class that is not closed")
            one = self._member()
            is_range = self._pattern[self._place : self._place + 1] == "-"
            if not is_range or self._pattern[self._place + 1 : self._place + 2] in ("", "]"):
                found += one
                continue
            self._place += 1
            other = self._member()
            if any(len(each) != 1 or each[0][0] < each[0][1] for each in (one, other)):
                found += (*one, (ord("-"), ord("-")), *other)
            elif other < one:
                raise self._refusal("no regular expression: a range that ends before it begins")
            else:
                found.append((one[0][0], other[0][1]))
        self._place += 1
        return _others(found) if is_negated else _without_zero(found)

    def _member(self) -> Ranges:
        """Read a character of a class, or an escape for several."""
        sign = self._next()
        if sign == "[" and _POSIX.match(self._pattern, self._place):
            raise self._refusal("'[:' in a class, as POSIX has it")
        return self._escape(is_in_class=True) if sign == "\\" else _single(sign)


def _single(character: str) -> Ranges:
    return ((ord(character), ord(character)),)


def _count(digits: str) -> int:
    """Parse a count, capped at `_MANY` however many digits there are."""
    return min(_MANY, int(digits.lstrip("0")[:10] or "0"))


def _written(part: Part) -> int:
    """Count the characters of a part with its required repetitions written out, capped at `_MANY`."""
    if isinstance(part, Characters):
        return 1
    if isinstance(part, Repeated):
        return min(_MANY, _written(part.part) * max(1, part.least))
    return min(_MANY, 1 + sum(map(_written, part.parts)))


@dataclass(frozen=True, slots=True)
class ByteDfa:
    """Deterministic automaton: from state `start`, `ways[state][byte]` is the next state.

    The bytes written match when a state of `finals` is reached.
    """

    start: int
    finals: frozenset[int]
    ways: Mapping[int, Mapping[int, int]]


class _Piece(NamedTuple):
    """Written-out part: its first and last places as bits, and whether it may match nothing."""

    first: int
    last: int
    is_empty: bool


_NOTHING = _Piece(0, 0, True)


class _Places:
    """Places of an expression, and what may follow each: characters with repetitions written out (Glushkov, 1961)."""

    def __init__(self, times: int) -> None:
        # Place 0 is before all characters.
        self.characters: list[Ranges] = [()]
        self.follow = [0]
        self._most, self._work_left = times * _MOST_PLACES, times * _MOST_WORK

    def look(self, count: int) -> None:
        """Count work. Raise `_TooLargeError` when it is too much."""
        self._work_left -= count
        if self._work_left < 0:
            raise _TooLargeError

    def add(self, part: Part) -> _Piece:
        """Add a part; return where it begins and ends."""
        self.look(1)
        if isinstance(part, Characters):
            if len(self.follow) > self._most:
                raise _TooLargeError
            self.characters.append(part.ranges)
            self.follow.append(0)
            bit = 1 << len(self.follow) - 1
            return _Piece(bit, bit, False)
        if isinstance(part, InSequence):
            return self._joined(map(self.add, part.parts))
        if isinstance(part, OneOfParts):
            pieces = [self.add(each) for each in part.parts]
            firsts, lasts, empties = zip(*pieces, strict=True)
            return _Piece(reduce(or_, firsts), reduce(or_, lasts), any(empties))
        if part.most is None:
            *required, repeated = [self.add(part.part) for _ in range(max(1, part.least))]
            self._join(repeated.last, repeated.first)
            return self._joined([*required, repeated._replace(is_empty=repeated.is_empty or not part.least)])
        pieces = [self.add(part.part) for _ in range(part.most)]
        # x{0,3} is (x(x(x)?)?)?, so that each is followed by the next one alone.
        optional = _NOTHING
        for piece in reversed(pieces[part.least :]):
            optional = self._joined([piece, optional])._replace(is_empty=True)
        return self._joined([*pieces[: part.least], optional])

    def _joined(self, pieces: Iterable[_Piece]) -> _Piece:
        found = _NOTHING
        for piece in pieces:
            self._join(found.last, piece.first)
            found = _Piece(
                found.first | (piece.first if found.is_empty else 0),
                piece.last | (found.last if piece.is_empty else 0),
                found.is_empty and piece.is_empty,
            )
        return found

    def _join(self, lasts: int, firsts: int) -> None:
        for place in self.bits(lasts):
            self.follow[place] |= firsts

    def bits(self, places: int) -> Iterator[int]:
        """Yield the places of a set."""
        self.look(places.bit_count())
        while places:
            low = places & -places
            yield low.bit_length() - 1
            places ^= low

    def classes(self) -> list[tuple[Ranges, int]]:
        """Return the classes of characters that no place tells apart, each with the places that match it."""
        places: dict[Ranges, int] = {}
        for place, ranges in enumerate(self.characters):
            places[ranges] = places.get(ranges, 0) | 1 << place
        cuts = sorted({cut for ranges in places for first, last in ranges for cut in (first, last + 1)})
        matched = [0] * len(cuts)
        for ranges, own in places.items():
            for first, last in ranges:
                for number in range(bisect_left(cuts, first), bisect_left(cuts, last + 1)):
                    matched[number] |= own
        found: dict[int, list[tuple[int, int]]] = {}
        for (first, stop), own in zip(pairwise(cuts), matched, strict=False):
            found.setdefault(own, []).append((first, stop - 1))
        return [(_united(ranges), own) for own, ranges in found.items() if own]


def _automaton(part: Part, times: int = 1) -> ByteDfa:
    """Return the automaton of the texts that a part fully matches. Raise `_TooLargeError` if it takes too much work.

    Args:
        times: how many times as much work, and as many places, as for a stranger's pattern are allowed.
    """
    places = _Places(times)
    whole = places.add(part)
    places.follow[0] = whole.first
    last = whole.last | whole.is_empty
    classes = places.classes()
    numbers, waiting = {1: 0}, [1]
    edges: list[dict[int, list[Ranges]]] = []
    for state in waiting:  # which grows
        following = 0
        for place in places.bits(state):
            following |= places.follow[place]
        places.look(len(classes))
        ways: dict[int, list[Ranges]] = {}
        for ranges, own in classes:
            if target := following & own:
                if target not in numbers:
                    numbers[target] = len(numbers)
                    waiting.append(target)
                ways.setdefault(numbers[target], []).append(ranges)
        edges.append(ways)
    finals = frozenset(number for state, number in numbers.items() if state & last)
    living = _leading_to(finals, edges)
    if 0 not in living:
        raise PatternError("it is no regular expression that can be decoded: no text matches it")
    kept = [{target: ranges for target, ranges in ways.items() if target in living} for ways in edges]
    return ByteDfa(0, finals, _byte_ways(kept, places.look))


def _leading_to(finals: Iterable[int], edges: Sequence[Mapping[int, object]]) -> set[int]:
    before: dict[int, list[int]] = {}
    for state, ways in enumerate(edges):
        for target in ways:
            before.setdefault(target, []).append(state)
    found, waiting = set(finals), list(finals)
    for state in waiting:  # which grows
        new = [each for each in before.get(state, ()) if each not in found]
        found.update(new)
        waiting += new
    return found


_Tail: TypeAlias = tuple[tuple[tuple[int, int], ...], int]
"""Ranges of the bytes that are still to be written of a character, and the state after it."""


def _byte_ways(
    edges: Sequence[Mapping[int, Sequence[Ranges]]], look: Callable[[int], None]
) -> dict[int, dict[int, int]]:
    """Return the ways of states over bytes, for ways over characters: by target, their ranges."""
    ways: dict[int, dict[int, int]] = {}
    known: dict[tuple[_Tail, ...], int] = {}
    waiting: list[tuple[int, tuple[_Tail, ...]]] = []
    for state, targets in enumerate(edges):
        look(sum(len(ranges) for several in targets.values() for ranges in several))
        pairs = ((each, target) for target, several in targets.items() for ranges in several for each in ranges)
        waiting.append((state, tuple((bytes_, target) for each, target in pairs for bytes_ in _utf8(*each))))
    for node, tails in waiting:  # which grows
        after: dict[int, list[_Tail]] = {}
        look(len(tails))
        for ((low, high), *rest), target in tails:
            for byte in range(low, high + 1):
                after.setdefault(byte, []).append((tuple(rest), target))
        ways[node] = {}
        for byte, several in after.items():
            key = tuple(several)
            if not key[0][0]:
                ways[node][byte] = key[0][1]
                continue
            if key not in known:
                known[key] = len(edges) + len(known)
                waiting.append((known[key], key))
            ways[node][byte] = known[key]
        look(len(after))
    return ways


@lru_cache(maxsize=4096)
def _utf8(first: int, last: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return the UTF-8 bytes of a range of characters: each a range of bytes at each place."""
    for limit in (0x7F, 0x7FF, 0xFFFF):
        if first <= limit < last:
            return _utf8(first, limit) + _utf8(limit + 1, last)
    for size in range(1, len(chr(last).encode())):
        below = (1 << 6 * size) - 1
        if first & ~below != last & ~below:
            if first & below:
                return _utf8(first, first | below) + _utf8((first | below) + 1, last)
            if last & below != below:
                return _utf8(first, (last & ~below) - 1) + _utf8(last & ~below, last)
    return (tuple(zip(chr(first).encode(), chr(last).encode(), strict=True)),)


@lru_cache(maxsize=_PATTERNS_KEPT)
def full_match(expression: str) -> ByteDfa | None:
    """Return the automaton of the texts that an expression of ours fully matches; None if it would be too large.

    Raises:
        PatternError: the expression is not valid.
    """
    try:
        return _automaton(_Reader(expression).read(is_searched=False), _TIMES_OURS)
    except _TooLargeError:
        return None


@lru_cache(maxsize=_PATTERNS_KEPT)
def pattern_dfa(pattern: str) -> ByteDfa | None:
    """Return the automaton of all texts in which a user's pattern is found; None if it would be too large.

    Raises:
        PatternError: it is not a regular expression, or has something that no automaton can do.
    """
    read = read_pattern(pattern)
    try:
        regex.compile(pattern)  # only now: it writes repetitions out, however many
    except (regex.error, ValueError, OverflowError) as error:
        raise PatternError(f"it is no regular expression: {error}") from error
    try:
        return _automaton(read)
    except _TooLargeError:
        return None


def pattern_problem(pattern: str) -> str | None:
    """Return why a pattern cannot be decoded; None if it can."""
    try:
        pattern_dfa(pattern)
    except PatternError as error:
        return str(error)
    return None


def is_checkable(pattern: str) -> bool:
    """Return whether a pattern that looks around is short and compiles fast, so that a text can be held against it."""
    counts = [max(_count(least), _count(most), 1) for least, most in _COUNTS.findall(pattern[:_MOST_CHECKED])]
    if len(pattern) > _MOST_CHECKED or math.prod(counts) > _MOST_REPEATED:
        return False
    if _FUZZY.search(pattern) or _POSIX.search(pattern):
        return False
    try:
        read_pattern(pattern)
    except LookingError:
        with suppress(regex.error):
            return bool(regex.compile(pattern))
    except PatternError:
        pass
    return False
