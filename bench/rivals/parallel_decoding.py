"""Rivals that write several tokens of one answer per forward: Jacobi decoding, ANPD, lexical units, block diffusion.

They are one loop with four ways to guess. A forward takes the last token that is certain and some guesses after it,
and gives the likeliest token after each of them:

    fed        "Nike"   ,      \\n     "Size":            the last three are guesses
    likeliest  ,        \\n    "Color":   41
    accepted   ,        \\n    "Color":                   guesses that agree, and the first token that was not guessed

The KV of what was accepted is kept, the rest is dropped. One record at a time, as in the papers' code.

Jacobi decoding and ANPD verify: an accepted token has only accepted ones before it, so the answer is that of plain
greedy decoding (up to rounding: a forward of several tokens may add in another order). Lexical units and block
diffusion guess with masks and take what the model is sure of, which is worth something only for a model that was
trained so (docs/log.md): name it by `--set model=FOLDER`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from bench.workloads.workload import ForcedRecord
from pipelines.errors import UsageError

JACOBI_BLOCK = 8
NGRAM_LEVELS = (5, 4, 3, 2)
NGRAM_DRAFT = 6
NUM_MASKS = 8
THRESHOLD = 0.9
"""Probability from which a token is taken without proof."""


class Guesser(ABC):
    """Guesses the tokens after the last one that is certain, and says what of a forward is certain."""

    @abstractmethod
    def guess(self, limit: int) -> list[int]:
        """Return at most `limit` tokens (block diffusion: a block)."""

    @abstractmethod
    def accept(self, guesses: list[int], logits: Tensor) -> tuple[list[int], int]:
        """Return the tokens that are certain now, and of how many guesses the keys and values stay.

        Args:
            logits: of the last token that is certain and of every guess, as far as they were forwarded.
        """

    def mask(self, start: int, count: int) -> Tensor | None:
        """Return which columns each of `count` tokens from position `start` on sees; None: causal."""
        return None


class Verified(Guesser):
    """Guesses that agree with the likeliest token are accepted, and the first token that was not guessed."""

    def accept(self, guesses: list[int], logits: Tensor) -> tuple[list[int], int]:
        """Accept the guesses that agree, and one token more."""
        chosen: list[int] = logits.argmax(dim=-1).tolist()
        num_right = next((n for n, guess in enumerate(guesses) if guess != chosen[n]), len(guesses))
        self.learn(chosen[: num_right + 1], chosen[num_right + 1 :])
        return chosen[: num_right + 1], num_right

    @abstractmethod
    def learn(self, accepted: Sequence[int], rest: Sequence[int]) -> None:
        """Take a forward's result: the tokens that are certain now, and what it said after wrong guesses."""


class JacobiGuesser(Verified):
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
        """Return the block's current iterate; its last token is only read from the forward, never fed."""
        if not self._iterate:
            self._iterate = [self._last] * self._block
        return self._iterate[:-1][:limit]

    def learn(self, accepted: Sequence[int], rest: Sequence[int]) -> None:
        """Take what the model said as the next iterate."""
        self._last = accepted[-1]
        self._iterate = list(rest)


class NgramGuesser(Verified):
    """Guesses what stood most often after the last tokens so far, in the prompt and in the answer itself.

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
        """Return token after token, until no context is known."""
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
        """Count the n-grams that end in the accepted tokens."""
        for token in accepted:
            for level in self._levels:
                if len(self._text) >= level - 1:
                    self._followers[tuple(self._text[len(self._text) - level + 1 :])][token] += 1
            self._text.append(token)


class LexicalUnits(Guesser):
    """Masks stand for the next tokens, which are taken from the left as long as the model is sure of each.

    Sun et al. 2024, lexical unit decoding (LUD, arXiv 2405.15208). Nothing is verified.
    """

    def __init__(self, mask_id: int, num_masks: int, threshold: float) -> None:
        self._mask_id, self._num_masks, self._threshold = mask_id, num_masks, threshold

    def guess(self, limit: int) -> list[int]:
        """Return masks."""
        return [self._mask_id] * min(limit, self._num_masks)

    def accept(self, guesses: list[int], logits: Tensor) -> tuple[list[int], int]:
        """Accept up to the first token that the model is not sure of; no mask's keys and values stay."""
        tokens, sure = _likeliest(logits, self._mask_id)
        unsure = next((place for place, share in enumerate(sure) if share < self._threshold), len(sure))
        return tokens[: max(1, unsure)], 0


class BlockDiffusion(Guesser):
    """The answer in blocks, in which every token sees every other one; filled in, in any order, as the model is sure.

    Fast-dLLM v2 (arXiv 2509.26328), with blocks of one size. A full block's keys and values are computed with the next
    block's first forward. Nothing is verified.
    """

    def __init__(self, prompt: Sequence[int], mask_id: int, size: int, threshold: float) -> None:
        self._start, self._mask_id, self._size, self._threshold = len(prompt), mask_id, size, threshold
        self._block = [mask_id] * size

    def guess(self, limit: int) -> list[int]:
        """Return the block as it is."""
        return list(self._block)

    def accept(self, guesses: list[int], logits: Tensor) -> tuple[list[int], int]:
        """Accept all that the model is sure of, at least one token: in an empty block the first."""
        tokens, sure = _likeliest(logits[-self._size - 1 : -1], self._mask_id)
        if len(tokens) < self._size:  # what stands before the block was not forwarded again
            tokens, sure = [self._mask_id, *tokens], [0.0, *sure]
        places = [place for place, token in enumerate(self._block) if token == self._mask_id]
        best = 0 if len(places) == self._size else max(places, key=lambda place: sure[place])
        for place in places:
            if place == best or sure[place] >= self._threshold:
                self._block[place] = tokens[place]
        if self._mask_id in self._block:
            return [], 0
        full, self._block = self._block, [self._mask_id] * self._size
        return full, 0

    def mask(self, start: int, count: int) -> Tensor:
        """Let the prompt be causal; a token of the answer sees its whole block and all earlier ones."""
        positions = torch.arange(start, start + count)
        ends = self._start + ((positions - self._start) // self._size + 1) * self._size - 1
        sights = torch.where(positions < self._start, positions, ends)
        return torch.arange(start + count) <= sights[:, None]


def _likeliest(logits: Tensor, mask_id: int) -> tuple[list[int], list[float]]:
    """Return the likeliest token of each row, and its probability."""
    scores = logits.float().index_fill(-1, torch.tensor([mask_id], device=logits.device), -torch.inf)
    best, tokens = scores.max(dim=-1)
    return tokens.tolist(), (best - scores.logsumexp(dim=-1)).exp().tolist()


@torch.inference_mode()
def decode(
    model: Any,
    prompt: Sequence[int],
    count: int,
    guesser: Guesser,
) -> list[int]:
    """Return the `count` tokens after the prompt."""
    cache: Any = DynamicCache(config=model.config)
    # Sliding-window layers forget what a dropped guess pushed out of the window, unless they are told.
    cache.activate_past_recording()
    tokens: list[int] = []
    fed = list(prompt)
    while len(tokens) < count:
        guesses = guesser.guess(count - len(tokens) - 1)
        seen = guesser.mask(cache.get_seq_length(), len(fed) + len(guesses))
        logits = model(
            input_ids=torch.tensor([fed + guesses], device=model.device),
            attention_mask=None if seen is None else seen[None, None].to(model.device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=len(guesses) + 1,
        ).logits
        accepted, kept = guesser.accept(guesses, logits[0])
        cache.crop(kept - len(guesses))
        tokens += accepted
        fed = accepted[kept:]
    return tokens[:count]


def run_jacobi(model: Any, records: Sequence[ForcedRecord], batch_size: int) -> list[list[int]]:
    """Run Jacobi decoding, one record at a time, whatever `batch_size` says. Return what was written per record."""
    return _run(model, records, JacobiGuesser)


def run_anpd(model: Any, records: Sequence[ForcedRecord], batch_size: int) -> list[list[int]]:
    """Run adaptive n-gram parallel decoding, one record at a time. Return what was written per record."""
    return _run(model, records, NgramGuesser)


def run_lexical_units(tokenizer: Any, model: Any, records: Sequence[ForcedRecord], batch_size: int) -> list[list[int]]:
    """Run lexical units, one record at a time. Raise `UsageError` if no token can stand for masks."""
    mask_id = mask_of(tokenizer)
    return _run(model, records, lambda prompt: LexicalUnits(mask_id, NUM_MASKS, THRESHOLD))


def run_block_diffusion(
    tokenizer: Any, model: Any, records: Sequence[ForcedRecord], batch_size: int
) -> list[list[int]]:
    """Run block diffusion, one record at a time. Raise `UsageError` if no token can stand for masks."""
    mask_id = mask_of(tokenizer)
    return _run(model, records, lambda prompt: BlockDiffusion(prompt, mask_id, NUM_MASKS, THRESHOLD))


def mask_of(tokenizer: Any) -> int:
    """Return the first special token that answers do not end with. Raises `UsageError` if there is none."""
    special = sorted(number for number, token in tokenizer.added_tokens_decoder.items() if token.special)
    found = next((number for number in special if number != tokenizer.eos_token_id), None)
    if found is None:
        raise UsageError("the model's tokenizer has no special token beside the end of a text, to stand for masks")
    return int(found)


def _run(model: Any, records: Sequence[ForcedRecord], guesser: Callable[[list[int]], Guesser]) -> list[list[int]]:
    return [decode(model, record.trunk, record.answer_length, guesser(record.trunk)) for record in records]
