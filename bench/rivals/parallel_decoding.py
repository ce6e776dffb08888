"""Jacobi decoding and ANPD as rivals: several tokens of one answer per forward, without training, losslessly.

Both are one loop with two ways to guess. A forward takes the last token that is certain and some guesses behind it,
and gives the likeliest token behind each of them:

    fed        "Nike"   ,      \\n     "Size":            the last three are guesses
    likeliest  ,        \\n    "Color":   41
    accepted   ,        \\n    "Color":                   guesses that agree, and the first token that was not guessed

The KV of what was accepted is kept, the rest is dropped. An accepted token has only accepted ones before it, so the
answer is that of plain greedy decoding (up to rounding: a forward of several tokens may add in another order). At
least one token is accepted each time. One record at a time, as in both papers' code.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from transformers import DynamicCache

from bench.workloads.workload import ForcedRecord

JACOBI_BLOCK = 8
NGRAM_LEVELS = (5, 4, 3, 2)
NGRAM_DRAFT = 6


class Guesser(Protocol):
    """Guesses the tokens behind the last one that is certain."""

    def guess(self, limit: int) -> list[int]:
        """At most `limit` tokens."""

    def learn(self, accepted: Sequence[int], rest: Sequence[int]) -> None:
        """Takes a forward's result: the tokens that are certain now, and what it said behind wrong guesses."""


class JacobiGuesser:
    """All tokens of a block at once, iterated to their fixed point; then the next block.

    Santilli et al. 2023, "Accelerating Transformer Inference for Translation via Parallel Decoding", the hybrid of
    Jacobi iteration inside a block and Gauss-Seidel from block to block (PGJ). Of each iteration only the tokens that
    are not fixed yet are forwarded. A block starts as copies of the last certain token: the paper's padding token means
    nothing to a model that was never trained on it, and any start leads to the same end.
    """

    def __init__(self, prompt: Sequence[int], block: int = JACOBI_BLOCK) -> None:
        self._last = prompt[-1]
        self._block = block
        self._iterate: list[int] = []

    def guess(self, limit: int) -> list[int]:
        """The block's current iterate; its last token is only read from the forward, never fed."""
        if not self._iterate:
            self._iterate = [self._last] * self._block
        return self._iterate[:-1][:limit]

    def learn(self, accepted: Sequence[int], rest: Sequence[int]) -> None:
        """The next iterate is what the model said."""
        self._last = accepted[-1]
        self._iterate = list(rest)


class NgramGuesser:
    """What stood most often behind the last tokens so far, in the prompt and in the answer itself.

    Ou, Chen and Tian 2024, "Lossless Acceleration of Large Language Model via Adaptive N-gram Parallel Decoding"
    (ANPD): a table of n-grams that is filled from the prompt and grows with every accepted token, of several levels:
    the longest context that was seen before decides. A draft's own tokens are the context of its next ones.
    """

    def __init__(self, prompt: Sequence[int], levels: Sequence[int] = NGRAM_LEVELS, draft: int = NGRAM_DRAFT) -> None:
        self._levels = levels
        self._draft = draft
        self._text: list[int] = []
        self._followers: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        self.learn(prompt, [])

    def guess(self, limit: int) -> list[int]:
        """Token after token, until no context is known."""
        context = self._text[-max(self._levels) :]
        guesses: list[int] = []
        while len(guesses) < min(limit, self._draft) and (token := self._next([*context, *guesses])) is not None:
            guesses.append(token)
        return guesses

    def _next(self, context: list[int]) -> int | None:
        for level in self._levels:
            followers = self._followers.get(tuple(context[-(level - 1) :]))
            if followers:
                return followers.most_common(1)[0][0]
        return None

    def learn(self, accepted: Sequence[int], rest: Sequence[int]) -> None:
        """Counts the n-grams that end in the accepted tokens."""
        for token in accepted:
            for level in self._levels:
                if len(self._text) >= level - 1:
                    self._followers[tuple(self._text[len(self._text) - level + 1 :])][token] += 1
            self._text.append(token)


@torch.inference_mode()
def decode(model: Any, prompt: Sequence[int], count: int, guesser: Guesser) -> list[int]:
    """The `count` tokens behind the prompt, as plain greedy decoding writes them."""
    cache: Any = DynamicCache(config=model.config)
    # Sliding-window layers forget what a dropped guess pushed out of the window, unless they are told.
    cache.activate_past_recording()
    tokens: list[int] = []
    fed = list(prompt)
    while len(tokens) < count:
        guesses = guesser.guess(count - len(tokens) - 1)
        logits = model(
            input_ids=torch.tensor([fed + guesses], device=model.device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=len(guesses) + 1,
        ).logits
        chosen: list[int] = logits[0].argmax(dim=-1).tolist()
        num_right = next((n for n, guess in enumerate(guesses) if guess != chosen[n]), len(guesses))
        cache.crop(num_right - len(guesses))
        accepted = chosen[: num_right + 1]
        guesser.learn(accepted, chosen[num_right + 1 :])
        tokens += accepted
        fed = accepted[-1:]
    return tokens


def run_jacobi(model: Any, records: Sequence[ForcedRecord], batch_size: int) -> list[list[int]]:
    """Jacobi decoding, one record at a time, whatever `batch_size` says. Returns what was written per record."""
    return _run(model, records, JacobiGuesser)


def run_anpd(model: Any, records: Sequence[ForcedRecord], batch_size: int) -> list[list[int]]:
    """Adaptive n-gram parallel decoding, one record at a time. Returns what was written per record."""
    return _run(model, records, NgramGuesser)


def _run(model: Any, records: Sequence[ForcedRecord], guesser: Callable[[list[int]], Guesser]) -> list[list[int]]:
    return [decode(model, record.trunk, record.answer_length, guesser(record.trunk)) for record in records]
