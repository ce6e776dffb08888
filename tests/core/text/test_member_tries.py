"""What closed attributes can be answered with, as tries of tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpd_core import Attribute, EngineConfig
from hpd_core.models.loading import load_tokenizer
from hpd_core.text.member_tries import ClosedAnswers, MemberTrie, closed_lines, spelling_of
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.value_kinds import attribute_kind
from hpd_core.text.values import parse_value
from tests.core.member_vocabularies import Spellings, texts_of
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


def test_what_cannot_be_told_apart_is_no_trie() -> None:
    assert MemberTrie.of([(1, 2), (1, 2)], [0, 1]) is None, "two members are the same tokens"
    assert MemberTrie.of([(1, 2), (1, 2, 3)], [0, 1]) is None, "one is the beginning of another"
    assert MemberTrie.of([(1, 2), (1, 2)], [4, 4]) is not None


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
