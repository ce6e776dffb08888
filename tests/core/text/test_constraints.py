"""Typed values: the automata, their tokens, and the table that the decoder looks them up in."""

from __future__ import annotations

import json
import random
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import Attribute, Member, Unit
from hpd_core.decoding.next_token import greedy
from hpd_core.layout import FREE
from hpd_core.text.constraints import StateTable
from hpd_core.text.kind_automata import kind_automaton
from hpd_core.text.template import render_answer_line
from hpd_core.text.token_states import TokenBytes, compile_automaton
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.value_kinds import attribute_kind
from hpd_core.text.values import parse_value
from tests.core.constrained import answer_pattern, new_tables, start_of, text_choices
from tests.core.native import needs_native
from tests.core.token_states import as_mappings, token_states
from tests.examples import examples
from tests.tables import table
from tests.tiny_model import build_tokenizer

members = st.lists(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(
        lambda text: text == text.strip() and text.casefold() not in ("null", "n/a")
    ),
    min_size=1,
    max_size=6,
    unique=True,
)


@st.composite
def vocabularies(draw: st.DrawFn) -> tuple[Member, ...]:
    """Members with synonyms, some of them of two members, or another's label."""
    labels = draw(members)
    spelled = st.lists(st.sampled_from([*labels, *draw(members)]), max_size=3).map(tuple)
    return tuple(Member(label=label, synonyms=draw(spelled)) for label in labels)


@st.composite
def attributes(draw: st.DrawFn) -> Attribute:
    kind = draw(st.sampled_from(["number", "boolean", "enum"]))
    values = draw(vocabularies()) if kind == "enum" else None
    names = st.lists(st.sampled_from(["oz", "fl oz", '"', "µm", "m", "mm", "e", "%", "o"]), max_size=3, unique=True)
    names = draw(names) if kind == "number" else []
    unit = Unit(want=names[0], accept=tuple(names[1:])) if names else None
    return Attribute(name="a", type=kind, values=values, unit=unit, multiple=draw(st.booleans()))


def _compiled(attribute: Attribute, tokens: TokenBytes) -> list[dict[int, int]]:
    automaton = kind_automaton(attribute_kind(attribute))
    assert automaton is not None
    states = compile_automaton(automaton, tokens)
    assert states is not None
    return as_mappings(states)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer()


@pytest.fixture(scope="module")
def token_bytes(tokenizer: Any) -> TokenBytes:
    return TokenBytes(tokenizer, len(tokenizer))


@settings(max_examples=examples(60), deadline=None)
@given(attribute=attributes(), seed=st.integers(0, 2**32 - 1))
def test_every_walk_is_an_answer_of_the_type(
    attribute: Attribute, seed: int, token_bytes: TokenBytes, tokenizer: Any
) -> None:
    written = {token: text for text, tokens in token_bytes.ids.items() for token in tokens}
    states = _compiled(attribute, token_bytes)
    generator = random.Random(seed)
    state, text = 0, b""
    while not text.endswith(b"\n"):
        # Short ways are likely: a digit may follow a digit for ever.
        token = generator.choice(sorted(states[state], key=lambda item: -states[state][item])[:5])
        text, state = text + written[token], states[state][token]
        if len(text) > 200:
            return
    pattern = answer_pattern(attribute)
    assert pattern is not None
    assert pattern.fullmatch(text.decode())
    value = parse_value(attribute, text.decode(), closed=True)
    assert value.status in ("value", "absent")
    assert value.num_dropped == 0


@settings(max_examples=examples(60), deadline=None)
@given(values=vocabularies())
def test_a_vocabulary_allows_its_labels_its_synonyms_and_null_and_nothing_else(values: tuple[Member, ...]) -> None:
    automaton = kind_automaton(attribute_kind(Attribute(name="a", type="enum", values=values)))
    assert automaton is not None
    behind: dict[int, list[tuple[int, int]]] = {}
    for source, byte, target in zip(automaton.sources, automaton.bytes_, automaton.targets, strict=True):
        behind.setdefault(int(source), []).append((int(byte), int(target)))
    found, todo = set(), [(automaton.start, b"")]
    while todo:
        node, text = todo.pop()
        todo += [(target, text + bytes([byte])) for byte, target in behind.get(node, ())]
        if node == automaton.end:
            found.add(text.decode())
    labels = {member.label for member in values}
    owners: dict[str, set[str]] = {label: {label} for label in labels}
    for member in values:
        for synonym in member.synonyms:
            if synonym not in labels:
                owners.setdefault(synonym, set()).add(member.label)
    spellings = {text for text, meant in owners.items() if len(meant) == 1}
    literals = ["null", *(json.dumps(text, ensure_ascii=False) for text in spellings)]
    assert found == {f"{spaces}{text}{end}" for spaces in ("", " ", "  ") for text in literals for end in ("\n", ",\n")}


@table("count", [3000, 20_000])
def test_a_vocabulary_of_thousands_takes_seconds_and_little_memory(count: int, tokenizer: Any) -> None:
    """In proportion to its letters; what is kept is some 30 bytes for each of them."""
    labels = tuple(f"Home & Garden > Kitchen {number * 7919 % 99991} > Leaf {number}" for number in range(count))
    attribute = Attribute(name="a", type="enum", values=labels, multiple=True)
    tokens, automaton = TokenBytes(tokenizer, len(tokenizer)), kind_automaton(attribute_kind(attribute))
    assert automaton is not None
    start = time.process_time()
    tracemalloc.start()
    states = compile_automaton(automaton, tokens)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert states is not None
    letters = sum(map(len, labels))
    assert time.process_time() - start < 1 + letters / 20_000
    assert states.ids.nbytes + states.behind.nbytes + states.offsets.nbytes < 100 * letters
    assert peak < 20_000_000 + 400 * letters
    lines = [render_answer_line(attribute, items) for items in (None, labels[:2], labels[-1:])]
    answers = SegmentTokenizer(tokenizer).encode_text(lines)
    assert states.accepts(answers)
    assert not states.accepts([*answers, answers[0][:-1]])
    assert not states.accepts([answers[1][:5] + answers[1][6:]])


@table(
    "attribute",
    [
        Attribute(name="a", type="number"),
        Attribute(name="a", type="number", unit="fl oz"),
        Attribute(name="a", type="number", unit={"want": "mm", "accept": ["m", '"', "e"]}),
        Attribute(name="a", type="boolean"),
        Attribute(name="a", type="enum", values=("red", "reddish", 'a "b"', "\\")),
        Attribute(name="a", type="enum", values=("red", {"label": "dark", "synonyms": ["red wine"]}), multiple=True),
        Attribute(name="a", type="number", multiple=True),
    ],
)
def test_the_choices_are_those_of_a_regular_expression(
    attribute: Attribute, token_bytes: TokenBytes, tokenizer: Any
) -> None:
    states = _compiled(attribute, token_bytes)
    expected = text_choices(attribute, tokenizer)
    generator = random.Random(1)
    for _ in range(20):
        state, tokens = 0, []
        for _ in range(12):
            assert sorted(states[state]) == sorted(expected(tokens) or [])
            tokens.append(generator.choice(sorted(states[state])))
            state = states[state][tokens[-1]]
            if "\n" in tokenizer.decode(tokens):
                break


def test_control_tokens_are_never_allowed(tokenizer: Any, token_bytes: TokenBytes) -> None:
    assert {token for tokens in token_bytes.ids.values() for token in tokens}.isdisjoint(tokenizer.all_special_ids)
    value = Attribute(name="a", type="enum", values=("<|im_end|>", "red"))
    allowed = {token for ways in _compiled(value, token_bytes) for token in ways}
    assert allowed.isdisjoint(tokenizer.all_special_ids)
    assert start_of(new_tables(tokenizer), value) != FREE


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_the_table_has_what_is_in_it_whatever_was_removed(data: st.DataObject) -> None:
    table, there = StateTable(), dict[int, list[dict[int, int]]]()
    most = 0
    for _ in range(data.draw(st.integers(1, 25))):
        if there and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(there)))
            table.masks(np.array([gone]), 400, torch.device("cpu"))
            table.remove(gone)
            del there[gone]
        else:
            size = data.draw(st.integers(1, 6))
            states = [dict.fromkeys(range(token, 400, 7), token % size) for token in range(size)]
            first = table.add(token_states(states))
            assert first not in there
            there[first] = states
        own = {first: sum(map(len, states)) for first, states in there.items()}
        assert table.num_ways == sum(own.values())
        most = max(most, table.num_ways)
        for first, states in there.items():
            for state, ways in enumerate(states):
                mask = table.masks(np.array([first + state]), 400, torch.device("cpu"))[0]
                assert mask.nonzero()[:, 0].tolist() == sorted(ways)
                tokens = np.array(sorted(ways))
                behind = table.behind_each(np.full(len(tokens), first + state), tokens)
                assert (behind - first).tolist() == [ways[token] for token in tokens.tolist()]
    assert len(table._ids) <= max(8192, 4 * most)


@pytest.mark.parametrize("native", [pytest.param(True, marks=needs_native), False])
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 12), cut=st.integers(0, 12))
@settings(max_examples=examples(20), deadline=None)
def test_few_and_many_choices_stand_side_by_side(native: bool, seed: int, rows: int, cut: int) -> None:
    numbers = np.random.default_rng(seed)
    widths = [1, 3, 256, 257, 900]
    ways = [{int(token): state for token in numbers.choice(1000, width, False)} for state, width in enumerate(widths)]
    table = StateTable()
    first = table.add(token_states(ways))
    states = numbers.choice([FREE, *range(first, first + len(ways))], rows)
    logits = torch.randn(rows, 1000, generator=torch.Generator().manual_seed(seed)).mul_(2).round_()  # many are equal
    blocks = [block for block in (logits[:cut], logits[cut:]) if len(block)]
    chosen = greedy(blocks, states, table, torch.device("cpu"), by="native" if native else "").fetch()
    for row, state in enumerate(states.tolist()):
        allowed = range(1000) if state == FREE else ways[state - first]
        token = max(sorted(allowed), key=lambda each: float(logits[row, each]))
        assert chosen.tokens[row] == token, "of equals the lowest id"
        assert chosen.states[row] == (FREE if state == FREE else first + ways[state - first][token])
