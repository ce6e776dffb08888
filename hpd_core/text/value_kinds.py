"""What a value may be: the constraint of a branch (hpd_core/completion.py), independent of records and their schemas.

A value is JSON on one line, ` <value>,` and a newline; the space and the comma may miss. `nullable`: null is allowed,
too, and means that there is none.

    FreeText()               anything: the line as it is
    JsonString()             "..."; what stands between the quotes may be any text
    Pattern("[A-Z]{2}")      "..." in which the regular expression finds something; ^ and $ pin it
    Verbatim()               "..." that stands in the trunk's text
    OneOf(("red", 5))        "red" or 5
    Number(), Integer()      12, 1.5, "1,250.5": in the forms that texts have (text/value_automata.py)
    Boolean()                true or false
    ListOf(Number())         [1, 2]
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

_JSON = json.JSONEncoder(ensure_ascii=False)  # made once: a document has hundreds of runs
JsonScalar: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class FreeText:
    """Any text on one line."""

    nullable: bool = False


@dataclass(frozen=True, slots=True)
class JsonString:
    """A string of any text; a line break in it is written \\n."""

    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Pattern:
    """A string in which the regular expression `regex` finds something; with ^ and $ the whole string is meant.

    Word boundaries, backreferences and looking ahead or behind are refused, by whoever takes a kind
    (text/patterns.py: `PatternError`). What would take too large an automaton, or no line can hold, is decoded as a
    `JsonString`.
    """

    regex: str
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A string that stands in the trunk's text: the likeliest of its runs of characters (text/runs.py)."""

    nullable: bool = False


@dataclass(frozen=True)
class OneOf:
    """One of some values, which are JSON scalars."""

    values: tuple[JsonScalar, ...]
    nullable: bool = False

    @cached_property
    def spellings(self) -> list[str]:
        """Each as JSON writes it."""
        return [spelled(value) for value in self.values]

    def __contains__(self, value: Any) -> bool:
        """Whether it is one of them: 1 is not true."""
        return spelled(value) in self._spelled

    @cached_property
    def _spelled(self) -> frozenset[str]:
        return frozenset(self.spellings)


@dataclass(frozen=True, slots=True)
class Number:
    """A number."""

    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number; thousands may be parted by commas."""

    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Boolean:
    """True or false."""

    nullable: bool = False


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of values of one kind, in one value. In a list numbers are written as JSON has them, or in quotes; whole
    numbers as JSON has them.

    Attributes:
        most: of its items, the first ones that are read; None: all. It is no constraint: a model that may not write
            the comma behind the last of them would make that one longer instead.
    """

    item: JsonString | Pattern | OneOf | Number | Integer | Boolean
    nullable: bool = False
    most: int | None = None


ValueKind: TypeAlias = FreeText | JsonString | Pattern | Verbatim | OneOf | Number | Integer | Boolean | ListOf


def spelled(value: Any) -> str:
    """A value as an answer writes it: JSON on one line."""
    return _JSON.encode(value)


def without_pattern(kind: ValueKind) -> ValueKind:
    """The kind, with texts of any form where it has those of a pattern."""
    match kind:
        case Pattern():
            return JsonString(kind.nullable)
        case ListOf(item=Pattern()):
            return replace(kind, item=JsonString())
    return kind


def is_closed(kind: ValueKind) -> bool:
    """Whether it can only be one of a few, which the likeliest is chosen of (text/member_tries.py)."""
    return isinstance(kind, OneOf | Boolean)
