"""Kinds of values: the constraint of a branch (hpd_core/requests/calls.py), independent of records and their schemas.

A value is JSON on one line, ` <value>,` and a newline; the space and the comma are optional. `nullable`: null is
allowed, too, and means that there is no value.

    FreeText()               anything: the line as it is
    JsonString()             "..." with any text between the quotes
    Pattern("[A-Z]{2}")      "..." in which the regular expression matches something; ^ and $ anchor it
    Verbatim()               "..." that occurs in the trunk's text
    OneOf(("red", 5))        "red" or 5
    Number(), Integer()      12, 1.5, "1,250.5": in the forms used in texts (text/kind_automata.py)
    Boolean()                true or false
    ListOf(Number())         [1, 2]
    Grammar('{"type": ...}')  any JSON that fits a JSON Schema, on one line
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from hpd_core.types import Attribute

_JSON = json.JSONEncoder(ensure_ascii=False)  # made once: a document has hundreds of runs
JsonScalar: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class FreeText:
    """Text of any form on one line."""

    nullable: bool = False


@dataclass(frozen=True, slots=True)
class JsonString:
    """String of any text; a line break in it is written \\n."""

    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Pattern:
    """String in which the regular expression `regex` matches something; with ^ and $ it must match the whole string.

    Word boundaries, backreferences and looking ahead or behind are refused when a kind is used (`PatternError`).
    """

    regex: str
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Verbatim:
    """String that occurs in the trunk's text: the likeliest of its runs of characters (text/runs.py)."""

    nullable: bool = False


@dataclass(frozen=True)
class OneOf:
    """Choice among some values, which are JSON scalars.

    Attributes:
        synonyms: other texts that mean one of the values, each with that value's number.
    """

    values: tuple[JsonScalar, ...]
    nullable: bool = False
    synonyms: tuple[tuple[str, int], ...] = ()

    @cached_property
    def spellings(self) -> list[str]:
        """Values as JSON writes them."""
        return [spelled(value) for value in self.values]

    def __contains__(self, value: Any) -> bool:
        """Return whether `value` is one of the values; 1 is not true."""
        return spelled(value) in self._spelled

    @cached_property
    def _spelled(self) -> frozenset[str]:
        return frozenset(self.spellings)


@dataclass(frozen=True, slots=True)
class Number:
    """Number, in JSON's form or those used in texts; in quotes one of `units` may follow it."""

    nullable: bool = False
    units: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Integer:
    """Whole number; thousands may be separated by commas."""

    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Boolean:
    """True or false."""

    nullable: bool = False


@dataclass(frozen=True, slots=True)
class ListOf:
    """List of values of one kind, in one value.

    In a list numbers are written as in JSON, or in quotes; whole numbers as in JSON.

    Attributes:
        most: number of first items that are read; None: all. It is not a constraint: a model that may not write
            the comma after the last of them would make that one longer instead.
    """

    item: JsonString | Pattern | OneOf | Number | Integer | Boolean
    nullable: bool = False
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Grammar:
    """JSON that fits a schema, decoded under a grammar (text/grammars.py).

    Attributes:
        schema: JSON Schema as text, whose references are all into it.
    """

    schema: str
    nullable: bool = False


ValueKind: TypeAlias = (
    Grammar | FreeText | JsonString | Pattern | Verbatim | OneOf | Number | Integer | Boolean | ListOf
)


def attribute_kind(attribute: Attribute) -> ValueKind:
    """Return the kind of an attribute's answers, which may be null. Texts, and lists of texts, are free."""
    if attribute.is_text:
        return FreeText(nullable=True)
    item: OneOf | Number | Boolean = Boolean()
    if attribute.type == "number":
        item = Number(units=attribute.unit.names if attribute.unit else ())
    elif attribute.type == "enum":
        numbers = {label: number for number, label in enumerate(attribute.labels)}
        spellings = attribute.vocabulary.spellings.items()
        synonyms = tuple((text, numbers[label]) for text, label in spellings if text != label)
        item = OneOf(attribute.labels, synonyms=synonyms)
    return ListOf(item, nullable=True) if attribute.multiple else replace(item, nullable=True)


def spelled(value: Any) -> str:
    """Return a value as an answer writes it: JSON on one line."""
    return _JSON.encode(value)


def is_closed(kind: ValueKind) -> bool:
    """Return whether the kind has few possible values, of which the likeliest is chosen (text/member_tries.py)."""
    return isinstance(kind, OneOf | Boolean)
