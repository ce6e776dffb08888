"""A cohort: prompts that were admitted together and run in lock-step, from prefill to their last value.

It says which tokens to feed next (`next_input`), takes the tokens chosen after them (`accept`) and returns the prompts
that are finished (`retire`). It has four parts, in which row p is prompt p:

    Prefill          the prompts' own tokens that are still to be fed, some columns of all prompts in each step
    value_states.py  the state of their values
    scoring.py       the values that are chosen among members
    cohort_cache.py  the KV cache

A document that is read both ways goes in one step, however long it is: its first token sees its last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hpd_core.attention.kv_cache import CachePool
from hpd_core.attention.plan import PrefixCache
from hpd_core.decoding.addressed_cache import AddressedCache
from hpd_core.decoding.cohort_cache import (
    CohortCache,
    CohortInput,
    NewTokens,
    TokensInAnyOrder,
    columns_for,
    most_columns,
    ranks_within,
    side_by_side,
    slot_bytes,
)
from hpd_core.decoding.next_token import Chosen
from hpd_core.decoding.prompt import Prompt
from hpd_core.decoding.scoring import Scoring
from hpd_core.decoding.value_states import NO_VALUES, ValueStates
from hpd_core.layout import FREE, NO_NODE, IntArray
from hpd_core.mixers.states import MixerCache, MixerShape
from hpd_core.text.endings import Endings
from hpd_core.text.member_tries import TrieTable

_NONE = np.zeros(0, dtype=np.int64)


class Cohort:
    """A group of P prompts in lock-step. `admit` or `merge` makes one."""

    def __init__(
        self,
        prompts: list[Prompt],
        prefill: Prefill | None,
        values: ValueStates,
        scoring: Scoring,
        cache: CohortCache | AddressedCache,
        mixing: MixerCache | None,
        max_finished: float,
    ) -> None:
        """Build from parts whose rows are the prompts.

        `prefill` is None if all own tokens are in the cache, `mixing` if no layer keeps a state beside attention.
        """
        self.prompts = prompts
        self._prefill = prefill
        self._values = values
        self._scoring = scoring
        self._cache = cache
        self._mixing = mixing
        self._max_finished = max_finished
        self.number = 0
        """Number in the order of admission; a merged cohort has that of its oldest part."""
        self._retired: npt.NDArray[np.bool_] = np.zeros(len(prompts), dtype=bool)  # finished; the row waits to go
        # For the step whose tokens are awaited: the values that decode, and the tokens fed, if more than one for each
        # of them.
        self._decoding = NO_VALUES
        self._with_nodes: _StepWithNodes | None = None

    @classmethod
    def admit(
        cls,
        prompts: Sequence[Prompt],
        prefixes: Sequence[PrefixCache | None],
        pool: CachePool,
        max_finished: float = 0.5,
        tries: TrieTable | None = None,
        mixers: Sequence[MixerShape] = (),
        threshold: float | None = None,
    ) -> Cohort:
        """Create a cohort. It takes memory, so the caller has to `release` it.

        Args:
            prefixes: that of each prompt, or None.
            pool: the pool whose memory it takes.
            max_finished: the share of finished prompts at which their memory is freed, by moving the others to new
                memory.
            tries: the tries that the prompts name.
            mixers: shapes of the states that layers beside attention keep.
            threshold: share that an answer needs that is chosen among members; None: null needs a half.
        """
        order = side_by_side(prefixes, [prompt.num_own_tokens for prompt in prompts])
        ordered, prefixes = [prompts[row] for row in order], [prefixes[row] for row in order]
        prefill, values = Prefill(ordered), ValueStates.of_prompts(ordered)
        scoring = Scoring(tries or TrieTable(), threshold)
        kind = AddressedCache if pool.order.by_address else CohortCache
        reserved = np.array([prompt.reserved_tokens for prompt in ordered], dtype=np.int64)
        cache = kind.for_prompts(pool, prefixes, reserved)
        mixing = None
        if mixers:
            before = [prefix.mixing if prefix else None for prefix in prefixes]
            most = np.array([most_columns(prompt) for prompt in ordered], dtype=np.int64)
            mixing = MixerCache.for_prompts(mixers, before, columns_for(ordered), most)
        return cls(ordered, prefill, values, scoring, cache, mixing, max_finished)

    @classmethod
    def merge(cls, cohorts: Sequence[Cohort]) -> Cohort:
        """Merge decoding cohorts into one, and end them: a long tail does not cost a call for each."""
        picked = [np.nonzero(~cohort._retired)[0] for cohort in cohorts]
        pairs = list(zip(cohorts, picked, strict=True))
        prefixes = [cohort._cache.prefixes[row] for cohort, rows in pairs for row in rows]
        order = side_by_side(prefixes, np.concatenate([cohort._cache.used[rows] for cohort, rows in pairs]))
        prompts = [cohort.prompts[row] for cohort, rows in pairs for row in rows]
        values = ValueStates.merge([cohort._values.rows(rows) for cohort, rows in pairs]).rows(order)
        scoring = Scoring.merge([cohort._scoring for cohort in cohorts], _new_rows(pairs, np.argsort(order)))
        caches: list[Any] = [cohort._cache for cohort in cohorts]
        cache = type(caches[0]).merge(caches, picked, order)
        mixers = [cohort._mixing for cohort in cohorts if cohort._mixing is not None]
        mixing = MixerCache.merge(mixers, picked, order) if mixers else None
        most = cohorts[0]._max_finished
        merged = cls([prompts[row] for row in order], None, values, scoring, cache, mixing, most)
        merged.number = min(cohort.number for cohort in cohorts)
        return merged

    def release(self) -> None:
        """Release its cache; it cannot run any more."""
        self._cache.release()

    def displace(self) -> list[Prompt]:
        """Release the cache of half of the unfinished prompts, of all during their prefill. Return these prompts: they
        have to begin again.
        """
        rows = np.nonzero(~self._retired)[0]
        count = 0 if self.num_prefill_tokens else len(rows) // 2
        displaced = [self.prompts[row] for row in rows[count:]]
        if count:
            self._scoring.drop(rows[count:])
            self._keep(rows[:count])
        else:
            self.release()
        return displaced

    # State, as the scheduler reads it.

    @property
    def num_prefill_tokens(self) -> int:
        """Number of prompt tokens still to be fed."""
        return int(self._prefill.num_left.sum()) if self._prefill else 0

    @property
    def num_unfinished(self) -> int:
        """Number of prompts that are not finished."""
        return len(self.prompts) - int(self._retired.sum())

    @property
    def num_next_tokens(self) -> int:
        """Number of tokens to feed next: all that prefill has left, else one per live value and the nodes of tries."""
        return self.num_prefill_tokens or int(self._values.num_live.sum()) + self._scoring.num_next

    @property
    def num_next_scored(self) -> int:
        """Number of nodes of tries among these, which may wait for another step."""
        return 0 if self.num_prefill_tokens else self._scoring.num_next

    @property
    def num_cached_tokens(self) -> int:
        """Number of cache slots that the cohort occupies, with padding, without shared prefixes."""
        return self._slots_for(0)

    @property
    def next_cached_tokens(self) -> int:
        """Number of cache slots that it occupies after its next step."""
        if self.num_prefill_tokens:
            return self.num_cached_tokens  # slots for the prompts' own tokens are reserved
        return self._slots_for(self._values.num_live + self._scoring.num_next_of(len(self.prompts)))

    @property
    def most_cached_tokens(self) -> int:
        """Number of cache slots that it occupies if its values (or its widest prompt's) grow to their limits."""
        own = self._prefill.num_left if self._prefill else 0
        return self._slots_for(own + self._values.num_left)

    def _slots_for(self, num_more: IntArray | int) -> int:
        """Return the cache slots that it takes with `num_more` more columns, as if all memory were keys and values."""
        slots = self._cache.slots_for(num_more)
        if self._mixing is None:
            return slots
        return slots + -(-self._mixing.bytes_for(num_more) // slot_bytes(self._mixing.shapes, self._cache.pool.shape))

    @property
    def shared_prefixes(self) -> set[PrefixCache]:
        """Prefixes that its prompts attend to in place."""
        return {prefix for prefix in self._cache.prefixes if prefix is not None}

    @property
    def num_columns(self) -> int:
        """Number of columns of the cache in use, of the prompt that has the most."""
        return self._cache.num_columns

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to feed or decode."""
        return self.num_prefill_tokens == 0 and not self._values.is_open.any()

    # One step.

    def next_input(self, start: int, max_prefill_tokens: int, max_scored: int = 0) -> CohortInput:
        """Return the tokens of the next step: a part of the prompts until all are fed, then one token per live value.

        For values that are chosen among members, these are the next nodes of their tries.

        Args:
            start: where the cohort's stretch of the packed row begins.
            max_prefill_tokens: about the most prompt tokens (at least one column of them).
            max_scored: the most nodes to feed, unless there is nothing else to feed.
        """
        if self._prefill and self.num_prefill_tokens:
            return self._prefill_input(self._prefill, start, max_prefill_tokens)
        return self._decode_input(start, max_scored)

    def _prefill_input(self, prefill: Prefill, start: int, max_tokens: int) -> CohortInput:
        first = prefill.num_fed
        tokens = prefill.feed(max_tokens)
        at = rows, _ = self._decoding = self._values.begun_by(first, prefill.num_fed)
        # A prompt's tokens stand together, one per column from `first` on.
        logit_rows = np.searchsorted(tokens.prompts, rows) + self._values.ends[at] - first
        nodes = self._values.roots[at]
        return self._input(start, tokens, logit_rows, self._values.states[at], nodes, is_prefill=True)

    def _decode_input(self, start: int, max_scored: int) -> CohortInput:
        values = self._values
        at = prompts, _ = self._decoding = values.live_values()
        token_ids, positions = values.last_tokens(at), values.last_positions(at)
        scopes, lasts, states = values.scopes[at], values.lasts[at], values.states[at]
        nodes = np.full(len(prompts), NO_NODE)
        if not self._scoring.num_next or (max_scored <= 0 and len(prompts)):
            tokens = NewTokens(token_ids, positions, positions, scopes, lasts, prompts, ranks_within(prompts))
            own, scored = np.arange(len(prompts)), _NONE
        else:
            theirs, their_nodes = self._scoring.feed(values, max_scored)
            ours = TokensInAnyOrder(token_ids, positions, scopes, lasts, prompts)
            tokens, order = NewTokens.of_parts(ours, theirs)
            places = np.empty_like(order)
            places[order] = np.arange(len(order))
            own, scored = places[: len(prompts)], places[len(prompts) :]
            states = np.append(states, np.full(len(scored), FREE))[order]
            nodes = np.append(nodes, their_nodes)[order]
        fed = self._input(start, tokens, np.arange(len(tokens.prompts)), states, nodes, len(scored))
        if fed.num_scored:
            self._with_nodes = _StepWithNodes(fed, own, scored)
        return fed

    def _input(
        self,
        start: int,
        tokens: NewTokens,
        logit_rows: IntArray,
        states: IntArray,
        nodes: IntArray,
        num_scored: int = 0,
        is_prefill: bool = False,
    ) -> CohortInput:
        plan = self._cache.append(tokens, start, kept=np.nonzero(~self._retired)[0], is_prefill=is_prefill)
        if self._mixing is not None:
            own = self._mixing.append(tokens.prompts, tokens.scopes, tokens.lasts, tokens.positions, start)
            plan = replace(plan, mixing=own)
        return CohortInput(
            *(tokens.token_ids, tokens.positions, plan, logit_rows, states, nodes),
            *(list(self.prompts), plan.counts, num_scored),
        )

    def accept(self, chosen: Chosen, endings: Endings) -> None:
        """Take the decoded tokens of this step, one per logit row, and end the values that closed.

        Args:
            chosen: n tokens.
            endings: how each token id is read (text/endings.py).
        """
        step, self._with_nodes = self._with_nodes, None
        if step is None:
            self._values.accept(self._decoding, chosen, endings)
            self._scoring.begin(self._decoding, self._values, chosen.ways)
            return
        self._values.accept(self._decoding, chosen[step.own], endings)
        useless = np.zeros(len(step.fed.token_ids), dtype=bool)
        useless[step.scored[self._scoring.hear(self._values, chosen.ways)]] = True
        if useless.any():
            cache: Any = self._cache  # the cache that made the plan
            cache.reject(step.fed.plan, useless)
            if self._mixing is not None:
                self._mixing.reject(useless)

    # Between steps.

    def retire(self) -> list[Prompt]:
        """Return newly finished prompts, with their values; compact the cohort once enough of its rows are free.

        Dropped prompts end as they are.
        """
        self._drop()
        if self.num_prefill_tokens:
            return []
        done: npt.NDArray[np.bool_] = np.logical_not(self._values.is_open.any(axis=1))
        finished = []
        for row in np.nonzero(done & ~self._retired)[0]:
            self._values.write_back(int(row), self.prompts[row])
            finished.append(self.prompts[row])
        self._retired = done
        if done.any() and done.sum() >= self._max_finished * len(done) and not done.all():
            self._keep(np.nonzero(~done)[0])
        return finished

    def _drop(self) -> None:
        dropped = np.array([row for row, prompt in enumerate(self.prompts) if prompt.is_dropped], dtype=np.int64)
        if len(dropped):
            self._values.drop(dropped)
            self._scoring.drop(dropped)

    def _keep(self, rows: IntArray) -> None:
        """Keep only these rows; nothing is left to prefill."""
        self._scoring.move(_new_rows([(self, rows)], np.arange(len(rows)))[0])
        self.prompts = [self.prompts[row] for row in rows]
        self._prefill = None
        self._values = self._values.rows(rows)
        self._retired = self._retired[rows]
        self._decoding = NO_VALUES
        self._cache.keep(rows)
        if self._mixing is not None:
            self._mixing.keep(rows)

    def take_prefixes(self) -> list[PrefixCache]:
        """Return the KV of each prompt, for a cohort of bare prefixes that are fed."""
        prefixes = self._cache.prefix_caches()
        if self._mixing is None:
            return prefixes
        pairs = zip(prefixes, self._mixing.trunk_states(), strict=True)
        return [replace(prefix, mixing=state) for prefix, state in pairs]


@dataclass(frozen=True, slots=True)
class _StepWithNodes:
    """A step that feeds nodes of tries, too.

    Attributes:
        fed: input of the step, t tokens.
        own: indices of values' last tokens among them.
        scored: indices of nodes among them.
    """

    fed: CohortInput
    own: IntArray
    scored: IntArray


def _new_rows(pairs: Sequence[tuple[Cohort, IntArray]], places: IntArray) -> list[IntArray]:
    """Return the new row of each row, for each cohort; -1 for rows that are not picked.

    Args:
        pairs: cohorts and the rows picked of each.
        places: int64 [P], the new place of each picked row, cohort by cohort.
    """
    numbers = []
    for cohort, rows in pairs:
        own, places = places[: len(rows)], places[len(rows) :]
        numbers.append(np.full(len(cohort.prompts), -1, dtype=np.int64))
        numbers[-1][rows] = own
    return numbers


class Prefill:
    """Own tokens of P prompts, [P, longest], and how many columns of them have been fed."""

    def __init__(self, prompts: Sequence[Prompt]) -> None:
        """Start with nothing fed."""
        self.num_fed = 0
        self._lengths = np.array([prompt.num_own_tokens for prompt in prompts], dtype=np.int64)
        # In the order of `NewTokens`.
        names = ("token_ids", "positions", "sights", "scopes", "lasts")
        self._tokens = [self._padded(prompts, name) for name in names]
        documents = [len(prompt.document_ids) for prompt in prompts if prompt.layout.reads_both_ways]
        self._least_columns = max(documents, default=0)

    def _padded(self, prompts: Sequence[Prompt], name: str) -> IntArray:
        padded = np.zeros((len(prompts), int(self._lengths.max())), dtype=np.int64)
        for row, prompt in enumerate(prompts):
            padded[row, : prompt.num_own_tokens] = getattr(prompt.layout, name)[prompt.num_tokens_before :]
        return padded

    @property
    def num_left(self) -> IntArray:
        """Number of tokens of each prompt that have not been fed, int64 [P]."""
        return np.maximum(self._lengths - self.num_fed, 0)

    def feed(self, max_tokens: int) -> NewTokens:
        """Return the next columns: at most `max_tokens` tokens, but at least one column and whole two-way documents."""
        first, width = self.num_fed, self._tokens[0].shape[1]
        per_column = (self._lengths[:, None] > np.arange(first, width)).sum(axis=0)
        num_columns = max(1, int(np.searchsorted(np.cumsum(per_column), max_tokens, side="right")))
        self.num_fed = min(max(first + num_columns, self._least_columns), width)
        prompts, ranks = np.nonzero(self._lengths[:, None] > np.arange(first, self.num_fed))
        fed = [array[prompts, first + ranks] for array in self._tokens]
        return NewTokens(*[*fed, prompts, ranks])
