"""The tokens that a cohort feeds in one step."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from hpd_core.attention.plan import AddressedPlan, AttentionPlan
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import IntArray


@dataclass(frozen=True, slots=True)
class NewTokens:
    """The t tokens that a cohort feeds, prompt by prompt.

    Attributes:
        token_ids, positions, sights, scopes, lasts: int64 [t]
        prompts: int64 [t], the row of the cohort that each belongs to; ascending.
        ranks: int64 [t], the tokens of one prompt numbered from 0.
    """

    token_ids: IntArray
    positions: IntArray
    sights: IntArray
    scopes: IntArray
    lasts: IntArray
    prompts: IntArray
    ranks: IntArray

    @classmethod
    def of_parts(cls, *parts: TokensInAnyOrder) -> tuple[NewTokens, list[IntArray]]:
        """Merge parts, prompt by prompt and within each part by part. Return also where each part's tokens are."""
        token_ids, positions, scopes, lasts, prompts = (
            np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(TokensInAnyOrder)
        )
        order = np.argsort(prompts, kind="stable")
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        prompts = prompts[order]
        token_ids, positions, scopes, lasts = (of_all[order] for of_all in (token_ids, positions, scopes, lasts))
        tokens = cls(token_ids, positions, positions, scopes, lasts, prompts, ranks_within(prompts))
        return tokens, np.split(places, np.cumsum([len(part.prompts) for part in parts])[:-1])


@dataclass(frozen=True, slots=True)
class TokensInAnyOrder:
    """Tokens of values, not ordered by prompt: int64 [t] each, as `NewTokens` has them."""

    token_ids: IntArray
    positions: IntArray
    scopes: IntArray
    lasts: IntArray
    prompts: IntArray


@dataclass(frozen=True, slots=True)
class CohortInput:
    """Input of one cohort for one step: t tokens, n of which decode.

    Attributes:
        token_ids, positions: int64 [t]
        plan: for the attention.
        logit_rows: int64 [n], index into the t tokens, of those whose next token is wanted.
        states: int64 [n], the constraint state of each of them (text/constraints.py).
        nodes: int64 [n], the trie node whose ways are scored after each (text/member_tries.py), or NO_NODE.
        prompts: the cohort's P prompts as they were when the step began.
        tokens_per_prompt: int64 [P], each prompt's number of the t tokens.
        num_scored: number of the t tokens that are nodes of tries.
    """

    token_ids: IntArray
    positions: IntArray
    plan: AttentionPlan | AddressedPlan
    logit_rows: IntArray
    states: IntArray
    nodes: IntArray
    prompts: list[Prompt]
    tokens_per_prompt: IntArray
    num_scored: int


def ranks_within(groups: IntArray) -> IntArray:
    """Number the elements of each group from 0: [3, 3, 5, 5, 5] -> [0, 1, 0, 1, 2]. `groups` is ascending."""
    return np.arange(len(groups)) - np.searchsorted(groups, groups)


def counts_without_last(groups: IntArray, wrong: npt.NDArray[np.bool_], num_groups: int) -> IntArray:
    """Count each group's elements, without the wrong ones at its end: int64 [num_groups]. `groups` is ascending."""
    counts = np.zeros(num_groups, dtype=np.int64)
    np.maximum.at(counts, groups[~wrong], ranks_within(groups)[~wrong] + 1)
    return counts
