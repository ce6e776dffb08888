"""Regular expressions: what is decoded is what a search finds, and what cannot be searched for is refused by name."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hpd_core.text import grammars as grammars_module
from hpd_core.text.grammars import Grammars, LiveGrammar, PatternError, compiled, grammar_problem
from hpd_core.text.value_kinds import ListOf, Pattern, ValueKind, spelled
from hpd_core.text.values import read_value
from tests.examples import examples
from tests.tables import table

CLASSES = ["[ab]", "[^a]", "[a-c]", r"\d", r"\w", ".", "[]a]", "[^]]", r"[\d-]"]
ATOMS = st.sampled_from([*CLASSES, "a", "b", "é", r"\.", "-", r"\]"])


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    several = st.lists(inner, min_size=1, max_size=3)
    groups = st.builds(lambda parts: f"(?:{'|'.join(parts)})", several) | st.builds(lambda each: f"({each})", inner)
    repeats = st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?"])
    return several.map("".join) | groups | st.builds(lambda group, sign: group + sign, groups, repeats)


EXPRESSIONS = st.recursive(ATOMS, _joined, max_leaves=8)
PATTERNS = st.builds("{}{}{}".format, st.sampled_from(["", "^"]), EXPRESSIONS, st.sampled_from(["", "$"]))


@pytest.fixture(scope="module")
def grammars(tiny_tokenizer: Any) -> Grammars:
    return Grammars(tiny_tokenizer, len(tiny_tokenizer))


@settings(max_examples=examples(200), deadline=None)
@given(pattern=PATTERNS, other=PATTERNS, texts=st.lists(st.text("abcé1.-]٣", max_size=6), min_size=1, max_size=8))
def test_what_may_be_written_is_what_a_search_finds(
    pattern: str, other: str, texts: list[str], grammars: Grammars, tiny_tokenizer: Any
) -> None:
    both = f"{pattern}|{other}"
    assume(grammar_problem(Pattern(both)) is None)  # of two alternatives that are equal, the end is factored out
    for text in texts:
        shared = grammars.matcher(Pattern(both))
        assert shared is not None
        shared.matcher.reset()
        ids = tiny_tokenizer(f" {spelled(text)},\n")["input_ids"]
        assert (shared.matcher.validate_tokens(ids) == len(ids)) == bool(compiled(both).search(text)), (both, text)


@table(
    ("pattern", "what"),
    [
        (r"(a)\1", "backreferences are not supported"),
        ("(?=a)b", "look-around"),
        (r"\bfoo", "lookarounds not supported"),
        ("a$b", "lookarounds not supported"),
        # A grammar reads these otherwise than a search.
        ("^[[a]b]$", "read in two ways"),
        ("^[a-z&&[^aeiou]]$", "read in two ways"),
        ("^[+--]$", "read in two ways"),
        ("^(?i)é$", "read in two ways"),
    ],
)
def test_what_can_only_be_checked_is_told(pattern: str, what: str) -> None:
    assert what in (grammar_problem(Pattern(pattern)) or "")
    compiled(pattern)


@table(
    ("pattern", "what"),
    [
        ("(", "no regular expression"),
        ("[" * 20_000, "no regular expression"),
        ("[[:alpha:]]", "read in two ways"),
        ("(?R)", "begins no group"),
        ("(?x)(a{ 5000 }){ 5000 }", "begins no group"),
        ("^a{,3}$", "read in two ways"),
        # With these the library that checks answers takes gigabytes, ends the process or never returns.
        ("^a{10000000}$", "more than 50,000 characters"),
        ("(()()()){20000}", "more than 50,000 characters"),
        (r"((\({1000}[)\]]){1000}){1000}", "more than 50,000 characters"),
        ("a{" + "9" * 5000 + "}", "more than 50,000 characters"),
    ],
)
def test_what_cannot_be_searched_for_is_refused_by_name(pattern: str, what: str) -> None:
    with pytest.raises(PatternError, match=what):
        compiled(pattern)


@table(
    ("kind", "line", "read"),
    [
        (Pattern("^a+$"), ' "aa",\n', ("aa", "value")),
        (Pattern("^a+$"), ' "ab",\n', (None, "invalid")),  # past the limits of its grammar
        (Pattern("^a+$"), ' "a\\n",\n', (None, "invalid")),
        (Pattern("^(?!b)"), " null,\n", (None, "invalid")),
        (Pattern("^[\x01-\x1f]{2}$"), ' "\\r\\b",\n', ("\r\b", "value")),
        (ListOf(Pattern("^a+$")), ' ["a", "aa"],\n', (["a", "aa"], "value")),
        (ListOf(Pattern("^a+$")), ' ["a", 1],\n', (None, "invalid")),
        (ListOf(Pattern("^a+$")), ' "a",\n', (None, "invalid")),
    ],
)
def test_what_was_written_is_held_against_the_pattern(kind: ValueKind, line: str, read: tuple[Any, str]) -> None:
    assert read_value(kind, line, closed=True, fields={"": "\\r\\b"}) == read


@table(
    "pattern",
    [
        "[ab]*a[ab]{40}",
        "((a{1,90}){1,90}){1,90}",
        "^" + "(?:" * 35 + "a" + "{0,4000000000})" * 35 + "*$",
        r"&((\.*\P{L}{0,2}|aa|a?a)??([\D]*?\/*){1,})|^([a\D]*?|[\d-]?[^a]{2}[\s]*|(\p{L}\-{2}a+?)+?a+)*$",
        "^[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}$",
        r"^\p{L}{1,200}$",
        "(a?){40}[ab]{40}",
    ],
)
def test_no_pattern_takes_long(pattern: str, grammars: Grammars) -> None:
    """Automata of each of them, or of one with a bound larger by one, took minutes: six of them stopped a server."""
    started = time.perf_counter()
    shared = grammars.matcher(Pattern(pattern))
    assert shared is not None
    values = [LiveGrammar(2 * number, shared) for number in range(2)]
    states = [0, 2]
    for _ in range(40):
        for number, value in enumerate(values):
            allowed = np.nonzero(value.mask(states[number], 400))[0]
            states[number] = value.behind(states[number], int(allowed[-1]))
    assert time.perf_counter() - started < 5


@table("pattern", [r"^[\w*+-]+$", r"^\++[+*]+$", "^[{d<=1}:a:]$", r"^\{s\(?R$", "^[(?R)]$"])
def test_signs_in_a_class_or_behind_a_backslash_are_characters(pattern: str) -> None:
    compiled(pattern)


def test_a_matcher_that_nobody_uses_makes_room(tiny_tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammars_module, "_MOST_ALIVE", 3)
    grammars = Grammars(tiny_tokenizer, len(tiny_tokenizer))
    for number in range(9):
        shared = grammars.matcher(Pattern(f"^a{number}$"))
        assert shared is not None
        LiveGrammar(0, shared).mask(0, 400)
    del shared
    used = [grammars.matcher(Pattern(f"^b{number}$")) for number in range(5)]
    assert [each is not None for each in used] == [True, True, True, False, False]
