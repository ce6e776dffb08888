"""Layouts, as the module's pictures draw them, against rules written out token by token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpd_core.config import EngineConfig
from hpd_core.layout import (
    PUBLIC,
    Branch,
    FilledLayout,
    Layout,
    StackedObject,
    attention_mask,
    fill_layout,
    stacked_layout,
    tree_layout,
)
from tests.tables import table

from .families import build_model
from .helpers import LOGPROB_TOLERANCE, decode, random_case, random_endings, random_ids

# The pictures of the module's docstring. Every token is its own number; X closes a value.
P1, P2, D1, D2, BRACE, BRAND1, BRAND2, COLOR1, COLOR2, SEP, END = range(100, 111)
NIKE1, NIKE2, COMMA, RED1, RED2, X = range(200, 206)


def columns(filled: FilledLayout) -> set[tuple[int, int, int, int, int]]:
    """(token, position, scope, step, label) of every token; all tokens differ here."""
    arrays = (filled.token_ids, filled.positions, filled.scopes, filled.steps, filled.labels)
    found = list(zip(*(array.tolist() for array in arrays), strict=True))
    assert len(set(found)) == len(found)
    return set(found)


def test_picture_of_tree() -> None:
    layout = tree_layout([P1, P2], [D1, D2, BRACE], [Branch([BRAND1, BRAND2], 5), Branch([COLOR1, COLOR2], 5)])
    filled = fill_layout(layout, [[NIKE1, NIKE2, COMMA, X], [RED1, RED2, X]])
    assert columns(filled) == {
        (P1, 0, PUBLIC, 0, -100),
        (P2, 1, PUBLIC, 0, -100),
        (D1, 2, PUBLIC, 0, -100),
        (D2, 3, PUBLIC, 0, -100),
        (BRACE, 4, PUBLIC, 0, -100),
        (BRAND1, 5, 0, 0, -100),
        (BRAND2, 6, 0, 0, NIKE1),
        (NIKE1, 7, 0, 1, NIKE2),
        (NIKE2, 8, 0, 2, COMMA),
        (COMMA, 9, 0, 3, X),
        (COLOR1, 5, 1, 0, -100),
        (COLOR2, 6, 1, 0, RED1),
        (RED1, 7, 1, 1, RED2),
        (RED2, 8, 1, 2, X),
    }
    assert (layout.num_prefix_tokens, layout.num_key_tokens, layout.num_tokens) == (2, 4, 9)
    assert layout.num_positions == 12  # values of 5 tokens at 7 to 11


def test_picture_of_a_document_read_both_ways() -> None:
    branches = [Branch([BRAND1, BRAND2], 5), Branch([COLOR1, COLOR2], 5)]
    layout = tree_layout([P1, P2], [D1, D2, BRACE], branches, both_ways=True)
    assert layout.sights.tolist() == [0, 1, 4, 4, 4, 5, 6, 5, 6]
    joined = tree_layout([P1, P2], [D1], branches, both_ways=True, decoded=[D2, BRACE])
    assert joined.sights.tolist() == [0, 1, 2, 3, 4, 5, 6, 5, 6], "what was decoded is causal"
    assert columns(fill_layout(joined, [[X], [X]])) == columns(fill_layout(layout, [[X], [X]]))
    assert joined.trunk.tolist() == layout.trunk.tolist()
    values = [[NIKE1, NIKE2, COMMA, X], [RED1, X]]
    filled = fill_layout(layout, values)
    assert filled.sights.tolist() == [0, 1, 4, 4, 4, 5, 6, 5, 6, 7, 8, 9, 7]
    causal = fill_layout(tree_layout([P1, P2], [D1, D2, BRACE], branches), values)
    assert columns(filled) == columns(causal), "positions and scopes are as ever"
    assert (causal.sights == causal.positions).all()
    later = np.argwhere(attention_mask(filled) & ~attention_mask(causal))
    assert later.tolist() == [[2, 3], [2, 4], [3, 4]], "and what is seen more is what of the document stands behind"


def test_picture_of_stacked() -> None:
    branches = [Branch([BRAND1, BRAND2], 3), Branch([COLOR1, COLOR2], 3)]
    layout = stacked_layout([P1], [D1, D2, BRACE], [StackedObject([], branches, [END])], [SEP])
    assert layout.token_ids.tolist() == [P1, D1, D2, BRACE, BRAND1, BRAND2, SEP, COLOR1, COLOR2, SEP, END]
    assert layout.positions.tolist() == [0, 1, 2, 3, 4, 5, 9, 10, 11, 15, 16]
    assert layout.ends.tolist() == [5, 8]
    filled = fill_layout(layout, [[NIKE1, COMMA, X], [RED1, X]])
    assert filled.token_ids[11:].tolist() == [NIKE1, COMMA, RED1]
    assert filled.positions[11:].tolist() == [6, 7, 12]
    assert filled.steps.tolist() == [0] * 11 + [1, 2, 1]
    assert set(filled.scopes.tolist()) == {PUBLIC}
    assert {int(t): int(label) for t, label in zip(filled.token_ids, filled.labels, strict=True) if label != -100} == {
        BRAND2: NIKE1,
        NIKE1: COMMA,
        COMMA: X,
        COLOR2: RED1,
        RED1: X,
    }
    assert layout.num_positions == 17


def test_errata_of_algorithm_2() -> None:
    """The gaps of the first object shift all that follows: its later keys, its footer, the second header."""
    objects = [
        StackedObject([10], [Branch([11], 2), Branch([12], 4)], [13]),
        StackedObject([20, 21], [Branch([22], 3)], [23]),
    ]
    layout = stacked_layout([], [1], objects, [9])
    #       doc  hdr key gap  sep key gap    sep foot hdr    key gap      sep foot
    expected = [0, 1, 2, 5, 6, 11, 12, 13, 14, 15, 19, 20]
    assert layout.token_ids.tolist() == [1, 10, 11, 9, 12, 9, 13, 20, 21, 22, 9, 23]
    assert layout.positions.tolist() == expected
    assert layout.positions[layout.ends].tolist() == [2, 6, 15]


@table("values", [[], [[1], [2], [3]], [[], [1]], [[1, 2, 3, 4], [1]]])
def test_values_that_do_not_fit_are_refused(values: list[list[int]]) -> None:
    layout = tree_layout([1], [2], [Branch([3], 3), Branch([4], 3)])
    with pytest.raises(ValueError, match="value"):
        fill_layout(layout, values)


def test_branches_without_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="branch"):
        tree_layout([1], [2], [Branch([], 3)])
    with pytest.raises(ValueError, match="branch"):
        stacked_layout([1], [2], [StackedObject([1], [Branch([], 3)], [])], [])
    with pytest.raises(ValueError, match="at least one token"):
        tree_layout([], [], [Branch([1], 3)])


def test_a_trunk_without_branches_is_a_layout() -> None:
    layout = tree_layout([], [5, 6], [])
    assert (layout.num_branches, layout.num_positions, layout.num_key_tokens) == (0, 2, 0)


# The same layouts written out token by token: what each token is, where it stands, what it may see.


@dataclass(frozen=True)
class Token:
    kind: str  # trunk, key, value or structure
    branch: int  # of keys and values, else -1
    step: int
    position: int


def written_out_tree(trunk: int, keys: list[int], values: list[int]) -> list[Token]:
    """`values[b]` tokens are fed of value b."""
    tokens = [Token("trunk", -1, 0, i) for i in range(trunk)]
    for b, length in enumerate(keys):
        tokens += [Token("key", b, 0, trunk + i) for i in range(length)]
    for b, length in enumerate(values):
        tokens += [Token("value", b, i + 1, trunk + keys[b] + i) for i in range(length)]
    return tokens


def written_out_stacked(
    trunk: int, objects: list[tuple[int, list[tuple[int, int]], int]], separator: int, values: list[int]
) -> list[Token]:
    """`objects`: header, (key, K_max) pairs, footer; all as lengths."""
    tokens = [Token("trunk", -1, 0, i) for i in range(trunk)]
    position, branch, starts = trunk, 0, []
    for header, pairs, footer in objects:
        for _ in range(header):
            tokens.append(Token("structure", -1, 0, position))
            position += 1
        for key, limit in pairs:
            for _ in range(key):
                tokens.append(Token("key", branch, 0, position))
                position += 1
            starts.append(position)
            position += limit
            branch += 1
            for _ in range(separator):
                tokens.append(Token("structure", -1, 0, position))
                position += 1
        for _ in range(footer):
            tokens.append(Token("structure", -1, 0, position))
            position += 1
    for b, length in enumerate(values):
        tokens += [Token("value", b, i + 1, starts[b] + i) for i in range(length)]
    return tokens


def may_see_in_tree(q: Token, k: Token) -> bool:
    if k.kind == "trunk":
        return k.position <= q.position
    if q.kind == "trunk" or k.branch != q.branch:
        return False
    if k.kind == "value" and q.kind == "key":
        return False
    return k.position <= q.position


def may_see_in_stacked(q: Token, k: Token) -> bool:
    """Section 4.4: causal in position order, and only what exists when q is fed."""
    if k.kind == "value" and q.kind != "value":
        return False
    if k.kind == "value" and k.step > q.step:
        return False
    return k.position <= q.position


@dataclass
class Example:
    layout: Layout
    filled: FilledLayout
    tokens: list[Token]
    values: list[list[int]]
    kind: str


@st.composite
def examples(draw: st.DrawFn, kinds: tuple[str, ...] = ("tree", "stacked"), full: bool = False) -> Example:
    kind = draw(st.sampled_from(kinds))
    prefix, document = draw(st.integers(0, 4)), draw(st.integers(1, 5))
    pairs = st.tuples(st.integers(1, 3), st.integers(1, 4))
    shape = draw(
        st.lists(
            st.tuples(st.integers(0, 2), st.lists(pairs, min_size=1, max_size=3), st.integers(0, 2)),
            min_size=1,
            max_size=1 if kind == "tree" else 3,
        )
    )
    separator = draw(st.integers(0, 2))
    limits = [limit for _, pairs, _ in shape for _, limit in pairs]
    lengths = [limit if full else draw(st.integers(1, limit)) for limit in limits]
    numbers = iter(range(1, 10_000))

    def ids(count: int) -> list[int]:
        return [next(numbers) for _ in range(count)]

    first, second = ids(prefix), ids(document)
    if kind == "tree":
        branches = [Branch(ids(key), limit) for key, limit in shape[0][1]]
        layout = tree_layout(first, second, branches)
        keys = [key for key, _ in shape[0][1]]
        tokens = written_out_tree(prefix + document, keys, [length - 1 for length in lengths])
    else:
        objects = [StackedObject(ids(h), [Branch(ids(k), limit) for k, limit in p], ids(f)) for h, p, f in shape]
        layout = stacked_layout(first, second, objects, ids(separator))
        tokens = written_out_stacked(prefix + document, shape, separator, [length - 1 for length in lengths])
    values = [ids(length) for length in lengths]
    return Example(layout, fill_layout(layout, values), tokens, values, kind)


@given(examples())
def test_positions_and_steps_are_those_written_out(example: Example) -> None:
    assert example.filled.positions.tolist() == [token.position for token in example.tokens]
    assert example.filled.steps.tolist() == [token.step for token in example.tokens]
    ends = {token.branch: index for index, token in enumerate(example.tokens) if token.kind == "key"}
    assert example.layout.ends.tolist() == [ends[b] for b in range(len(ends))]


@given(examples(), st.sampled_from([None, 1, 2, 5, 12]))
def test_mask_is_the_rule_pair_by_pair(example: Example, window: int | None) -> None:
    may_see = may_see_in_tree if example.kind == "tree" else may_see_in_stacked
    expected = [
        [may_see(q, k) and (window is None or q.position - k.position < window) for k in example.tokens]
        for q in example.tokens
    ]
    np.testing.assert_array_equal(attention_mask(example.filled, window), expected)


@given(examples())
def test_keys_see_no_value_and_no_closing_token_is_in_memory(example: Example) -> None:
    mask = attention_mask(example.filled)
    is_value = example.filled.steps > 0
    assert not mask[np.ix_(~is_value, is_value)].any()
    closing = {value[-1] for value in example.values}
    assert closing.isdisjoint(example.filled.token_ids.tolist())
    assert closing <= set(example.filled.labels.tolist())


@given(examples(kinds=("tree",)))
def test_a_tree_chain_is_a_plain_causal_row(example: Example) -> None:
    """What a value's last token sees is trunk + key + value, at positions 0, 1, 2, ..."""
    mask = attention_mask(example.filled)
    for b, value in enumerate(example.values):
        own = [i for i, token in enumerate(example.tokens) if token.kind == "value" and token.branch == b]
        last = own[-1] if own else int(example.layout.ends[b])
        chain = np.nonzero(mask[last])[0]
        chain = chain[np.argsort(example.filled.positions[chain])]
        assert example.filled.positions[chain].tolist() == list(range(len(chain)))
        assert len(value) == 1 or example.filled.token_ids[chain].tolist()[-(len(value) - 1) :] == value[:-1]


@given(examples())
def test_labels_spell_the_values(example: Example) -> None:
    """Following the labels from a key's end gives the value, its closing token included."""
    next_of = dict(zip(example.filled.token_ids.tolist(), example.filled.labels.tolist(), strict=True))
    for end, value in zip(example.layout.ends, example.values, strict=True):
        found, token = [], int(example.layout.token_ids[end])
        while next_of.get(token, -100) != -100:
            token = next_of[token]
            found.append(token)
        assert found == value
    assert (example.filled.labels != -100).sum() == sum(map(len, example.values))


@given(examples(kinds=("stacked",), full=True))
def test_full_length_values_fill_their_gaps_and_collide_with_nothing(example: Example) -> None:
    layout = example.layout
    taken = layout.positions.tolist()
    for end, limit in zip(layout.ends, layout.max_new_tokens, strict=True):
        position = int(layout.positions[end])
        taken += range(position + 1, position + 1 + int(limit))
        following = layout.positions[layout.positions > position]
        assert not len(following) or following.min() == position + 1 + limit, "a gap is exactly K_max wide"
    assert sorted(taken) == list(range(layout.num_positions))


@given(examples())
def test_num_positions_has_room_for_the_longest_values(example: Example) -> None:
    layout = example.layout
    longest = [layout.positions[end] + limit for end, limit in zip(layout.ends, layout.max_new_tokens, strict=True)]
    assert layout.num_positions == max(*longest, layout.positions.max(), 0) + 1


# Training sees what decoding saw.


def teacher_forced_logprobs(model: Any, layout: Layout, values: list[list[int]]) -> list[list[float]]:
    """Per value, the log-probability of each label under the model's own attention and our mask."""
    filled = fill_layout(layout, values)
    config = model.config.get_text_config()
    window = getattr(config, "sliding_window", None)

    def additive(width: int | None) -> torch.Tensor:
        seen = torch.from_numpy(attention_mask(filled, width))
        return torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[None, None]

    kinds = set(getattr(config, "layer_types", None) or ())
    mask: Any = {kind: additive(window if kind == "sliding_attention" else None) for kind in kinds}
    if len(mask) < 2:
        mask = additive(window)
    with torch.inference_mode():
        logits = model(
            input_ids=torch.from_numpy(filled.token_ids)[None],
            position_ids=torch.from_numpy(filled.positions)[None],
            attention_mask=mask,
            use_cache=False,
        ).logits[0]
    logprobs = logits.float().log_softmax(-1)
    found: list[list[float]] = []
    fed = layout.num_tokens
    for end, value in zip(layout.ends, values, strict=True):
        rows = [int(end), *range(fed, fed + len(value) - 1)]
        fed = fed + len(value) - 1
        assert filled.labels[rows].tolist() == value
        found.append(logprobs[rows, value].tolist())
    return found


@table("kind", ["tree", "stacked"])
@table("family", ["llama", "gemma3", "mistral"])
def test_training_forward_gives_the_logits_of_decoding(family: str, kind: str) -> None:
    rng = np.random.default_rng(5)
    endings = random_endings(rng)
    cases = [random_case(rng, kind, [random_ids(rng, 4, 8)], branches=4, k_max=6) for _ in range(5)]
    prompts = decode(build_model(family), cases, endings, EngineConfig())
    model = build_model(family)
    longest = 0
    for prompt in prompts:
        forced = teacher_forced_logprobs(model, prompt.layout, prompt.tokens)
        np.testing.assert_allclose(np.concatenate(forced), np.concatenate(prompt.logprobs), atol=LOGPROB_TOLERANCE)
        longest = max(longest, *map(len, prompt.tokens))
    assert longest > 2, "no value long enough to tell"
