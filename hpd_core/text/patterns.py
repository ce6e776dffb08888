"""Syntax of a user's regular expression: translated to Rust's, and measured before an automaton is built.

The automaton of a small expression may have 2**n states. This happens if a part of unknown length precedes n characters
that are not fixed, as in `[ab]*a[ab]{20}`. `risk` measures this n; `size` is the number of characters with repetitions
written out.

Regular expressions as automata over bytes, built by outlines-core (in the syntax of Rust's library).

This module adds the meaning of a pattern in JSON Schema, and refuses patterns that would take minutes. A pattern is
searched for: `^` and `$` at the ends of its alternatives anchor it. `\\d` and `\\w` are those of ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf

import regex
from outlines_core import Index, Vocabulary

from hpd_core.errors import HPDError

_DEEPEST = 50
_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_"}
_NEGATED = {"D": "0-9", "W": "A-Za-z0-9_"}
_KEPT = frozenset("sSntrfvpPxu")
_REPEAT = re.compile(r"(?:([*+?])|\{(\d+)(,?)(\d*)\})([?+]?)")
# The library that checks answers reads it as fuzzy matching or a maximum count; others as plain characters.
_FUZZY = re.compile(r"\{(?:\s*(?:\d+\s*<=?\s*)?\d*[dies]|,\d)")
_POSIX = re.compile(r":\^?\w+:\]")
_MOST_WRITTEN = 50_000
"""Maximum parts of an expression in the library that checks answers, which crashes with some hundred thousand."""
_MANY = 10**9
"""Cap of all counts: counts of nested repetitions can exceed a float."""
_NAMED = re.compile(r"\?P?<[A-Za-z_]\w*>")
_ANY = "(?s:.)*"


class PatternError(HPDError):
    """Regular expression that cannot be decoded; the message says which part, and how to fix it."""


@dataclass(frozen=True, slots=True)
class PatternPart:
    """Part of an expression.

    Attributes:
        expression: the part in the syntax of Rust's library.
        least, most: minimum and maximum number of characters that it matches.
        wide: number of characters that are not fixed, with repetitions written out.
        risk: number of those that follow something of unknown length.
        size: number of characters, with repetitions written out.
        written: number of characters, with only the required repetitions written out.
    """

    expression: str
    least: float = 0
    most: float = 0
    wide: int = 0
    risk: int = 0
    size: int = 0
    written: int = 1

    @property
    def varies(self) -> bool:
        """Whether the part may match beginnings of different lengths of one text."""
        return self.least != self.most and self.wide > 0

    def then(self, other: PatternPart) -> PatternPart:
        """Return the concatenation of this part and `other`."""
        least, most = self.least + other.least, self.most + other.most
        risk = self.risk + (other.wide if self.varies else other.risk)
        return PatternPart(
            self.expression + other.expression,
            least,
            most,
            self.wide + other.wide,
            # `other` can start at no more places than this.
            int(min(risk, most - least)),
            self.size + other.size,
            self.written + other.written,
        )

    @property
    def has_letters(self) -> bool:
        """Whether the part has a Unicode class: each takes hundreds of states over bytes."""
        return "\\p" in self.expression.lower()

    def repeated(self, least: int, most: float, sign: str) -> PatternPart:
        """Return this part repeated. Raise PatternError if it is too long when written out."""
        times = int(most) if most != inf else max(1, least)
        wide = min(_MANY, self.wide * times)
        written = self.written * max(1, least)
        if written > _MOST_WRITTEN:
            raise PatternError(
                f"it has more than {_MOST_WRITTEN:,} characters when its repetitions are written out: repeat less "
                "often, or check it afterwards"
            )
        return PatternPart(
            f"(?:{self.expression}){sign}",
            _product(self.least, least),
            _product(self.most, most),
            wide,
            wide if self.varies and (times > 1 or most == inf) else self.risk,
            min(_MANY, self.size * times),
            written,
        )


def _product(characters: float, times: float) -> float:
    """Multiply; the product is capped at `_MANY` unless it is infinite."""
    product = characters * times if characters and times else 0
    return product if product == inf else min(_MANY, product)


def _count(digits: str) -> int:
    """Parse a count, capped at `_MANY` however many digits there are."""
    return min(_MANY, int(digits.lstrip("0")[:10] or "0"))


def one_of(parts: list[PatternPart]) -> PatternPart:
    """Return the alternation of `parts`."""
    if len(parts) == 1:
        return parts[0]
    return PatternPart(
        f"(?:{'|'.join(part.expression for part in parts)})",
        min(part.least for part in parts),
        max(part.most for part in parts),
        1 + sum(part.wide for part in parts),
        max(part.risk for part in parts),
        sum(part.size for part in parts),
        sum(part.written for part in parts),
    )


@lru_cache(maxsize=256)
def read_pattern(pattern: str) -> PatternPart:
    """Return the expression that fully matches the texts in which `pattern` is found.

    Raises:
        PatternError: the pattern is malformed, or has something that no automaton can do.
    """
    try:
        return _Reader(pattern).read()
    except IndexError:
        raise PatternError(f"it is no regular expression: it ends behind a backslash, in {pattern[:80]!r}") from None


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern, self._place = pattern, 0

    def read(self) -> PatternPart:
        found = []
        while True:
            is_pinned = self._takes("^")
            part = self._sequence(0)
            part = part if is_pinned else PatternPart(_ANY, 0, inf, 1, 0, 1).then(part)
            if not self._takes("$"):
                part = part.then(PatternPart(_ANY, 0, inf, 1, 0, 1))
            found.append(part)
            if not self._takes("|"):
                break
        if self._place < len(self._pattern):
            raise self._refusal(f"{self._pattern[self._place]!r} stands where it cannot")
        return one_of(found)

    def _takes(self, sign: str) -> bool:
        is_there = self._pattern.startswith(sign, self._place)
        self._place += len(sign) * is_there
        return is_there

    def _refusal(self, what: str) -> PatternError:
        return PatternError(f"{what}, in {self._pattern[:80]!r}: write it without, or check it afterwards")

    def _alternatives(self, depth: int) -> PatternPart:
        if depth > _DEEPEST:
            raise self._refusal("too many brackets stand in each other")
        found = [self._sequence(depth)]
        while self._takes("|"):
            found.append(self._sequence(depth))
        return one_of(found)

    def _sequence(self, depth: int) -> PatternPart:
        found = PatternPart("")
        while self._place < len(self._pattern) and self._pattern[self._place] not in "|)":
            if self._pattern[self._place] == "$" and depth == 0:
                break
            found = found.then(self._repeated(self._atom(depth)))
        return found

    def _repeated(self, atom: PatternPart) -> PatternPart:
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
            return atom.repeated(int(sign == "+"), 1 if sign == "?" else inf, sign)
        high = inf if comma and not most else _count(most or least)
        return atom.repeated(_count(least), high, repeat[0].removesuffix("?"))

    def _atom(self, depth: int) -> PatternPart:
        sign = self._pattern[self._place]
        if sign in "^$":
            raise self._refusal(f"{sign!r} in the middle")
        self._place += 1
        if sign == "(":
            return self._group(depth)
        if sign == "[":
            return PatternPart(self._class(), 1, 1, 1, 0, 1)
        if sign == ".":
            return PatternPart(".", 1, 1, 1, 0, 1)
        if sign == "\\":
            return self._escape()
        return PatternPart(re.escape(sign) if sign.isascii() else sign, 1, 1, 0, 0, 1)

    def _group(self, depth: int) -> PatternPart:
        named = _NAMED.match(self._pattern, self._place)
        if named is not None:
            self._place = named.end()
        elif not self._takes("?:") and self._takes("?"):
            raise self._refusal("looking ahead or behind, or flags")
        inside = self._alternatives(depth + 1)
        if not self._takes(")"):
            raise self._refusal("a bracket that is not closed")
        return inside

    def _escape(self) -> PatternPart:
        letter = self._pattern[self._place]
        self._place += 1
        if letter.isdigit() or letter in "kg":
            raise self._refusal("a backreference")
        if letter in _CLASSES:
            return PatternPart(f"[{_CLASSES[letter]}]", 1, 1, 1, 0, 1)
        if letter in _NEGATED:
            return PatternPart(f"[^{_NEGATED[letter]}]", 1, 1, 1, 0, 1)
        if letter.isalpha() and letter not in _KEPT:
            raise self._refusal(f"'\\{letter}'")
        return PatternPart(f"\\{letter}{self._braces(letter)}", 1, 1, int(letter in "sSpP"), 0, 1)

    def _braces(self, letter: str) -> str:
        """Consume and return the rest of an escape after its letter: {Lu}, 1f, 20ac."""
        found = re.compile({"p": r"\{[^}]*\}|\w", "x": r"\w\w", "u": r"\w{4}|\{\w+\}"}.get(letter.lower(), "")).match(
            self._pattern, self._place
        )
        if found is None:
            raise self._refusal(f"'\\{letter}'")
        self._place = found.end()
        return found[0]

    def _class(self) -> str:
        found = "[^" if self._takes("^") else "["
        first = self._place
        while self._place < len(self._pattern) and (self._pattern[self._place] != "]" or self._place == first):
            sign = self._pattern[self._place]
            self._place += 1
            if sign == "[" and _POSIX.match(self._pattern, self._place):
                raise self._refusal("'[:' in a class, as POSIX has it")
            if sign != "\\":
                # Rust's classes have operators of their own.
                found += f"\\{sign}" if sign in "[]&~" else sign
                continue
            letter = self._pattern[self._place]
            self._place += 1
            if letter == "b" or letter.isdigit() or (letter.isalpha() and letter not in {*_KEPT, *"dwDW"}):
                raise self._refusal(f"'\\{letter}' in a class")
            found += _CLASSES.get(letter) or f"\\{letter}{self._braces(letter)}"
        self._place += 1
        return found + "]"


_END = 256  # not a byte: the token that outlines-core asks for after a match
_LAST = 0
_LARGEST_RISK = 10
_LARGEST_RISK_OF_LETTERS = 5
_LARGEST_SIZE = 1000
_MOST_WAYS = 200_000
_PATTERNS_KEPT = 16
"""Maximum number of cached automata, each of some MB at most."""


@dataclass(frozen=True, slots=True)
class ByteDfa:
    """Deterministic automaton: from state `start`, `ways[state][byte]` is the next state.

    The bytes written match when a state of `finals` is reached.
    """

    start: int
    finals: frozenset[int]
    ways: Mapping[int, Mapping[int, int]]


@lru_cache(maxsize=1)
def _bytes() -> Vocabulary:
    return Vocabulary(_END, {bytes([byte]): [byte] for byte in range(_END)})


@lru_cache(maxsize=_PATTERNS_KEPT)
def full_match(expression: str) -> ByteDfa:
    """Return the automaton of the texts that an expression, in the syntax of Rust's library, fully matches.

    Texts that contain the character 0 are excluded.

    Raises:
        PatternError: the expression is not valid.
    """
    try:
        # Rust's library prefers: `a|ab` ends with "a". After a last character nothing is left to prefer.
        index = Index(f"(?:{expression})\\x00", _bytes())
    except ValueError as error:
        raise PatternError(f"it is no regular expression that can be decoded: {error}") from error
    ended, found = index.get_final_states(), index.get_transitions()
    ways = {
        state: {byte: target for byte, target in ways.items() if byte not in (_LAST, _END)}
        for state, ways in found.items()
    }
    finals = frozenset(state for state, ways in found.items() if ways.get(_LAST) in ended)
    return ByteDfa(index.get_initial_state(), finals, ways)


@lru_cache(maxsize=_PATTERNS_KEPT)
def pattern_dfa(pattern: str) -> ByteDfa | None:
    """Return the automaton of all texts in which a user's pattern is found; None if it would be too large.

    Raises:
        PatternError: it is not a regular expression, or has something that no automaton can do.
    """
    read = read_pattern(pattern)
    try:
        regex.compile(pattern)  # only now: it writes repetitions out, however many
    except regex.error as error:
        raise PatternError(f"it is no regular expression: {error}") from error
    if read.size > _LARGEST_SIZE or read.risk > (_LARGEST_RISK_OF_LETTERS if read.has_letters else _LARGEST_RISK):
        return None
    # Without the cache: automata that are too large are not kept.
    dfa = full_match.__wrapped__(read.expression)
    return dfa if sum(map(len, dfa.ways.values())) <= _MOST_WAYS else None
