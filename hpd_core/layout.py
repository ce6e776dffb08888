"""Layouts: position id of every token, and which other tokens it sees. Pure functions.

A prompt is a *trunk* of tokens, which all later tokens see, and *branches*: open ends from which values
grow. One rule says what a token sees, for both layouts, for inference and for training:

    q sees k   if  scope(k) <= scope(q) <= last(k)
               and position(k) <= sight(q)
               and step(k) <= step(q)
               and position(q) - position(k) < window        (sliding-window layers only)
               and position(q) // chunk = position(k) // chunk    (chunked layers only; written as a window of -chunk)

A token is in a scope, a number, and is seen from the scopes from its own up to `last`. PUBLIC tokens are seen from
all; each branch has a scope, which sees public tokens and its own. `step` is 0 for the prompt's tokens and k for the
k-th token of a value (k from 1). A token's `sight` is its own position, unless documents are read both ways.

`tree`: one document. Each key and its value are private to their branch and continue the trunk's positions.
So a value's chain is ordinary autoregressive decoding of trunk + key:

    token      P  P  D  D  {  | "Brand":  "Nike"  ,  | "Color":  "red"
    position   0  1  2  3  4  | 5  6      7  8    9  | 5  6      7  8
    scope      .  .  .  .  .  | 0  0      0  0    0  | 1  1      1  1
    step       0  0  0  0  0  | 0  0      1  2    3  | 0  0      1  2

If a value is one of few, it is chosen by the likelihood of each (decoding/scoring.py). They form a trie after the
key, whose nodes are fed side by side. A branch has as many scopes as its trie has nodes, in preorder: a node sees those
above it, and a sibling has its own scope:

    token      "Roast":  "  light brown dark |  "Form":       (what closes a value is never fed)
    position   5  6      7  8     9     8    |  5  6
    scope      0  0      1  2     3     4    |  5  5
    last       4  4      4  3     3     4    |  5  5

A document is never generated, so its tokens, up to the first key, may see each other both ways. The category's
prefix stays causal because it is computed before there is a document; keys and values stay causal, too:

    token      P  P  D  D  {  | "Brand":  "Nike"  ,
    position   0  1  2  3  4  | 5  6      7  8    9
    sight      0  1  4  4  4  | 5  6      7  8    9

`stacked` (paper, section 4.3 and Algorithm 2): J documents, then one skeleton with all keys, all public; after
each key a gap of K_max positions is left for its value. Here K_max = 3; s is a structure token (newline):

    token      P  D  D  {  | "Brand":  s  "Color":  s  }  |  "Nike"  ,   "red"
    position   0  1  2  3  | 4  5      9  10 11     15 16 |  6       7   12
    scope      .  .  .  .  | .  .      .  .  .      .  .  |  .       .   .
    step       0  0  0  0  | 0  0      0  0  0      0  0  |  1       2   1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

PUBLIC = -1
"""Scope of a token that is not private to one branch."""

EVERYBODY = 2**31 - 1
"""Last scope that sees PUBLIC tokens."""

FREE = -1
"""State of an unconstrained value (see text/constraints.py)."""

NO_NODE = -1
"""Placeholder for a node of a trie (see text/member_tries.py) if there is none."""

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Members:
    """Possible values of a branch: a trie of a `TrieTable` (text/member_tries.py).

    Attributes:
        root: first node of the trie; the others follow.
        num_nodes: number of nodes of the trie.
        max_fed: maximum number of nodes that are fed, the root not counted.
        longest: maximum number of tokens of a value, including the one that ends it.
    """

    root: int
    num_nodes: int
    max_fed: int
    longest: int = 1


@dataclass(frozen=True, slots=True)
class Branch:
    """Open end: the `tokens` before the value (the key), and the maximum tokens of the value (K_max).

    `state` is the start state of the value's constraint; `members` are the possible values if it is chosen among them.
    """

    tokens: Sequence[int]
    max_new_tokens: int
    state: int = FREE
    members: Members | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """Tokens of one prompt in memory order, values not yet included.

    Attributes:
        token_ids, positions, sights, scopes, lasts: int64 [T]
        ends: int64 [B], index into the T tokens of the last token before each value.
        value_scopes: int64 [B], the scope of each value's tokens.
        max_new_tokens: int64 [B]
        states: int64 [B], start state of each value's constraint.
        roots: int64 [B], root of the trie that each value is chosen from; NO_NODE: it is decoded token by token.
        max_fed: int64 [B], maximum number of its nodes that are fed.
        num_prefix_tokens: number of first tokens, which all prompts of the category share.
        num_key_tokens: number of tokens of the skeleton (keys and structure).
    """

    token_ids: IntArray
    positions: IntArray
    sights: IntArray
    scopes: IntArray
    lasts: IntArray
    ends: IntArray
    value_scopes: IntArray
    max_new_tokens: IntArray
    states: IntArray
    roots: IntArray
    max_fed: IntArray
    num_prefix_tokens: int
    num_key_tokens: int

    @property
    def num_tokens(self) -> int:
        """Number of tokens in the prompt, including the prefix."""
        return len(self.token_ids)

    @property
    def trunk(self) -> IntArray:
        """Tokens up to the first key, int64."""
        return self.token_ids[: self.num_tokens - self.num_key_tokens]

    @property
    def reads_both_ways(self) -> bool:
        """Whether tokens of the document see later ones."""
        return bool((self.sights != self.positions).any())

    @property
    def num_branches(self) -> int:
        """Number of values to decode."""
        return len(self.ends)

    @property
    def fallbacks(self) -> IntArray:
        """Maximum tokens of each value that are fed token by token, int64 [B].

        0 if its whole trie may be fed, because its member is then known.
        """
        is_whole = (self.roots != NO_NODE) & (self.max_fed == self.lasts[self.ends] - self.value_scopes)
        return np.where(is_whole, 0, self.max_new_tokens)

    @property
    def num_positions(self) -> int:
        """Number of positions that the prompt needs if every value has its maximum length."""
        open_ends = self.positions[self.ends] + self.max_new_tokens if self.num_branches else self.positions[-1:]
        return int(max(self.positions.max(), open_ends.max())) + 1

    def with_members(self, found: Mapping[int, tuple[int, Members | None]]) -> Layout:
        """Return a copy with constraints for some branches: by branch, the start state and the members.

        For the layout `tree`, and for members that are no longer than `max_new_tokens`.
        """
        states, roots, max_fed = self.states.copy(), self.roots.copy(), self.max_fed.copy()
        widths = self.lasts[self.ends] - self.value_scopes + 1
        for branch, (state, members) in found.items():
            states[branch] = state
            if members is not None:
                roots[branch], max_fed[branch], widths[branch] = members.root, members.max_fed, members.num_nodes
        last_of = np.cumsum(widths) - 1
        first_of = last_of - widths + 1
        is_key = self.scopes != PUBLIC
        branches = np.searchsorted(self.value_scopes, self.scopes[is_key])
        scopes, lasts = self.scopes.copy(), self.lasts.copy()
        scopes[is_key], lasts[is_key] = first_of[branches], last_of[branches]
        return replace(
            self, scopes=scopes, lasts=lasts, value_scopes=first_of, states=states, roots=roots, max_fed=max_fed
        )


@dataclass(frozen=True, slots=True)
class StackedObject:
    """Part of one document in a stacked skeleton: opening, keys and closing."""

    header: Sequence[int]
    branches: Sequence[Branch]
    footer: Sequence[int]


def tree_layout(
    prefix: Sequence[int],
    document: Sequence[int],
    branches: Sequence[Branch],
    *,
    both_ways: bool = False,
) -> Layout:
    """Lay out one document with private branches; see the module's first picture.

    Args:
        prefix: ids shared by the category's prompts.
        document: ids of the document and of everything up to the first key.
        branches: one per attribute.
        both_ways: whether the document's tokens see each other both ways.

    Raises:
        ValueError: a branch without tokens, or no trunk at all.
    """
    trunk = [*prefix, *document]
    if not trunk:
        raise ValueError("a layout needs at least one token before its branches")
    lengths = _branch_lengths(branches)
    start = len(trunk)
    positions = np.concatenate([np.arange(start), *(np.arange(start, start + length) for length in lengths)])
    sights = positions.copy()
    if both_ways:
        sights[len(prefix) : start] = start - 1
    widths = np.array([branch.members.num_nodes if branch.members else 1 for branch in branches], dtype=np.int64)
    lasts = np.cumsum(widths) - 1
    value_scopes = lasts - widths + 1
    return Layout(
        token_ids=np.array([*trunk, *(token for branch in branches for token in branch.tokens)], dtype=np.int64),
        positions=positions,
        sights=sights,
        scopes=np.concatenate([np.full(start, PUBLIC), np.repeat(value_scopes, lengths)]),
        lasts=np.concatenate([np.full(start, EVERYBODY), np.repeat(lasts, lengths)]),
        ends=start + np.cumsum(lengths, dtype=np.int64) - 1,
        value_scopes=value_scopes,
        max_new_tokens=np.array([branch.max_new_tokens for branch in branches], dtype=np.int64),
        states=np.array([branch.state for branch in branches], dtype=np.int64),
        roots=np.array([branch.members.root if branch.members else NO_NODE for branch in branches], dtype=np.int64),
        max_fed=np.array([branch.members.max_fed if branch.members else 0 for branch in branches], dtype=np.int64),
        num_prefix_tokens=len(prefix),
        num_key_tokens=sum(lengths),
    )


def stacked_layout(
    prefix: Sequence[int],
    documents: Sequence[int],
    objects: Sequence[StackedObject],
    separator: Sequence[int],
) -> Layout:
    """Lay out J documents in one prompt; see the module's second picture.

    Algorithm 2 of the paper with its errata corrected: the offset grows after each of the J x N keys. Everything after
    a key is shifted, including structure tokens and the next document's header. Values see others, so none is chosen
    among members: they are decoded token by token.

    Args:
        prefix: ids shared by the category's prompts.
        documents: ids of all J documents and of everything up to the skeleton.
        objects: one per document.
        separator: structure ids after each value's gap.
    """
    token_ids = [*prefix, *documents]
    start = len(token_ids)
    branches = [branch for item in objects for branch in item.branches]
    _branch_lengths(branches)
    stops: list[int] = []  # where each key ends
    for item in objects:
        token_ids += item.header
        for branch in item.branches:
            token_ids += branch.tokens
            stops.append(len(token_ids))
            token_ids += separator
        token_ids += item.footer
    max_new_tokens = np.array([branch.max_new_tokens for branch in branches], dtype=np.int64)
    ends = np.array(stops, dtype=np.int64) - 1
    # Positions are skipped after each key.
    skipped = np.insert(np.cumsum(max_new_tokens), 0, 0)
    positions = np.arange(len(token_ids))
    positions += skipped[np.searchsorted(ends, positions)]
    return Layout(
        token_ids=np.array(token_ids, dtype=np.int64),
        positions=positions,
        sights=positions,
        scopes=np.full(len(token_ids), PUBLIC),
        lasts=np.full(len(token_ids), EVERYBODY),
        ends=ends,
        value_scopes=np.full(len(branches), PUBLIC),
        max_new_tokens=max_new_tokens,
        states=np.array([branch.state for branch in branches], dtype=np.int64),
        roots=np.full(len(branches), NO_NODE),
        max_fed=np.zeros(len(branches), dtype=np.int64),
        num_prefix_tokens=len(prefix),
        num_key_tokens=len(token_ids) - start,
    )


def _branch_lengths(branches: Sequence[Branch]) -> list[int]:
    lengths = [len(branch.tokens) for branch in branches]
    if 0 in lengths:
        raise ValueError("a branch needs at least one token: its last one predicts the value's first")
    return lengths


@dataclass(frozen=True, slots=True)
class FilledLayout:
    """Layout with its values: the tokens in memory when decoding has ended, and the targets for training.

    All arrays are int64 [T']: the prompt's tokens, then every value's, branch by branch. `labels[i]` is the token
    that token i must predict, or -100. The token that closes a value is a label only: it is never fed.
    """

    token_ids: IntArray
    positions: IntArray
    sights: IntArray
    scopes: IntArray
    lasts: IntArray
    steps: IntArray
    labels: IntArray


def fill_layout(
    layout: Layout, values: Sequence[Sequence[int]], targets: Sequence[Sequence[int]] | None = None
) -> FilledLayout:
    """Add the values' tokens, each value with its closing token last (paper, section 4.4).

    Args:
        values: ids per branch.
        targets: per branch, the id to learn in place of each of its ids; by default the ids themselves. -100: nothing
            is learned there.

    Raises:
        ValueError: not one value per branch, or a value that is empty or longer than its branch allows.
    """
    targets = values if targets is None else targets
    if [len(value) for value in values] != [len(target) for target in targets]:
        raise ValueError("values and targets differ in length")
    if len(values) != layout.num_branches:
        raise ValueError(f"{len(values)} values for {layout.num_branches} branches")
    for value, limit in zip(values, layout.max_new_tokens, strict=True):
        if not 1 <= len(value) <= limit:
            raise ValueError(f"a value of {len(value)} tokens where 1 to {limit} are allowed")
    labels = np.full(layout.num_tokens, -100, dtype=np.int64)
    labels[layout.ends] = [target[0] for target in targets]
    fed = [np.asarray(value[:-1], dtype=np.int64) for value in values]
    steps = [np.arange(1, len(tokens) + 1) for tokens in fed]
    ends = layout.positions[layout.ends]
    lengths = [len(tokens) for tokens in fed]
    places = [end + k for end, k in zip(ends, steps, strict=True)]
    return FilledLayout(
        token_ids=np.concatenate([layout.token_ids, *fed]),
        positions=np.concatenate([layout.positions, *places]),
        sights=np.concatenate([layout.sights, *places]),
        scopes=np.concatenate([layout.scopes, np.repeat(layout.value_scopes, lengths)]),
        lasts=np.concatenate([layout.lasts, np.repeat(layout.lasts[layout.ends], lengths)]),
        steps=np.concatenate([np.zeros(layout.num_tokens, dtype=np.int64), *steps]),
        labels=np.concatenate([labels, *(np.asarray(target[1:], dtype=np.int64) for target in targets)]),
    )


def attention_mask(filled: FilledLayout, window: int | None = None) -> npt.NDArray[np.bool_]:
    """Return the mask of a filled layout, for training: bool [T', T'], row q marks the tokens that q sees."""
    mask: npt.NDArray[np.bool_] = visible(
        filled.scopes[:, None],
        filled.sights[:, None],
        filled.scopes[None, :],
        filled.lasts[None, :],
        filled.positions[None, :],
        window,
    )
    return mask & (filled.steps[None, :] <= filled.steps[:, None])


def visible(q_scope: Any, q_sight: Any, k_scope: Any, k_last: Any, k_position: Any, window: int | None = None) -> Any:
    """Apply the rule above, without steps, to arrays or tensors that broadcast.

    The engine needs no steps: in lock-step decoding a token of a later step does not exist yet.

    Args:
        window: number of positions a token sees, including its own; negative: size of the chunk in which it sees
            tokens. Only if every token's sight is its position.

    Returns:
        bool, of the broadcast shape.
    """
    seen = (k_scope <= q_scope) & (q_scope <= k_last) & (k_position <= q_sight)
    if window is not None:
        seen = seen & (q_sight - k_position < (window if window > 0 else q_sight % -window + 1))
    return seen
