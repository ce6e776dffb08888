"""A cohort: prompts that were admitted together, their KV cache and the state of their values.

The cohort is the unit of attention. Its cache is one preallocated block (attention/kv_cache.py); every
prompt appends in memory in whatever order tokens come, and positions and scopes say who sees what (layout.py).
Prompts of one prefix stand side by side and share its keys and values, where the attention can; elsewhere each begins
with a copy of them.
Each step it says which tokens to feed (`next_input`) and takes back the tokens that were decoded (`accept`).
No Python runs per token: all bookkeeping is on arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hpd_core.attention.kv_cache import CacheBlock, CachePool
from hpd_core.attention.plan import AttentionPlan, PrefixCache, PromptGroup
from hpd_core.decoding.drafts import LONGEST_DRAFT, NO_DRAFTS, Drafter, Drafts, OpenValue, count_accepted
from hpd_core.decoding.next_token import Chosen
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import FREE, PUBLIC, IntArray
from hpd_core.system.device import to_device
from hpd_core.text.endings import Endings, Read, start_of

UNSEEN = 2**62
"""The position of a cache column that holds nothing: later than every token's, so that nobody sees it."""


@dataclass(frozen=True, slots=True)
class CohortInput:
    """What one cohort feeds in one step: t tokens, n of which decode.

    Attributes:
        token_ids, positions: int64 [t]
        plan: for the attention.
        logit_rows: int64 [n], index into the t tokens, of those whose next token is wanted.
        states: int64 [n], what each of them may go on with (text/constraints.py).
        prompts: the cohort's P prompts as they were when the step began.
        tokens_per_prompt: int64 [P], how many of the t tokens are each prompt's.
        num_drafts: how many of the t tokens are drafted.
    """

    token_ids: IntArray
    positions: IntArray
    plan: AttentionPlan
    logit_rows: IntArray
    states: IntArray
    prompts: list[Prompt]
    tokens_per_prompt: IntArray
    num_drafts: int


class Cohort:
    """P prompts that run in lock-step, from prefill to their last value."""

    def __init__(
        self,
        prompts: Sequence[Prompt],
        prefixes: Sequence[PrefixCache | None],
        pool: CachePool,
        share_prefixes: bool = False,
        max_finished: float = 0.5,
    ) -> None:
        """Takes memory: whoever makes a cohort has to `release` it.

        Args:
            prefixes: of each prompt, or None; they are copied unless they are to be shared, which they must be where
                values lie in blocks.
            pool: whose memory it takes.
            max_finished: the share of prompts that may be finished before their memory is given up, which means to
                take the others to new memory.
        """
        # Of one prefix by length: neighbours share tiles of the attention, padded to the longest.
        order = _side_by_side(prefixes, [prompt.num_own_tokens for prompt in prompts])
        self.prompts = prompts = [prompts[row] for row in order]
        self._pool, self._max_finished = pool, max_finished
        own = [prompt.num_own_tokens for prompt in prompts]
        self._own_lengths = np.array(own, dtype=np.int64)
        width = max(own)
        self._own_ids = self._own(width, lambda layout: layout.token_ids)
        self._own_positions = self._own(width, lambda layout: layout.positions)
        self._own_scopes = self._own(width, lambda layout: layout.scopes)
        self._num_prefilled = 0  # columns of the own tokens that have been fed

        num_branches = max(1, *(prompt.layout.num_branches for prompt in prompts))
        shape_pb = (len(prompts), num_branches)
        # End of each branch as a column of the own tokens; -1 where a prompt has fewer branches.
        self._ends = self._branches(shape_pb, -1, lambda lay: lay.ends - lay.num_prefix_tokens)
        self._end_positions = self._branches(shape_pb, 0, lambda lay: lay.positions[lay.ends])
        self._value_scopes = self._branches(shape_pb, PUBLIC, lambda lay: lay.value_scopes)
        self._limits = self._branches(shape_pb, 0, lambda lay: lay.max_new_tokens)
        self._states = self._branches(shape_pb, FREE, lambda lay: lay.states)
        # What has been read of each (text/endings.py). Whoever is seen by others writes to the end of the line.
        self._read = np.where(self._states == FREE, start_of(False), start_of(True)).astype(np.uint8)
        self._read[self._value_scopes == PUBLIC] = Read.LINE
        self._live = self._ends >= 0
        self._closed = np.zeros(shape_pb, dtype=bool)
        self._counts = np.zeros(shape_pb, dtype=np.int64)
        self._tokens = np.zeros((*shape_pb, max(1, int(self._limits.max()))), dtype=np.int64)
        self._logprobs = np.zeros(self._tokens.shape, dtype=np.float32)
        self._decoding: tuple[IntArray, IntArray] = _no_pairs()
        # Of a step with drafts: its tokens, and of each the value, and how far behind the value's last token it is.
        self._drafted: tuple[CohortInput, IntArray, IntArray] | None = None

        self._num_drafts = np.zeros(len(prompts), dtype=np.int64)
        self._num_rejected = np.zeros(len(prompts), dtype=np.int64)
        self._retired = np.zeros(len(prompts), dtype=bool)  # finished; the row waits to be dropped
        prefixes = [prefixes[row] for row in order]
        copied = [None if share_prefixes else prefix for prefix in prefixes]
        if pool.order.block is not None and any(copied):
            raise ValueError("values in blocks: a prefix cannot be copied in front of others, only shared")
        self._prefixes = [prefix if share_prefixes else None for prefix in prefixes]  # the shared ones
        self._allocate(int((_lengths(copied) + self._own_lengths).max()) + self._room())
        self._copy_prefixes(copied)

    def _own(self, width: int, pick: Any) -> IntArray:
        padded = np.zeros((len(self.prompts), width), dtype=np.int64)
        for row, prompt in enumerate(self.prompts):
            tail = pick(prompt.layout)[prompt.layout.num_prefix_tokens :]
            padded[row, : len(tail)] = tail
        return padded

    def _branches(self, shape: tuple[int, int], fill: int, pick: Any) -> IntArray:
        padded = np.full(shape, fill, dtype=np.int64)
        for row, prompt in enumerate(self.prompts):
            padded[row, : prompt.layout.num_branches] = pick(prompt.layout)
        return padded

    def _allocate(self, num_columns: int) -> None:
        capacity = self._pool.order.room_for(num_columns)
        self._cache = self._pool.take(len(self.prompts), capacity)
        size = (len(self.prompts), capacity)
        self._k_scopes = torch.full(size, PUBLIC, dtype=torch.int64, device=self._device)
        self._k_positions = torch.full(size, UNSEEN, dtype=torch.int64, device=self._device)

    @property
    def _device(self) -> torch.device:
        return self._pool.shape.device

    def release(self) -> None:
        """Gives its cache back; it cannot run any more."""
        self._pool.give_back(self._cache)

    def _room(self) -> int:
        """Free columns worth having: values are short as a rule, and a longer one grows the block."""
        return 4 * int(self._ends.shape[1])

    def _copy_prefixes(self, prefixes: Sequence[PrefixCache | None]) -> None:
        """Fills each prompt's first columns."""
        for group in prompt_groups(prefixes):
            if group.prefix is None:
                continue
            rows, length = slice(group.start, group.stop), group.prefix.num_tokens
            for block, source in ((self._cache.keys, group.prefix.keys), (self._cache.values, group.prefix.values)):
                for layer, tensor in enumerate(source):
                    block[layer][rows, :, :length] = tensor
            self._k_positions[rows, :length] = torch.arange(length, device=self._device)
        self._used = _lengths(prefixes)

    # State, as the scheduler reads it.

    @property
    def num_prefill_tokens(self) -> int:
        """Prompt tokens still to be fed."""
        return int(np.maximum(self._own_lengths - self._num_prefilled, 0).sum())

    @property
    def num_unfinished(self) -> int:
        """Prompts that are not finished."""
        return len(self.prompts) - int(self._retired.sum())

    @property
    def num_live(self) -> int:
        """Values that are not finished."""
        return int(self._live.sum())

    @property
    def num_cached_tokens(self) -> int:
        """Cache slots that the cohort occupies, padding included; shared prefixes are not its own."""
        return len(self.prompts) * int(self._k_positions.shape[1])

    @property
    def most_cached_tokens(self) -> int:
        """Cache slots that it will occupy if the values of its widest prompt all become as long as they may."""
        values = np.where(self._live, self._limits - self._counts, 0).sum(axis=1)
        widest = int((self._used + np.maximum(self._own_lengths - self._num_prefilled, 0) + values).max())
        return max(self.num_cached_tokens, len(self.prompts) * self._pool.order.room_for(widest))

    @property
    def shared_prefixes(self) -> set[PrefixCache]:
        """The prefixes that its prompts attend to where they are."""
        return {prefix for prefix in self._prefixes if prefix is not None}

    @property
    def num_columns(self) -> int:
        """Columns of the cache in use."""
        return int(self._used.max())

    @property
    def is_finished(self) -> bool:
        """Nothing left to feed or decode."""
        return self.num_prefill_tokens == 0 and self.num_live == 0

    # One step.

    def next_input(
        self, start: int, max_prefill_tokens: int, drafter: Drafter | None = None, max_drafts: int = 0
    ) -> CohortInput:
        """The tokens of the next step: a part of the prompts while there is some, then one token per live value.

        Args:
            start: where the cohort's stretch of the packed row begins.
            max_prefill_tokens: at most about so many prompt tokens (at least one column of them).
            drafter, max_drafts: who drafts what values may go on with, and the most tokens that are fed of it.
        """
        if self.num_prefill_tokens:
            return self._prefill_input(start, max_prefill_tokens)
        return self._decode_input(start, drafter, max_drafts)

    def _prefill_input(self, start: int, max_tokens: int) -> CohortInput:
        first = self._num_prefilled
        per_column = (self._own_lengths[:, None] > np.arange(first, self._own_ids.shape[1])).sum(axis=0)
        num_columns = max(1, int(np.searchsorted(np.cumsum(per_column), max_tokens, side="right")))
        stop = min(first + num_columns, self._own_ids.shape[1])
        self._num_prefilled = stop
        prompts, columns = np.nonzero(self._own_lengths[:, None] > np.arange(first, stop))
        columns = columns + first
        token_of = np.full((len(self.prompts), stop - first), -1)
        token_of[prompts, columns - first] = np.arange(len(prompts))

        ended = (self._ends >= first) & (self._ends < stop)
        self._decoding = _pairs(np.nonzero(ended))
        rows, branches = self._decoding
        return self._input(
            start,
            self._own_ids[prompts, columns],
            self._own_positions[prompts, columns],
            self._own_scopes[prompts, columns],
            prompts,
            columns - first,
            token_of[rows, self._ends[rows, branches] - first],
            NO_DRAFTS,
        )

    def _decode_input(self, start: int, drafter: Drafter | None, max_drafts: int) -> CohortInput:
        rows, branches = self._decoding = _pairs(np.nonzero(self._live))
        counts = self._counts[rows, branches]
        drafts = self._drafts(drafter, max_drafts) if drafter and max_drafts > 0 else NO_DRAFTS
        owners = _behind_each(np.arange(len(rows)), drafts, drafts.owners)
        depths = np.arange(len(owners)) - np.searchsorted(owners, owners)  # both are sorted, owners and prompts
        prompts = rows[owners]
        fed = self._input(
            start,
            _behind_each(self._tokens[rows, branches, counts - 1], drafts, drafts.tokens),
            (self._end_positions[rows, branches] + counts)[owners] + depths,
            self._value_scopes[rows, branches][owners],
            prompts,
            np.arange(len(prompts)) - np.searchsorted(prompts, prompts),
            np.arange(len(prompts)),
            drafts,
        )
        self._drafted = (fed, owners, depths) if len(drafts.tokens) else None
        return fed

    def _drafts(self, drafter: Drafter, room: int) -> Drafts:
        """For this step's values. Values that others see get none: their tokens would come in another order."""
        values = []
        documents: dict[int, IntArray] = {}
        for row, branch in zip(*(indices.tolist() for indices in self._decoding), strict=True):
            count = int(self._counts[row, branch])
            # The last token that a value may have is never fed.
            most = min(LONGEST_DRAFT, int(self._limits[row, branch]) - count - 1)
            if self._value_scopes[row, branch] == PUBLIC:
                most = 0
            if row not in documents:
                documents[row] = self.prompts[row].document_ids
            values.append(
                OpenValue(
                    documents[row],
                    self._tokens[row, branch, :count],
                    int(self._states[row, branch]),
                    int(self._read[row, branch]),
                    most,
                )
            )
        return drafter.propose(values, room)

    def _input(
        self,
        start: int,
        token_ids: IntArray,
        positions: IntArray,
        scopes: IntArray,
        prompts: IntArray,
        ranks: IntArray,
        logit_rows: IntArray,
        drafts: Drafts,
    ) -> CohortInput:
        """`ranks[i]` numbers the tokens of one prompt from 0: their query row and the order in the cache."""
        num_rows = int(ranks.max()) + 1
        columns = self._used[prompts] + ranks
        tokens_per_prompt = np.bincount(prompts, minlength=len(self.prompts))
        self._used = self._used + tokens_per_prompt
        self._reserve(self.num_columns)

        shape = (len(self.prompts), num_rows)
        flat = prompts * num_rows + ranks
        rows = np.zeros(shape[0] * shape[1], dtype=np.int64)
        q_scopes = np.full_like(rows, PUBLIC)
        q_positions = np.zeros_like(rows)
        rows[flat], q_scopes[flat], q_positions[flat] = np.arange(len(flat)), scopes, positions
        device = self._device

        def put(array: IntArray) -> Tensor:
            return to_device(array, device)

        kv_prompts, kv_columns = put(np.ascontiguousarray(prompts)), put(columns)
        self._k_scopes[kv_prompts, kv_columns] = put(scopes)
        self._k_positions[kv_prompts, kv_columns] = put(positions)
        plan = AttentionPlan(
            start=start,
            stop=start + len(token_ids),
            counts=tokens_per_prompt,
            used=self._used,
            rows=put(rows),
            unrows=put(flat),
            kv_prompts=kv_prompts,
            kv_columns=kv_columns,
            q_scopes=put(q_scopes).view(shape),
            q_positions=put(q_positions).view(shape),
            k_scopes=self._k_scopes[:, : self.num_columns],
            k_positions=self._k_positions[:, : self.num_columns],
            keys=self._cache.keys,
            values=self._cache.values,
            groups=prompt_groups(self._prefixes),
        )
        states = _behind_each(self._states[self._decoding], drafts, drafts.states)
        return CohortInput(
            token_ids,
            positions,
            plan,
            logit_rows,
            states,
            list(self.prompts),
            tokens_per_prompt,
            len(drafts.tokens),
        )

    def _reserve(self, num_columns: int) -> None:
        """Grows the cache by some columns when `num_columns` do not fit: most values have ended, few need them."""
        capacity = self._k_positions.shape[1]
        if num_columns > capacity:
            rows = np.nonzero(~self._retired)[0]
            self._move(rows, rows, max(num_columns, capacity + capacity // 4, capacity + self._room()))

    def _move(self, picked: IntArray, rows: IntArray, capacity: int) -> None:
        """Takes the rows `picked` of the cache to `rows` of a new block; what is not picked is finished."""
        old, scopes, positions = self._cache, self._k_scopes, self._k_positions
        self._allocate(capacity)
        self._copy(old, scopes, positions, picked, rows)
        self._pool.give_back(old)

    def _copy(self, source: CacheBlock, scopes: Tensor, positions: Tensor, picked: IntArray, rows: IntArray) -> None:
        """Into `rows`, what is in use of the rows of another block that are `picked`."""
        num_columns = min(scopes.shape[1], self._k_scopes.shape[1])
        self._cache.copy_prompts(rows, source, picked, np.minimum(self._used[rows], num_columns))
        to, from_ = to_device(rows, self._device), to_device(picked, self._device)
        self._k_scopes[to, :num_columns] = scopes[from_, :num_columns]
        self._k_positions[to, :num_columns] = positions[from_, :num_columns]

    def accept(self, chosen: Chosen, endings: Endings) -> int:
        """Takes the decoded tokens of this step, one per logit row, and ends the values that closed.

        Args:
            chosen: n tokens.
            endings: what each id does.

        Returns:
            How many drafted tokens were wrong.
        """
        num_rejected = 0
        if self._drafted:
            chosen, num_rejected = self._accept_drafts(chosen, endings, *self._drafted)
            self._drafted = None
        rows, branches = self._decoding
        tokens, logprobs = chosen.tokens, chosen.logprobs
        counts = self._counts[rows, branches]
        self._tokens[rows, branches, counts] = tokens
        self._logprobs[rows, branches, counts] = logprobs
        self._counts[rows, branches] = counts + 1
        self._states[rows, branches] = chosen.states
        self._read[rows, branches], closed = endings.read(self._read[rows, branches], tokens)
        self._closed[rows, branches] = closed
        self._live[rows, branches] = ~closed & (counts + 1 < self._limits[rows, branches])

        return num_rejected

    def _accept_drafts(
        self, chosen: Chosen, endings: Endings, fed: CohortInput, owners: IntArray, depths: IntArray
    ) -> tuple[Chosen, int]:
        """Takes the drafts as far as they were right; what was chosen behind that, and how many were wrong."""
        accepted = count_accepted(fed.token_ids, owners, chosen.tokens, len(self._decoding[0]))
        last = accepted[owners] - 1
        rows, branches = (indices[owners] for indices in self._decoding)
        places = self._counts[rows, branches] + depths
        right = depths < last  # what was chosen here is the drafted token behind
        self._tokens[rows[right], branches[right], places[right]] = chosen.tokens[right]
        self._logprobs[rows[right], branches[right], places[right]] = chosen.logprobs[right]
        self._counts[self._decoding] += accepted - 1
        for depth in range(LONGEST_DRAFT):
            here = right & (depths == depth)
            of_value = rows[here], branches[here]
            self._read[of_value], _ = endings.read(self._read[of_value], chosen.tokens[here])
        wrong = np.nonzero(depths > last)[0]
        if len(wrong):
            rejected = to_device(wrong, self._device)
            # Their columns hold what nobody wrote: nobody may see them from now on.
            unseen = torch.full_like(rejected, UNSEEN)  # a plain number would be copied to a GPU, and waited for
            self._k_positions[fed.plan.kv_prompts[rejected], fed.plan.kv_columns[rejected]] = unseen
            self._give_back_columns(fed.tokens_per_prompt, rows, depths <= last)
        self._num_drafts += np.bincount(rows[depths > 0], minlength=len(self.prompts))
        self._num_rejected += np.bincount(rows[wrong], minlength=len(self.prompts))
        return chosen[np.nonzero(depths == last)[0]], len(wrong)

    def _give_back_columns(self, tokens_per_prompt: IntArray, rows: IntArray, holds: npt.NDArray[np.bool_]) -> None:
        """Lets the next step have the last columns of this one, as far as they hold rejected tokens.

        Args:
            tokens_per_prompt: int64 [P], of this step.
            rows: int64 [t], the prompt of each token; ascending.
            holds: bool [t], whether it was accepted; of each prompt with tokens at least one was.
        """
        ranks = np.arange(len(rows)) - np.searchsorted(rows, rows)
        kept = np.zeros_like(tokens_per_prompt)
        np.maximum.at(kept, rows[holds], ranks[holds] + 1)
        self._used = self._used - tokens_per_prompt + kept

    # Between steps.

    def retire(self) -> list[Prompt]:
        """Takes out the finished prompts, with their values; shrinks the cohort when enough of it is gone."""
        if self.num_prefill_tokens:
            return []
        done: npt.NDArray[np.bool_] = np.logical_not(self._live.any(axis=1))
        finished = []
        for row in np.nonzero(done & ~self._retired)[0]:
            self._write_back(int(row))
            finished.append(self.prompts[row])
        self._retired = done
        if done.sum() >= self._max_finished * len(done) and not done.all():
            self._keep(np.nonzero(~done)[0])
        return finished

    def _write_back(self, row: int) -> None:
        prompt = self.prompts[row]
        prompt.num_draft_tokens = int(self._num_drafts[row])
        prompt.num_rejected_tokens = int(self._num_rejected[row])
        for branch in range(prompt.layout.num_branches):
            count = self._counts[row, branch]
            prompt.tokens.append(self._tokens[row, branch, :count].tolist())
            prompt.logprobs.append(self._logprobs[row, branch, :count].tolist())
            prompt.closed.append(bool(self._closed[row, branch]))

    def _keep(self, rows: IntArray) -> None:
        self.prompts = [self.prompts[row] for row in rows]
        self._prefixes = [self._prefixes[row] for row in rows]
        for name in (*_PROMPT_ARRAYS, *_BRANCH_ARRAYS):
            setattr(self, name, getattr(self, name)[rows])
        self._decoding = _no_pairs()
        self._move(rows, np.arange(len(rows)), min(self.num_columns + self._room(), self._k_positions.shape[1]))

    def take_prefixes(self) -> list[PrefixCache]:
        """For a cohort of bare prefixes: the KV of each, when they are fed."""
        return [
            PrefixCache(*self._cache.copy_of_prompt(row, length))
            for row, length in enumerate(self._own_lengths.tolist())
        ]

    @classmethod
    def merge(cls, cohorts: Sequence[Cohort]) -> Cohort:
        """One cohort out of several that are decoding, which end: a long tail does not cost a call for each."""
        merged = cls.__new__(cls)
        merged._pool, merged._max_finished = cohorts[0]._pool, cohorts[0]._max_finished
        live = [np.nonzero(~cohort._retired)[0] for cohort in cohorts]
        pairs = list(zip(cohorts, live, strict=True))
        prefixes = [cohort._prefixes[row] for cohort, rows in pairs for row in rows]
        order = _side_by_side(prefixes, np.concatenate([cohort._used[rows] for cohort, rows in pairs]))
        prompts = [cohort.prompts[row] for cohort, rows in pairs for row in rows]
        merged.prompts = [prompts[row] for row in order]
        merged._prefixes = [prefixes[row] for row in order]
        merged._num_prefilled = max(cohort._own_ids.shape[1] for cohort in cohorts)
        merged._decoding = _no_pairs()
        merged._drafted = None
        for name in (*_PROMPT_ARRAYS, *_BRANCH_ARRAYS):
            setattr(merged, name, _stack([getattr(cohort, name)[rows] for cohort, rows in pairs])[order])
        merged._allocate(merged.num_columns + merged._room())
        places = np.split(np.argsort(order), np.cumsum([len(rows) for rows in live])[:-1])
        for (cohort, picked), rows in zip(pairs, places, strict=True):
            merged._copy(cohort._cache, cohort._k_scopes, cohort._k_positions, picked, rows)
            cohort.release()
        return merged


_PROMPT_ARRAYS = (
    "_own_lengths",
    "_own_ids",
    "_own_positions",
    "_own_scopes",
    "_used",
    "_num_drafts",
    "_num_rejected",
    "_retired",
)

_BRANCH_ARRAYS = (
    "_ends",
    "_end_positions",
    "_value_scopes",
    "_limits",
    "_states",
    "_read",
    "_live",
    "_closed",
    "_counts",
    "_tokens",
    "_logprobs",
)


def _side_by_side(prefixes: Sequence[PrefixCache | None], lengths: Sequence[int] | IntArray) -> IntArray:
    """The rows in an order that has equal prefixes side by side, and those of one prefix by length."""
    numbers: dict[PrefixCache | None, int] = {}
    ranks = [numbers.setdefault(prefix, len(numbers)) for prefix in prefixes]
    return np.lexsort((np.asarray(lengths), np.array(ranks)))


def prompt_groups(prefixes: Sequence[PrefixCache | None]) -> list[PromptGroup]:
    """The prompts of these prefixes, cut where the prefix changes."""
    starts = [row for row in range(len(prefixes)) if row == 0 or prefixes[row] is not prefixes[row - 1]]
    stops = [*starts[1:], len(prefixes)]
    return [PromptGroup(start, stop, prefixes[start]) for start, stop in zip(starts, stops, strict=True)]


def _lengths(prefixes: Sequence[PrefixCache | None]) -> IntArray:
    return np.array([prefix.num_tokens if prefix else 0 for prefix in prefixes], dtype=np.int64)


def _stack(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Rows of all `arrays`, padded with zeros (False) behind each axis but the first."""
    width = tuple(np.max([array.shape[1:] for array in arrays], axis=0)) if arrays[0].ndim > 1 else ()
    stacked = np.zeros((sum(len(array) for array in arrays), *width), dtype=arrays[0].dtype)
    first = 0
    for array in arrays:
        stacked[(slice(first, first + len(array)), *(slice(size) for size in array.shape[1:]))] = array
        first += len(array)
    return stacked


def _behind_each(array: IntArray, drafts: Drafts, drafted: IntArray) -> IntArray:
    """`array`, one element a value, and behind each element those of the value's draft."""
    return np.insert(array, drafts.owners + 1, drafted) if len(drafted) else array


def _pairs(indices: tuple[Any, ...]) -> tuple[IntArray, IntArray]:
    return indices[0], indices[1]


def _no_pairs() -> tuple[IntArray, IntArray]:
    return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
