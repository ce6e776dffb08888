"""Regular expressions as automata: they match what Python's own search finds."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hpd_core.text.patterns import ByteDfa, PatternError, pattern_dfa
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


def matches(dfa: ByteDfa, text: str) -> bool:
    state = dfa.start
    for byte in text.encode():
        if byte not in dfa.ways.get(state, {}):
            return False
        state = dfa.ways[state][byte]
    return state in dfa.finals


@settings(max_examples=examples(300), deadline=None)
@given(pattern=PATTERNS, other=PATTERNS, texts=st.lists(st.text("abcé1.-]", max_size=6), min_size=1, max_size=8))
def test_an_automaton_matches_what_a_search_finds(pattern: str, other: str, texts: list[str]) -> None:
    both = f"{pattern}|{other}"
    dfa = pattern_dfa(both)
    assume(dfa is not None)
    assert dfa is not None
    for text in texts:
        assert matches(dfa, text) == bool(re.search(both, text, re.ASCII)), (both, text)


@table(
    ("pattern", "what"),
    [
        (r"(a)\1", "a backreference"),
        ("(?=a)b", "looking ahead or behind"),
        ("(?<!a)b", "looking ahead or behind"),
        ("(?i)a", "flags"),
        (r"\bfoo", r"'\\b'"),
        ("a^b", r"'\^' in the middle"),
        ("(a$)b", r"'\$' in the middle"),
        ("a*+", "gives nothing back"),
        ("(", "a bracket that is not closed"),
        ("*a", "no regular expression"),
        ("a\\", "ends behind a backslash"),
        ("[[:alpha:]]", "as POSIX has it"),
        ("[^[:alpha:]]", "as POSIX has it"),
        ("x{d<=1}", "that is no count"),
        ("(?:ab){1<=e<=3}", "that is no count"),
        ("^a{,3}$", "that is no count"),
        # With these the library that checks answers takes gigabytes, ends the process or never returns.
        ("^a{10000000}$", "more than 50,000 characters"),
        ("(ab|c){500000}", "more than 50,000 characters"),
        ("((a{1000}){1000}){1000}", "more than 50,000 characters"),
        ("a{" + "9" * 5000 + "}", "more than 50,000 characters"),
        ("(" * 60 + "a" + ")" * 60, "too many brackets"),
    ],
)
def test_what_no_automaton_can_do_is_refused_by_name(pattern: str, what: str) -> None:
    with pytest.raises(PatternError, match=what):
        pattern_dfa(pattern)


@table(
    "pattern",
    [
        "[ab]*a[ab]{40}",
        "((a{1,90}){1,90}){1,90}",
        "a.{30}",
        "^" + "(?:" * 35 + "a" + "{0,4000000000})" * 35 + "*$",
        "^ab{1,200}[^,]{1,200}$",
        r"^\p{L}{1,200}$",
        r"&((\.*\P{L}{0,2}|aa|a?a)??([\D]*?\/*){1,})|^([a\D]*?|[\d-]?[^a]{2}[\s]*|(\p{L}\-{2}a+?)+?a+)*$",
    ],
)
def test_what_would_be_too_large_is_seen_at_once(pattern: str) -> None:
    started = time.perf_counter()
    assert pattern_dfa(pattern) is None
    assert time.perf_counter() - started < 5


@table(
    "pattern",
    [
        "^[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}$",
        "^[a-z][a-z0-9-]{4,28}[a-z0-9]$",
        "^[a-z][a-z0-9-]{3,50}$",
        r"^\+?[0-9 ()-]{7,40}$",
        "(a?){40}[ab]{40}",
    ],
)
def test_ordinary_bounds_are_kept_to(pattern: str) -> None:
    """Each once took minutes, twice as long for a bound that is larger by one: six of them stopped a server."""
    assert pattern_dfa(pattern) is not None
