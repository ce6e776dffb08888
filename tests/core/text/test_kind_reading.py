"""What is read of a line by its kind, whatever a model wrote."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core.text.value_kinds import (
    Boolean,
    FreeText,
    Integer,
    JsonString,
    ListOf,
    Number,
    OneOf,
    Pattern,
    ValueKind,
)
from hpd_core.text.values import read_value
from tests.examples import examples
from tests.tables import table

KINDS: list[ValueKind] = [
    FreeText(),
    FreeText(nullable=True),
    *(
        make(nullable)
        for nullable in (False, True)
        for make in (
            JsonString,
            lambda nullable: Pattern("^a", nullable),
            lambda nullable: OneOf(("a", 1, True, 2.5), nullable),
            Number,
            Integer,
            Boolean,
            lambda nullable: ListOf(JsonString(), nullable),
            lambda nullable: ListOf(Integer(), nullable, 2),
            lambda nullable: ListOf(OneOf((1, "a")), nullable),
        )
    ),
]
PIECES = [
    '"',
    "[",
    "]",
    "{",
    ",",
    " ",
    "null",
    "true",
    "1",
    "1.5",
    "-",
    "e9",
    "\\",
    "\\u",
    "\\ud83d",
    "a",
    "é",
    "½",
    "/",
]
LINES = st.lists(st.sampled_from([*PIECES, "9" * 5000, "[" * 3000]), max_size=8).map("".join)


@table(
    ("kind", "line", "expected"),
    [
        (JsonString(), ' "a\\nb",\n', ("a\nb", "value")),
        (JsonString(), " null,\n", (None, "invalid")),
        (JsonString(nullable=True), " null,\n", (None, "absent")),
        (JsonString(), ' "a\n', (None, "invalid")),
        (OneOf((1, True)), " true,\n", (True, "value")),
        (OneOf((1, "1")), " 1,\n", (1, "value")),
        (OneOf((1.0,)), " 1,\n", (None, "invalid")),
        (Integer(), " 20,000,\n", (20000, "value")),
        (Integer(), " 1.5,\n", (None, "invalid")),
        (Number(), " 1.0,\n", (1, "value")),
        (Boolean(), ' "No",\n', (False, "value")),
        (ListOf(Integer()), " [1, 1, 2],\n", ([1, 1, 2], "value")),
        (ListOf(Integer()), " [],\n", ([], "value")),
        (ListOf(Boolean(), nullable=True), " [ ],\n", ([], "value")),
        (ListOf(OneOf((1, "a"))), ' ["a", 1],\n', (["a", 1], "value")),
        (ListOf(JsonString()), ' ["a", null],\n', (None, "invalid")),
        (ListOf(JsonString()), ' "ab",\n', (None, "invalid")),
        # Not digit by digit.
        (ListOf(Number()), " 12,\n", (None, "invalid")),
        (ListOf(Integer()), ' "42",\n', (None, "invalid")),
        (ListOf(Boolean()), " true,\n", (None, "invalid")),
    ],
)
def test_what_is_read(kind: ValueKind, line: str, expected: tuple[Any, str]) -> None:
    assert repr(read_value(kind, line, closed=True, fields={"": ""})) == repr(expected)


@settings(max_examples=examples(400), deadline=None)
@given(kind=st.sampled_from(KINDS), line=LINES, closed=st.booleans(), text=LINES)
def test_whatever_is_written_there_is_a_value_or_a_status(kind: ValueKind, line: str, closed: bool, text: str) -> None:
    value, status = read_value(kind, line, closed=closed, fields={"": text})
    assert status in ("value", "absent", "truncated", "invalid")
    if status == "value":
        json.dumps(value, allow_nan=False)
        assert not isinstance(kind, ListOf) or kind.most is None or len(value) <= kind.most
    elif not isinstance(kind, FreeText):
        assert value is None
