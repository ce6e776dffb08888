"""The runs of a document, their spellings, and the tries that come and go with them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hpd_core.decoding.run_tries import RunTries, WordEncoder
from hpd_core.text.member_tries import KindTables
from hpd_core.text.runs import Runs, lines_of, runs_of
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.value_kinds import spelled
from tests.core.text.test_tokenization import _normalizing_tokenizer
from tests.tables import table


def tries(tokenizer: Any, max_fed: int = 64) -> RunTries:
    segments = SegmentTokenizer(tokenizer)
    endings = segments.endings(len(tokenizer))
    return RunTries(segments, endings, KindTables(tokenizer, len(tokenizer), endings, max_fed))


def plain_runs(line: str) -> set[str]:
    """As the page has it, for letters, digits, marks and spaces of ASCII."""

    def kind(place: int) -> str:
        character = line[place]
        return "a" if character.isalpha() else "0" if character.isdigit() else character + str(place)

    found = set()
    for start in range(len(line)):
        if line[start].isspace() or (start and kind(start) == kind(start - 1)):
            continue
        for stop in range(start + 1, len(line) + 1):
            run = line[start:stop]
            is_whole = stop == len(line) or kind(stop) != kind(stop - 1)
            is_near = len(run) <= 30 and len(run.split()) <= 4
            if run == run.rstrip() and (is_near or (is_whole and len(run.split()) <= 12)):
                found.add(run)
    return found


@given(st.text("aB 1-.\t", max_size=60))
def test_runs_are_what_is_said_of_them(text: str) -> None:
    lines = lines_of([text])
    found = runs_of(lines)
    assert len(set(found)) == len(found)
    assert set(found) == set().union(*map(plain_runs, lines))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(st.lists(TEXTS, max_size=3))
def test_a_run_stands_in_one_line_of_one_field(texts: list[str]) -> None:
    for run in runs_of(lines_of(texts)):
        assert run == run.strip() != ""
        assert run.splitlines() == [run]
        assert any(run in text for text in texts)


@table(
    ("text", "expected"),
    [
        ("日本ABC", {"日", "日本", "日本A", "本", "本AB", "ABC"}),
        ("cafe\u0301 👩‍👩‍👧", {"caf", "cafe\u0301", "👩‍👩‍👧", "cafe\u0301 👩‍👩‍👧"}),
        ("a &amp; b", {"&", "&amp", "&amp;", "amp;", "; b"}),
        ("a\x1f \x1f b\0", {"a", "b", "b\0"}),
    ],
)
def test_letters_are_whole_in_every_script(text: str, expected: set[str]) -> None:
    found = set(runs_of([text]))
    assert expected <= found
    assert not {"cafe", "👩", "\u0301", "BC", "a\x1f", "\x1f"} & found


@given(lines=st.lists(TEXTS, max_size=5))
def test_words_apart_are_the_tokens_of_the_whole(lines: list[str], tiny_tokenizer: Any) -> None:
    segments = SegmentTokenizer(tiny_tokenizer)
    assert segments.encodes_words_apart
    asked = [*lines, *(f' "a {line} <|im_end|> b",\n' for line in lines)]
    assert WordEncoder(segments).encode(asked) == segments.encode_text(asked)


def test_what_a_tokenizer_changes_is_given_as_it_stands() -> None:
    made = tries(_normalizing_tokenizer())
    asked = Runs(("a cafe\u0301 b", "a\\\\b", "a\\b"), 30)
    segments = made._segments
    for text in ("cafe\u0301", "a\\b", "a\\\\b"):
        (tokens,) = segments.encode_text([f" {spelled(text)},\n"])
        tokens = tokens[: made._endings.length(tokens, True)]
        raw = segments.decode([tokens])[0].split("\n")[0]
        assert made.as_it_stands(asked, "whatever was read", raw, tokens) == text
