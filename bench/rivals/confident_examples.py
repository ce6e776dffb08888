"""What the rivals of confident_tokens.py are trained on: the examples of `ar`, with masks behind what is certain.

An example of `ar` is a prompt and its whole answer. Masks are put behind it in memory, at positions of the answer, in
scopes of their own (hpd_core/layout.py): they see what is certain then, by `step`, and each other; nobody else sees
them. So one forward teaches all units, or all blocks, of an answer.

Lexical units (LUD). The paper lets a fine-tuned model read the training answers; runs of tokens that it gives a
probability of alpha or more are units, and the model is trained on to predict a unit's tokens from masks. Here:

    step      0  1      2  3   4  5 ...         the answer, causal, learned as before
    token     {  "Brand :  "Ni ke ", ...
    unit 1    behind {:      mask mask  ->  :  "Ni     as many masks as the decoder has, at the positions of the answer
    unit 2    behind "Ni:                   ", ...     units are cut at a drawn length, so that they begin anywhere

Masks behind a unit's end are taught, too: a decoder sees them, and what was never taught is not doubted.

Block diffusion. The answer in blocks of B tokens. A clean copy, each token of which sees its own block and earlier
ones, is context, and its last token predicts the next block's first, as when decoding. Of each block there is a noisy
copy, which sees the clean earlier blocks and itself: with masks everywhere, as a block begins, or in a drawn part
behind the first token, and then a second copy has its masks where the first has none (complementary masks). Only what
is masked is learned. The last block is filled up with the token that ends the answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from hpd_core.layout import EVERYBODY, FilledLayout
from hpd_core.training.examples import IGNORED, Example

MakeExample = Callable[[Example], Example]


class ExampleAnswer:
    """The answer of an example of `ar`: the brace behind which it stands, and its tokens.

    Attributes:
        start: index of the brace in the example's tokens; the rest of them is the answer.
        position: of the brace.
        tokens: the answer's, with the closing one, which is never fed.
        labels: of the brace and all tokens but the last: what is learned of `tokens`.
    """

    def __init__(self, example: Example) -> None:
        filled = example.filled
        self.start = int((filled.steps > 0).argmax()) - 1
        self.position = int(filled.positions[self.start])
        self.labels = filled.labels[self.start :].tolist()
        self.tokens = [*filled.token_ids[self.start + 1 :].tolist(), self.labels[-1]]


def with_all_labels(example: Example) -> Example:
    """The example with every token of its answer to be predicted, taught or not."""
    answer = ExampleAnswer(example)
    labels = example.filled.labels.copy()
    labels[answer.start :] = answer.tokens
    return replace(example, filled=replace(example.filled, labels=labels))


def unit_starts(shares: Sequence[float], alpha: float, longest: int, generator: random.Random) -> list[int]:
    """Where units begin, as numbers of tokens before them.

    Args:
        shares: of each token of the answer, the probability that a model gives it.
        longest: tokens of a unit at most; one in two is cut at a drawn length.
    """
    starts, begin = [], 0
    while begin < len(shares):
        starts.append(begin)
        limit = longest if generator.random() < 0.5 else generator.randint(1, longest)
        begin += 1
        while begin < len(shares) and begin - starts[-1] < limit and shares[begin] >= alpha:
            begin += 1
    return starts


def lexical_units(example: Example, starts: Sequence[int], num_masks: int, mask_id: int) -> Example:
    """The example with `num_masks` masks behind the token before each unit."""
    answer = ExampleAnswer(example)
    added = _Tokens()
    for scope, start in enumerate(starts, start=1):
        for place in range(start + 1, min(start + num_masks, len(answer.tokens) - 1) + 1):
            added.add(mask_id, answer.position + place, answer.position + place, scope, start, answer.labels[place])
    filled = example.filled
    seen = np.where(filled.steps > 0, EVERYBODY, filled.lasts)
    seen[answer.start] = EVERYBODY
    return replace(example, filled=added.behind(replace(filled, lasts=seen)))


def block_diffusion(example: Example, size: int, mask_id: int, generator: random.Random) -> Example:
    """The example with clean and noisy copies of its answer in blocks of `size` tokens."""
    answer = ExampleAnswer(example)
    padding = -len(answer.tokens) % size
    tokens = answer.tokens + answer.tokens[-1:] * padding
    labels = answer.labels + answer.tokens[-1:] * padding
    added, scope = _Tokens(), 0
    for begin in range(0, len(tokens), size):
        block, own_labels, step = tokens[begin : begin + size], labels[begin : begin + size], begin // size
        first = answer.position + 1 + begin
        if begin + size < len(tokens):  # nobody sees a clean last block
            follower = [IGNORED] * (size - 1) + [labels[begin + size]]
            for place, token in enumerate(block):
                sight = first + size - 1
                added.add(token, first + place, sight, 0, step + 1, follower[place], last=EVERYBODY)
        for masked in _drawn_masks(size, generator):
            scope += 1
            for place, token in enumerate(block):
                shown = mask_id if place in masked else token
                label = own_labels[place + 1] if place + 1 in masked else IGNORED
                added.add(shown, first + place, first + size - 1, scope, step, label)
    return replace(example, filled=added.behind(_prompt(example.filled, answer.start + 1)))


def _drawn_masks(size: int, generator: random.Random) -> list[set[int]]:
    """Masked places of a block: all of them, or two sets that together are all but the first."""
    if size == 1 or generator.random() < 0.5:
        return [set(range(size))]
    masked = set(generator.sample(range(1, size), generator.randint(1, size - 1)))
    rest = set(range(1, size)) - masked
    return [masked, rest] if rest else [masked]


def _prompt(filled: FilledLayout, length: int) -> FilledLayout:
    """The first `length` tokens, the last of which, the brace, is seen by all behind it."""
    cut = {name: getattr(filled, name)[:length].copy() for name in FilledLayout.__dataclass_fields__}
    cut["lasts"][-1] = EVERYBODY
    return FilledLayout(**cut)


class _Tokens:
    """Tokens to stand behind an example's in memory."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, ...]] = []

    def add(
        self, token: int, position: int, sight: int, scope: int, step: int, label: int, *, last: int | None = None
    ) -> None:
        """One token; `last`: the scope's own number, if nobody else is to see it."""
        self._rows.append((token, position, sight, scope, scope if last is None else last, step, label))

    def behind(self, filled: FilledLayout) -> FilledLayout:
        """`filled` and then these."""
        names = ("token_ids", "positions", "sights", "scopes", "lasts", "steps", "labels")
        columns = np.array(self._rows, dtype=np.int64).reshape(-1, len(names)).T
        return FilledLayout(
            **{name: np.concatenate([getattr(filled, name), own]) for name, own in zip(names, columns, strict=True)}
        )
