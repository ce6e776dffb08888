"""Oracles: exact decoding, written plainly and slowly.

They share no code with layouts, cohorts or attention. `tree`'s oracle decodes one value at a time with an ordinary
causal forward over the tokens it may see, no cache, no batch, default positions. If a document is read both ways, it
uses a mask written pair by pair. `stacked`'s runs all values of one prompt in lock-step, with a mask written pair by
pair from section 4.3 and 4.4 of the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import exp
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from transformers import DynamicCache

from hpd_core.text.endings import Endings, Read

Choices = Callable[[Sequence[int]], Collection[int] | None]
"""Function from a value's tokens so far to the tokens that may follow; None: any."""

CAUSAL = range(0)
"""Empty range: no tokens see each other both ways."""


@dataclass(frozen=True, slots=True)
class ReferenceValue:
    """Decoded value.

    Attributes:
        tokens: generated ids, the closing one last if `closed`.
        logits: float32, one [vocabulary] row per token, constraints or not.
        allowed: per token, the ids that were allowed; None: any.
    """

    tokens: list[int]
    logits: list[Tensor]
    allowed: list[Collection[int] | None]
    closed: bool

    def margin(self, index: int) -> float:
        """Return how far the best allowed token is before the second, in standard deviations of the logits."""
        row, allowed = self.logits[index], self.allowed[index]
        ranked = (row if allowed is None else row[sorted(allowed)]).sort(descending=True).values
        return float((ranked[0] - ranked[1]) / row.std()) if len(ranked) > 1 else float("inf")

    def behind(self, index: int, token: int) -> float:
        """Return how far `token` is behind the best allowed one, in standard deviations; infinite if it is not
        allowed.
        """
        row, allowed = self.logits[index], self.allowed[index]
        if allowed is not None and token not in allowed:
            return float("inf")
        return float((row[_best(row, allowed)] - row[token]) / row.std())


@torch.inference_mode()
def decode_chain(
    model: Any,
    ids: Sequence[int],
    max_new_tokens: int,
    endings: Endings,
    forced: Sequence[int] | None = None,
    choices: Choices | None = None,
    both_ways: range = CAUSAL,
) -> ReferenceValue:
    """Decode one value of the `tree` layout: greedy decoding after prefix + document + key.

    Args:
        model: with an attention of transformers' own.
        ids: everything the value sees, in order.
        forced: feed these tokens in place of the model's own choices (teacher forcing); their choices are still
            reported in `logits`.
        choices: the value's constraint.
        both_ways: the places in `ids` whose tokens see each other both ways: the document's.
    """
    chain = list(ids)
    tokens: list[int] = []
    logits: list[Tensor] = []
    allowed: list[Collection[int] | None] = []
    read: int | None = None
    while len(tokens) < max_new_tokens:
        row = _forward_chain(model, chain, both_ways)[-1].float()
        allowed.append(None if choices is None else choices(tokens))
        token = _best(row, allowed[-1]) if forced is None else forced[len(tokens)]
        tokens.append(token)
        logits.append(row)
        if read is None:
            read = Read.NOTHING if allowed[-1] is None else Read.NOTHING_TYPED
        read = int(endings.behind[read, token])
        if endings.closing[token] or read == Read.ENDED:
            return ReferenceValue(tokens, logits, allowed, True)
        if forced is not None and len(tokens) == len(forced):
            break
        chain.append(token)
    return ReferenceValue(tokens, logits, allowed, False)


@torch.inference_mode()
def spelling_logprobs(
    model: Any, ids: Sequence[int], spelling: Sequence[int], both_ways: range = CAUSAL
) -> list[float]:
    """Return the log-probability of each token of a spelling after `ids`: one plain forward over both."""
    rows = _forward_chain(model, [*ids, *spelling], both_ways)[len(ids) - 1 : -1].double().log_softmax(-1)
    return [float(row[token]) for row, token in zip(rows, spelling, strict=True)]


@dataclass(frozen=True, slots=True)
class ReferenceAnswer:
    """Answer of a closed attribute.

    Attributes:
        member: its number; `null` is 0.
        shares: by member, its part of the probability of all.
        spellings: by member the tokens of each spelling and their log-probabilities, the likeliest first.
    """

    member: int
    shares: dict[int, float]
    spellings: dict[int, list[tuple[tuple[int, ...], list[float]]]]


def choose_member(
    model: Any,
    ids: Sequence[int],
    spellings: Sequence[Sequence[int]],
    members: Sequence[int],
    both_ways: range = CAUSAL,
    threshold: float | None = None,
) -> ReferenceAnswer:
    """Return the answer of a closed attribute after `ids` (prefix, document, key), each spelling by a forward of its
    own.

    The answer is null if null has at least half of the model's probability, else the likeliest member. Null's share is
    its probability; the others divide the rest in proportion to their likelihoods. With a threshold, the answer is null
    if it can be null and no other share reaches the threshold.

    Args:
        model: with an attention of transformers' own.
        spellings: the tokens of each, up to the one that ends the value.
        members: which member each spelling means; 0 is null.
        both_ways: as in `decode_chain`.
        threshold: `EngineConfig.answer_threshold`.
    """
    found: dict[int, list[tuple[tuple[int, ...], list[float]]]] = {}
    for spelling, member in zip(spellings, members, strict=True):
        found.setdefault(member, []).append((tuple(spelling), spelling_logprobs(model, ids, spelling, both_ways)))
    for each in found.values():
        each.sort(key=lambda pair: -sum(pair[1]))
    likelihoods = {member: sum(exp(sum(logprobs)) for _, logprobs in each) for member, each in found.items()}
    can_be_null, null = 0 in likelihoods, likelihoods.pop(0, 0.0)
    total = sum(likelihoods.values())
    shares = {0: null} | {member: (1 - null) * mass / total for member, mass in likelihoods.items()}
    answer = max(likelihoods, key=lambda member: likelihoods[member])
    is_null = null >= 0.5 if threshold is None else can_be_null and shares[answer] < threshold
    return ReferenceAnswer(0 if is_null else answer, shares, found)


def _forward_chain(model: Any, ids: Sequence[int], both_ways: range) -> Tensor:
    """Return logits [T, vocabulary] of one chain of tokens at default positions.

    If a document is read both ways, the mask is written pair by pair, for models whose layers all see all tokens.
    """
    chain = torch.tensor([ids], device=model.device)
    if not both_ways:
        causal: Tensor = model(input_ids=chain, use_cache=False).logits[0]
        return causal
    hidden, places = torch.finfo(model.dtype).min, range(len(ids))
    rows = [[0.0 if k <= q or (q in both_ways and k in both_ways) else hidden for k in places] for q in places]
    mask = torch.tensor([[rows]], dtype=model.dtype, device=model.device)
    logits: Tensor = model(input_ids=chain, attention_mask=mask, use_cache=False).logits[0]
    return logits


def _best(row: Tensor, allowed: Collection[int] | None) -> int:
    return int(row.argmax()) if allowed is None else max(sorted(allowed), key=lambda token: float(row[token]))


@dataclass(frozen=True, slots=True)
class StackedSkeleton:
    """Stacked prompt: the ids before the skeleton, then its parts in order; a key is followed by a value."""

    prompt: Sequence[int]
    parts: Sequence[tuple[Sequence[int], bool]]  # (ids, is_key)


@torch.inference_mode()
def decode_stacked(
    model: Any,
    skeleton: StackedSkeleton,
    max_new_tokens: Sequence[int],
    endings: Endings,
    forced: Sequence[Sequence[int]] | None = None,
    choices: Sequence[Choices] | None = None,
) -> list[ReferenceValue]:
    """Decode all values of one stacked prompt, in lock-step: at step t every open value gets its t-th token.

    Args:
        max_new_tokens: per key, K_max: also the gap after it.
        forced: per key, tokens to feed in place of the model's own choices.
        choices: per key, the value's constraint.
    """
    ids: list[int] = list(skeleton.prompt)
    positions: list[int] = list(range(len(ids)))
    next_position = len(ids)
    ends: list[int] = []  # index in memory of the token before each value
    for part, is_key in skeleton.parts:
        for token in part:
            ids.append(token)
            positions.append(next_position)
            next_position += 1
        if is_key:
            next_position += max_new_tokens[len(ends)]
            ends.append(len(ids) - 1)

    steps = [0] * len(ids)
    last = list(ends)
    tokens: list[list[int]] = [[] for _ in ends]
    logits: list[list[Tensor]] = [[] for _ in ends]
    allowed: list[list[Collection[int] | None]] = [[] for _ in ends]
    closed = [False] * len(ends)
    alive = list(range(len(ends)))
    while alive:
        rows = _forward_by_position(model, ids, positions, steps)
        still: list[int] = []
        appended: list[tuple[int, int]] = []
        for n in alive:
            row = rows[last[n]]
            allowed[n].append(None if choices is None else choices[n](tokens[n]))
            token = _best(row, allowed[n][-1]) if forced is None else forced[n][len(tokens[n])]
            tokens[n].append(token)
            logits[n].append(row)
            closed[n] = bool(endings.closing[token])
            spent = max_new_tokens[n] if forced is None else len(forced[n])
            if not closed[n] and len(tokens[n]) < spent:
                still.append(n)
                appended.append((n, token))
        for n, token in appended:
            ids.append(token)
            positions.append(positions[ends[n]] + len(tokens[n]))
            steps.append(len(tokens[n]))
            last[n] = len(ids) - 1
        alive = still
    return [ReferenceValue(*value) for value in zip(tokens, logits, allowed, closed, strict=True)]


def _forward_by_position(model: Any, ids: Sequence[int], positions: Sequence[int], steps: Sequence[int]) -> Tensor:
    """Return logits [T, vocabulary] under the mask that is causal in position order, written pair by pair.

    The whole prompt is forwarded again at every step. Each token must see the same tokens as when it was fed.
    So tokens of later steps are hidden from it even if they stand earlier in position order (section 4.4: k' <= k).
    """
    config = model.config.get_text_config()
    count = len(ids)
    masks: dict[tuple[int | None, int | None], Tensor] = {}
    reaches = _reaches(config)
    for window, chunk in set(reaches.values()):
        mask = torch.full((count, count), torch.finfo(torch.float32).min)
        for q in range(count):
            for k in range(count):
                causal = positions[k] <= positions[q]
                existed = steps[k] <= steps[q]
                near = window is None or positions[q] - positions[k] < window
                together = chunk is None or positions[q] // chunk == positions[k] // chunk
                if causal and existed and near and together:
                    mask[q, k] = 0.0
        masks[window, chunk] = mask[None, None].to(model.dtype)
    mask_argument: Any = {kind: masks[reach] for kind, reach in reaches.items()}
    if len(mask_argument) == 1:
        mask_argument = next(iter(mask_argument.values()))
    with counting_positions(model, positions):
        output = model(
            input_ids=torch.tensor([ids]),
            position_ids=torch.tensor([positions]),
            attention_mask=mask_argument,
            use_cache=False,
        )
    rows: Tensor = output.logits[0].float()
    return rows


def _reaches(config: Any) -> dict[str, tuple[int | None, int | None]]:
    """Return attention window and chunk per kind of layer."""
    window, chunk = getattr(config, "sliding_window", None), getattr(config, "attention_chunk_size", None)
    kinds = set(getattr(config, "layer_types", None) or ())
    if kinds:
        return {
            kind: (window if kind == "sliding_attention" else None, chunk if kind == "chunked_attention" else None)
            for kind in kinds
        }
    return {"full_attention": (window, None)}


@contextmanager
def counting_positions(model: Any, positions: Sequence[int]) -> Iterator[None]:
    """Make one forward count these positions, in models that ignore `position_ids`."""
    at = torch.tensor(positions)
    with ExitStack() as stack:
        for part in model.modules():
            if hasattr(part, "build_block_mask"):  # MiniMax M3 picks blocks of memory: all, as far as it is decoded
                stack.enter_context(patch.object(part, "forward", lambda *_: None))
                stack.enter_context(patch.object(part, "build_block_mask", lambda _picked, mask, *_: mask))
            if getattr(part, "attn_temperature_tuning", False):  # Llama 4: behind how many tokens the row comes
                stack.callback(part.register_forward_pre_hook(_behind(at), with_kwargs=True).remove)
        yield


def _behind(at: Tensor) -> Callable[[Any, Any, dict[str, Any]], tuple[Any, dict[str, Any]]]:
    class Cache(DynamicCache):  # type: ignore[misc]
        def get_seq_length(self, *_: Any) -> Tensor:
            return at - torch.arange(len(at))

    def hook(_module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {**kwargs, "past_key_values": Cache()}

    return hook
