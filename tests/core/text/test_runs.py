"""The runs of a document, their spellings, and the tries that come and go with them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hpd_core.decoding import run_tries
from hpd_core.decoding.prompt import Prompt
from hpd_core.decoding.run_tries import RunTries, WordEncoder
from hpd_core.layout import Branch, tree_layout
from hpd_core.text import runs
from hpd_core.text.closed_answers import ClosedAnswers
from hpd_core.text.constraints import Constraints
from hpd_core.text.member_tries import spelling_of
from hpd_core.text.runs import Runs, lines_of, runs_of
from hpd_core.text.tokenization import SegmentTokenizer
from tests.core.engines import TIMEOUT
from tests.core.text.test_tokenization import _normalizing_tokenizer
from tests.examples import examples
from tests.tables import table
from tests.tiny_model import sentencepiece_tokenizer


def tries(tokenizer: Any, max_fed: int = 64) -> RunTries:
    segments = SegmentTokenizer(tokenizer)
    endings = segments.endings(len(tokenizer))
    closed = ClosedAnswers(tokenizer, endings, max_fed)
    return RunTries(segments, endings, Constraints(tokenizer, len(tokenizer)), closed)


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


def test_long_documents_have_shorter_runs() -> None:
    words = [f"word{number}" for number in range(10_000)]
    longest = []
    for count in (10, 150, 300, 600, 2000):
        found = runs_of([" ".join(words[:count])])
        assert len(found) <= runs.MOST_RUNS
        assert {"word", *words[:20][:count]} <= set(found)
        longest.append(max(len(run.split()) for run in found))
    assert longest == [10, 12, 6, 3, 1]
    assert len(runs_of([" ".join(words)])) == runs.MOST_RUNS


def test_a_text_without_spaces_is_no_endless_word() -> None:
    found = runs_of(["".join(f"a{number}-" for number in range(20_000))])
    assert len(found) == runs.MOST_RUNS
    assert max(map(len, found)) <= 40
    assert max(map(len, runs_of(["x" * 500, "y" * 400]))) == 400


@given(lines=st.lists(TEXTS, max_size=5))
def test_words_apart_are_the_tokens_of_the_whole(lines: list[str], tiny_tokenizer: Any) -> None:
    segments = SegmentTokenizer(tiny_tokenizer)
    assert segments.encodes_words_apart
    asked = [*lines, *(f' "a {line} <|im_end|> b",\n' for line in lines)]
    assert WordEncoder(segments).encode(asked) == segments.encode_text(asked)


def test_a_tokenizer_of_whole_texts_is_given_whole_texts(tiny_tokenizer: Any) -> None:
    by_scripts = Tokenizer.from_str(tiny_tokenizer.backend_tokenizer.to_str())
    parts = [pre_tokenizers.UnicodeScripts(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    by_scripts.pre_tokenizer = pre_tokenizers.Sequence(parts)
    # It leaves out a space that a text begins with, and no other one.
    assert not SegmentTokenizer(PreTrainedTokenizerFast(tokenizer_object=by_scripts)).encodes_words_apart
    segments = SegmentTokenizer(sentencepiece_tokenizer())
    assert not segments.encodes_words_apart
    asked = [' "red shoe",\n', ' "a",\n']
    assert WordEncoder(segments).encode(asked) == segments.encode_text(asked)


@table(("lines", "nullable", "count"), [((), True, 1), ((), False, 1), (("x",), False, 1)])
def test_there_is_always_something_to_choose(
    lines: tuple[str, ...], nullable: bool, count: int, tiny_tokenizer: Any
) -> None:
    trie = tries(tiny_tokenizer).trie(Runs(lines, 9, nullable))
    assert trie.members.tolist() == ([1] if lines else [0])
    assert len(trie.members) == count


def test_what_a_tokenizer_changes_is_given_as_it_stands() -> None:
    made = tries(_normalizing_tokenizer())
    asked = Runs(("a cafe\u0301 b", "a\\\\b", "a\\b"), 30)
    segments = made._segments
    for text in ("cafe\u0301", "a\\b", "a\\\\b"):
        (tokens,) = segments.encode_text(run_tries._lines([text]))
        tokens = tokens[: made._endings.length(tokens, True)]
        raw = segments.decode([tokens])[0].split("\n")[0]
        assert made.as_it_stands(asked, "whatever was read", raw, tokens) == text


def spelled_in(made: RunTries, lease: Any) -> set[tuple[int, ...]]:
    """What a lease keeps, read off the tables: by walking its states."""
    table, found = made._constraints.table, set()
    ways: list[tuple[int, tuple[int, ...]]] = [(lease.kept, ())]
    while ways:
        state, tokens = ways.pop()
        ids, behind = table.choices(np.array([state]))
        for token, target in dict(zip(ids[0].tolist(), behind[0].tolist(), strict=True)).items():
            if target == state:
                found.add(tokens)
            else:
                ways.append((target, (*tokens, token)))
    return found


def expected_of(made: RunTries, asked: Runs) -> set[tuple[int, ...]]:
    trie = made.trie(asked)
    return {tuple(spelling_of(trie, number)[0].tolist()) for number in range(len(trie.members))}


def test_tries_are_gone_with_those_who_had_them(tiny_tokenizer: Any) -> None:
    """Of a thousand documents, three at a time: the tables stay as small as three need them."""
    made, kept, most, sizes = tries(tiny_tokenizer), [], 0, set()
    table = made._closed.table
    for number in range(1000):
        kept.append(made._lend(Runs((f"red {number * 7919 % 1000} shoe",), 20)))
        del kept[:-3]
        most = max(most, table.num_bytes)
        if number >= 500:
            sizes.add((len(table.tokens), len(table.ids), len(table.ends)))
    assert len(sizes) == 1, "no array has grown"
    assert most < 6 * table.num_bytes
    last = kept[-1]
    assert spelled_in(made, last[0]) == expected_of(made, Runs((f"red {999 * 7919 % 1000} shoe",), 20))
    kept.clear()
    del last
    made._closed.lend(made.trie(Runs((), 9)))
    assert len(table.added_since(0)) == 1
    assert made._closed.leases.num_lent_bytes == made._constraints.leases.num_lent_bytes == 0


@settings(max_examples=examples(5), deadline=None)
@given(seeds=st.lists(st.integers(0, 99), min_size=20, max_size=60))
def test_what_somebody_reads_stays_as_it_is_whoever_else_comes(seeds: list[int], tiny_tokenizer: Any) -> None:
    made, alone = tries(tiny_tokenizer), tries(tiny_tokenizer)
    asked = {seed: Runs((f"{seed} red" * (1 + seed % 3),), 12) for seed in seeds}
    expected = {seed: expected_of(alone, each) for seed, each in asked.items()}
    prepared, lock = {seed: alone.trie(each) for seed, each in asked.items()}, threading.Lock()

    def use(seed: int) -> bool:
        with lock:  # one thread adds at a time, as one prepares
            states = made._constraints.lend(run_tries._states(prepared[seed]))
            members = made._closed.lend(prepared[seed])
        assert members.kept is not None
        (place,) = [each for each in made._closed.table.added_since(0) if each.firsts["nodes"] == members.kept.root]
        first = place.firsts["spellings"]
        numbers = range(first, first + place.counts["spellings"])
        found = {tuple(made._closed.table.spelling(number)[0].tolist()) for number in numbers}
        return spelled_in(made, states) == expected[seed] == found

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, seeds, timeout=TIMEOUT))


def test_values_of_the_same_lines_share_a_trie(tiny_tokenizer: Any) -> None:
    """Whatever share their runs had when there were more of them."""
    made = tries(tiny_tokenizer)
    layout = tree_layout([1], [2], [Branch([3], 9), Branch([4], 9), Branch([5], 9)])
    asked = [Runs(("red shoe",), 9, rate=1.5), Runs(("red shoe",), 9, rate=2.5), Runs(("red",), 9)]
    prompt = Prompt(layout, (), runs=dict(enumerate(asked)))
    made.prepare(prompt)
    first, second, third = prompt.layout.roots
    assert first == second != third
    assert len(made._closed.table.added_since(0)) == 2
