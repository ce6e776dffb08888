"""Every kind of tokenizer: what is written comes back, lines end where they end, typed values are typed, and the
engine decodes what the oracle does."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from hpd_core import Attribute, CategorySchema, Engine, EngineConfig, Record
from hpd_core.layout import FREE
from hpd_core.requests.prompt_builder import PromptBuilder
from hpd_core.text.endings import Read, behind_text
from hpd_core.text.member_tries import KindTables
from hpd_core.text.template import Piece, render_answer_line
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.values import parse_value
from tests.core.constrained import likeliest_answer, new_tables, start_of, text_choices
from tests.core.oracle import decode_chain
from tests.core.sweep.tokenizers import KINDS, normalized, tiny
from tests.core.token_states import state_behind
from tests.examples import examples
from tests.tables import table

CHANGES_TEXT = ("lowercase",)
"""Which never write an answer of capital letters: such vocabularies are no constraint."""

kinds = st.sampled_from(tuple(KINDS))
# "▁" is a space to some, and "<0x41>" a letter: by design of SentencePiece.
texts = st.lists(
    st.one_of(
        st.sampled_from(
            ["\n", "\n\n", ",\n", '",\n', "  ", "\t", '"', "\\", "null", "12.5", "</s>", "<s>", "<|tool|>"]
        ),
        st.sampled_from(["red", " Velor", "Crème", "ﬁ½", "e\u0301", "日本", "👩‍👩‍👧", "שלום", "shoe", "İ", "\u2028"]),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁<"), max_size=5),
    ),
    max_size=8,
).map("".join)


_QUICK = ("llama3", "more tokens", "unigram, first", "llama2")


@pytest.fixture(params=[pytest.param(kind, marks=() if kind in _QUICK else pytest.mark.full) for kind in KINDS])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return tiny(request.param)


def written(segments: SegmentTokenizer, ids: list[int]) -> str:
    """What ids write behind a text."""
    letter = segments.encode_text(["a"])[0]
    return segments.decode([[*letter, *ids]])[0].removeprefix("a")


def expected_of(segments: SegmentTokenizer, text: str) -> str:
    """The text as the tokenizer's normalizer makes it, which sees it in parts."""
    return "".join(normalized(segments.tokenizer, part) for part in segments.split_control(text))


@settings(max_examples=examples(400), deadline=None)
@given(kinds, texts)
def test_what_is_written_comes_back(kind: str, text: str) -> None:
    segments = SegmentTokenizer(tiny(kind))
    (ids,) = segments.encode_text([text])
    assert not segments.has_control(ids)
    assert written(segments, ids) == expected_of(segments, text)


@table("kind", ["llama2", "unigram, always", "unigram, first", "gemma"])
def test_a_prompt_in_pieces_is_the_prompt(kind: str) -> None:
    """Where pieces end with a line break, which is a token by itself, the ids are those of the text as a whole."""
    segments = SegmentTokenizer(tiny(kind))
    parts = [("<s>[user]\n", True), ("Velor red\n", False), ("answer:\n</s>[assistant]\n", True), ('"Brand":', False)]
    ids = segments.encode_pieces((Piece(*part) for part in parts), begins=True)
    assert ids == tiny(kind)("".join(text for text, _ in parts), add_special_tokens=False)["input_ids"]
    plain = [Piece("red\n", True), Piece("blue", False)]
    expected = tiny(kind)("red\nblue", add_special_tokens=False)["input_ids"]
    assert segments.encode_pieces(plain, begins=True) == expected
    assert (segments.encode_pieces(plain) == expected) == (kind == "gemma"), "a space is put before the text"


def test_every_token_does_to_a_value_what_its_text_does(tokenizer: Any) -> None:
    segments = SegmentTokenizer(tokenizer)
    endings = segments.endings(len(tokenizer) + 3)
    silent = {*tokenizer.all_special_ids, *(i for i, t in tokenizer.added_tokens_decoder.items() if t.special)}
    for index, token in enumerate(tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))):
        text = "" if index in silent else written(segments, [index])
        assert endings.closing[index] == ("\n" in text), token
        if token.startswith("<0x") and index not in silent:
            continue  # a byte is what its neighbours make of it
        for state in Read:
            assert endings.behind[state, index] == behind_text(state, text), (token, state)
    assert not endings.closing[len(tokenizer) :].any()


strings = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="▁<"), max_size=12)


@settings(max_examples=examples(200), deadline=None)
@given(kinds, st.none() | strings | st.lists(strings, max_size=3), texts)
def test_a_value_ends_with_its_line(kind: str, value: Any, behind: str) -> None:
    """Whatever tokens hold its line break, and whatever they hold behind it."""
    segments = SegmentTokenizer(tiny(kind))
    endings = segments.endings(len(segments.tokenizer))
    line = f" {json.dumps(value, ensure_ascii=False)},\n"
    (ids,) = segments.encode_text([line + behind])
    end = next(place for place, token in enumerate(ids, 1) if endings.closing[token])
    text = written(segments, ids[:end])
    assert text.startswith(expected_of(segments, line))
    assert "\n" not in written(segments, ids[: end - 1])
    read = endings.length(ids, is_typed=False)
    assert read <= end
    attribute = Attribute(name="a", multiple=True)
    whole, cut = (parse_value(attribute, written(segments, ids[:each]), closed=True) for each in (end, read))
    assert (cut.status, cut.items) == (whole.status, whole.items)


ATTRIBUTES = (
    Attribute(name="n", type="number"),
    Attribute(name="ns", type="number", multiple=True),
    Attribute(name="b", type="boolean"),
    Attribute(name="e", type="enum", values=("red", "Crème brûlée", "日本", 'a "b"', "3/4")),
    Attribute(name="es", type="enum", values=("red", "dark roast", "日本"), multiple=True),
)


@cache
def constraints_of(kind: str) -> tuple[KindTables, SegmentTokenizer]:
    return new_tables(tiny(kind)), SegmentTokenizer(tiny(kind))


@settings(max_examples=examples(200), deadline=None)
@given(kinds, st.sampled_from(ATTRIBUTES), st.data())
def test_every_right_answer_may_be_written(kind: str, attribute: Attribute, data: st.DataObject) -> None:
    constraints, segments = constraints_of(kind)
    state = start_of(constraints, attribute)
    if state == FREE:
        assert kind in CHANGES_TEXT
        return
    choice: st.SearchStrategy[str] = {
        "number": st.one_of(st.integers().map(str), st.floats(allow_nan=False, allow_infinity=False).map(str)),
        "boolean": st.sampled_from(["true", "false"]),
        "enum": st.sampled_from(attribute.labels or ("",)),
    }[attribute.type]
    items = data.draw(st.none() | st.lists(choice, min_size=1, max_size=3 if attribute.multiple else 1))
    for token in segments.encode_text([render_answer_line(attribute, items)])[0]:
        behind = state_behind(constraints.states, state, token)
        assert behind is not None
        state = behind


def tiny_model(tokenizer: Any) -> Any:
    """A Llama with more rows than there are tokens, as most have."""
    torch.manual_seed(0)
    size = len(tokenizer) + 3
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=2,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config).eval()


SCHEMA = CategorySchema(category="Shoes", attributes=[Attribute(name="Brand"), *ATTRIBUTES])
RECORDS = [
    Record("1", "Shoes", {"title": "Velor running shoe\n\nred, 12.5", "more": "Crème brûlée ﬁ 日本 👩‍👩‍👧"}),
    Record("2", "Shoes", {"title": "  </s> dark roast  ", "more": "3/4"}),
]


def test_the_engine_writes_what_the_oracle_does(tokenizer: Any) -> None:
    config = EngineConfig(device="cpu", dtype="float32", max_value_tokens=6)
    model, oracle = tiny_model(tokenizer), tiny_model(tokenizer)
    with Engine(model, tokenizer, config) as engine:
        results, endings = engine.extract(RECORDS, {"Shoes": SCHEMA}), engine.endings
    prepared, _ = PromptBuilder(tokenizer, config, None).build(RECORDS, {"Shoes": SCHEMA})
    constraints = new_tables(tokenizer, len(tokenizer) + 3)
    compared = 0
    for item in prepared:
        layout = item.layout
        result = results[item.slots[0].trunk]
        assert result.error is None
        for branch, (attribute, value) in enumerate(zip(SCHEMA.attributes, result.values.values(), strict=True)):
            chain = layout.token_ids[(layout.scopes < 0) | (layout.scopes == branch)].tolist()
            is_free = attribute.is_text or start_of(constraints, attribute) == FREE
            if value.choice == "scored":
                answer = likeliest_answer(oracle, chain, attribute, tokenizer, endings)
                assert value.raw == tokenizer.decode(answer.tokens).split("\n")[0]
                continue
            choices = None if is_free else text_choices(attribute, tokenizer)
            expected = decode_chain(oracle, chain, 6, endings, choices=choices)
            if all(expected.margin(index) > 1e-4 for index in range(len(expected.tokens))):
                compared += 1
                assert value.num_tokens == len(expected.tokens)
                assert value.raw == tokenizer.decode(expected.tokens, skip_special_tokens=True).split("\n")[0]
    assert compared > 5
