"""What closed attributes can be answered with, as tries of tokens."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpd_core import Attribute, EngineConfig
from hpd_core.layout import NO_NODE
from hpd_core.models.loading import load_tokenizer
from hpd_core.text.closed_answers import ClosedAnswers, closed_lines
from hpd_core.text.member_tries import MemberTrie, TrieTable, spelling_of
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.value_kinds import attribute_kind
from hpd_core.text.values import parse_value
from tests.core import constrained
from tests.core.constrained import members_of
from tests.core.member_vocabularies import Spellings, texts_of, trie_of, vocabularies
from tests.tiny_model import sentencepiece_tokenizer


def check(trie: Any, spellings: Spellings, root: int = 0, first_spelling: int = 0, stop: int | None = None) -> None:
    """That the trie, or its part of a table, holds these spellings and nothing else, and numbers as it says."""
    texts = texts_of(trie, root, stop)
    assert len(set(texts.values())) == len(texts)
    assert set(texts.values()) == {tokens[:size] for tokens, _ in spellings for size in range(len(tokens))}
    assert list(texts.values()) == sorted(texts.values()), "preorder"
    found = {}
    for node, text in texts.items():
        below = [other for other, longer in texts.items() if longer[: len(text)] == text]
        assert below == list(range(node, int(trie.lasts[node]) + 1))
        assert trie.depths[node] == len(text)
        assert 1 <= trie.runs[node] <= len(below)
        behind_it = [len(tokens) - len(text) for tokens, _ in spellings if tokens[: len(text)] == text]
        assert trie.heights[node] == max(behind_it), "the last token is not fed, this one is"
        ways = slice(*trie.offsets[node : node + 2].tolist())
        assert (np.diff(trie.ids[ways]) > 0).all()
        for way, (token, behind) in enumerate(zip(trie.ids[ways], trie.behind[ways], strict=True), start=ways.start):
            if behind >= 0:
                assert texts[int(behind)] == (*text, token)
                assert (trie.way_of[behind], trie.above[behind]) == (way, node)
            else:
                found[(*text, int(token))] = ~int(behind)
    assert set(found) == {tokens for tokens, _ in spellings}
    for tokens, member in spellings:
        spelling = found[tokens]
        assert spelling >= first_spelling
        assert trie.members[spelling] == member
        found_tokens, path = spelling_of(trie, spelling)
        assert tuple(found_tokens) == tokens
        assert [texts[node] for node in path.tolist()] == [tokens[:size] for size in range(len(tokens))]


@given(vocabularies())
def test_a_trie_holds_its_spellings(spellings: Spellings) -> None:
    trie = trie_of(spellings)
    check(trie, spellings)
    assert trie.longest == max(len(tokens) for tokens, _ in spellings)


@given(st.lists(vocabularies(max_size=8), min_size=1, max_size=5), st.data())
def test_a_table_holds_tries_side_by_side(several: list[Spellings], data: st.DataObject) -> None:
    table = TrieTable()
    roots = [table.add(trie_of(spellings)) for spellings in several]
    num_spellings = 0
    for root, spellings in zip(roots, several, strict=True):
        check(table, spellings, root, num_spellings, root + len(trie_of(spellings)))
        num_spellings += len(spellings)
    nodes = data.draw(st.lists(st.sampled_from([NO_NODE, *roots]), max_size=6))
    rows, ids = table.wanted(np.array(nodes, dtype=np.int64))
    wanted = [
        (row, token)
        for row, node in enumerate(nodes)
        if node != NO_NODE
        for token in sorted({tokens[0] for tokens, _ in several[roots.index(node)]})
    ]
    assert list(zip(rows.tolist(), ids.tolist(), strict=True)) == wanted
    assert table.num_ways(np.array(nodes, dtype=np.int64)) == len(wanted)


def test_what_cannot_be_told_apart_is_no_trie() -> None:
    assert MemberTrie.of([(1, 2), (1, 2)], [0, 1]) is None, "two members are the same tokens"
    assert MemberTrie.of([(1, 2), (1, 2, 3)], [0, 1]) is None, "one is the beginning of another"
    assert MemberTrie.of([(1, 2), (1, 2)], [4, 4]) is not None


def test_what_has_no_choice_is_fed_at_once() -> None:
    """1 leads to 2 and 3, each with a long way behind it; 5 to 6, which ends or goes on."""
    trie = trie_of([((1, 2, 2, 2, 2, 9), 0), ((1, 3, 3, 3, 3, 9), 1), ((5, 6, 9), 2), ((5, 6, 7, 9), 3)])
    texts = texts_of(trie)
    runs = {text: int(trie.runs[node]) for node, text in texts.items()}
    assert runs[(1,)] == 1, "behind it one has to choose"
    assert runs[(1, 2)] == 4, "there is one way on"
    assert runs[(5,)] == 2
    assert runs[(5, 6)] == runs[(5, 6, 7)] == 1


ENUM = Attribute.model_validate(
    {
        "name": "Colour",
        "type": "enum",
        "values": [
            "light",
            "light brown",
            {"label": "black", "synonyms": ["noir", "schwarz", "light"]},
            {"label": 'the 5" one', "synonyms": ["back\\slash"]},
            {"label": "größe ☕", "synonyms": ["noir"]},
            "null",
            "N/A",
        ],
    }
)
BOOLEAN = Attribute(name="Vegan", type="boolean")


labels = st.text(st.sampled_from("aA \u00a0é\u0301e"), min_size=1, max_size=3).filter(str.strip)


@given(
    st.lists(labels, min_size=1, max_size=5, unique_by=str.strip),
    st.lists(st.tuples(st.integers(0, 4), labels), max_size=5),
)
def test_labels_that_differ_in_case_spaces_or_unicode_form_alone_are_told_apart(
    of_members: list[str], synonyms: list[tuple[int, str]]
) -> None:
    """Each line is read as the member whose probability it has; labels that a reader cannot tell apart are refused."""
    members = [
        {"label": label, "synonyms": [text for of, text in synonyms if of == number]}
        for number, label in enumerate(of_members)
    ]
    attribute = Attribute.model_validate({"name": "Colour", "type": "enum", "values": members})
    lines = closed_lines(attribute_kind(attribute))
    assert len({line for line, _ in lines}) == len(lines)
    assert {member for _, member in lines} == set(range(len(members) + 1)), "each can be answered"
    for line, member in lines[:-1]:
        assert parse_value(attribute, line, closed=True).text == of_members[member - 1]
    twin = {"name": "Colour", "type": "enum", "values": [of_members[0], of_members[0] + " "]}
    with pytest.raises(ValueError, match=r"lists a value twice: .* differ in white space at their ends"):
        Attribute.model_validate(twin)


TOKENIZERS = ["tiny", "sentencepiece", "smollm2", pytest.param("gemma3-270m", marks=pytest.mark.full)]


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest, tiny_tokenizer: Any) -> Any:
    if request.param == "tiny":
        return tiny_tokenizer
    if request.param == "sentencepiece":
        return sentencepiece_tokenizer()
    if request.param == "gemma3-270m":
        pytest.importorskip("gguf")
    request.getfixturevalue("smollm2_dir")
    try:
        return load_tokenizer(request.param, EngineConfig())
    except Exception as error:  # no network, no cache
        pytest.skip(f"no tokenizer here: {error}")


def closed_answers(tokenizer: Any, max_fed: int = 1000) -> ClosedAnswers:
    return ClosedAnswers(tokenizer, SegmentTokenizer(tokenizer).endings(len(tokenizer)), max_fed)


@pytest.mark.parametrize("attribute", [ENUM, BOOLEAN])
def test_spellings_are_the_tokens_of_training_up_to_the_one_that_ends_them(
    attribute: Attribute, tokenizer: Any
) -> None:
    closed = closed_answers(tokenizer)
    members = members_of(closed, attribute)
    assert members is not None
    assert (members.root, members.max_fed) == (0, members.num_nodes - 1)
    endings = SegmentTokenizer(tokenizer).endings(len(tokenizer))
    encoded = SegmentTokenizer(tokenizer).encode_text([line for line, _ in constrained.answer_lines(attribute)])
    expected = [tokens[: endings.length(tokens, True)] for tokens in encoded]
    spelled = [closed.table.spelling(number)[0].tolist() for number in range(len(expected))]
    assert sorted(spelled) == sorted(expected)
    assert members.longest == max(map(len, expected))
    for tokens, member in zip(spelled, closed.table.members.tolist(), strict=False):
        raw = tokenizer.decode(tokens, clean_up_tokenization_spaces=False)
        value = parse_value(attribute, raw, closed=True)
        labels = ["true", "false"] if attribute.type == "boolean" else list(attribute.labels)
        assert value.text == (None, *labels)[member]


def test_a_trie_is_made_once_and_bounded(tiny_tokenizer: Any) -> None:
    closed = closed_answers(tiny_tokenizer, max_fed=5)
    first = members_of(closed, ENUM) or pytest.fail("no trie")
    assert first.max_fed == 5
    assert members_of(closed, ENUM.model_copy(update={"name": "Tint", "description": "another"})) == members_of(
        closed, ENUM
    )
    other = members_of(closed, BOOLEAN)
    assert other is not None
    assert other.root > first.root
    assert [place.firsts["nodes"] for place in closed.table.added_since(0)] == [first.root, other.root]


def test_without_room_there_is_none(tiny_tokenizer: Any) -> None:
    assert members_of(closed_answers(tiny_tokenizer, max_fed=0), BOOLEAN) is None


class Forgetful:
    """A tokenizer that writes two letters alike."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def __len__(self) -> int:
        return len(self._tokenizer)

    def __call__(self, texts: list[str], **options: Any) -> Any:
        return self._tokenizer([text.replace("b", "d") for text in texts], **options)


def test_members_that_a_tokenizer_writes_alike_are_not_scored(
    tiny_tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    attribute = Attribute.model_validate({"name": "Side", "type": "enum", "values": ["bed", "ded"]})
    with caplog.at_level(logging.WARNING):
        assert members_of(closed_answers(Forgetful(tiny_tokenizer)), attribute) is None
    assert "values of 'Side' are not scored" in caplog.text
