"""Decides which prompts run next, in which cohorts, and which prefixes stay cached. It never reads a tensor."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Any

from hpd_core.attention.plan import PrefixCache
from hpd_core.decoding.cohort import Cohort
from hpd_core.decoding.memory import Limits
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import Layout, tree_layout

MakeCohort = Callable[[list[Prompt], list[PrefixCache | None]], Cohort]

_COHORTS_IN_SIGHT = 4
"""So many cohorts' worth of waiting prompts are searched for those that share a prefix.

Not all that wait: submissions that are searched together end together, and then nothing waits behind them.
"""

_LEAST_OVERLAP = 4
"""A step beside another one is worth its launch with this fraction of a full one. With less, the tail of a run would be
two steps of half the size that take turns, where one could be merged.
"""


class Scheduler:
    """Admits waiting prompts, as cohorts, under the step's token budget and the cache's size.

    A prompt whose prefix is not cached waits one step while the prefix is computed beside other work. What was
    submitted first runs first, and takes along what shares its prefix; callers who sort by length get cohorts with
    little padding.
    """

    def __init__(
        self,
        limits: Limits,
        make_cohort: MakeCohort,
        share_prefixes: bool,
        overlap: bool,
        room_for: Callable[[int], int],
    ) -> None:
        """Starts without work.

        Args:
            share_prefixes: whether the cohorts that `make_cohort` makes do.
            overlap: whether a step may be scheduled while another one is not finished.
            room_for: cache slots that so many columns take.
        """
        self.limits = limits
        self._overlap = overlap
        self._share_prefixes = share_prefixes
        self._make_cohort = make_cohort
        self._room_for = room_for
        self._waiting: OrderedDict[Prompt, None] = OrderedDict()  # in the order of their submission
        self._turn: list[Prompt] | None = None  # of those: what `_next_in_turn` found, until others wait
        self._prefixes: OrderedDict[Any, PrefixCache] = OrderedDict()  # least recently used first
        self._prefix_cohort: Cohort | None = None
        self._in_flight: set[Cohort] = set()  # in a step that is not finished
        self.running: list[Cohort] = []

    def add(self, prompts: Iterable[Prompt]) -> None:
        """Queues prompts behind those that wait."""
        self._waiting.update(dict.fromkeys(prompts))
        self._turn = None

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._waiting or self.running)

    def clear(self) -> None:
        """Drops everything that waits or runs, without a release; cached prefixes stay."""
        self._waiting.clear()
        self._turn = None
        self.running.clear()
        self._in_flight.clear()
        self._prefix_cohort = None

    def restart(self, limits: Limits) -> None:
        """Drops everything, cached prefixes too, and goes on within other limits."""
        self.clear()
        self._prefixes.clear()
        self.limits = limits

    def schedule(self) -> list[Cohort]:
        """The cohorts of the next step, new ones included; an uncached prefix comes as a cohort of its own.

        None, while other steps are not finished: if there is nothing else to do, or too little for a step of its own.
        """
        budget = self.limits.max_tokens_per_step
        load = num_tokens(self._idle())
        # A new cohort is worth its overhead only with enough room to fill it.
        if self._waiting and load <= budget // 2:
            self._admit(budget - load)
        cohorts = self._idle()
        if self._prefix_cohort and self._prefix_cohort not in self._in_flight:
            cohorts.insert(0, self._prefix_cohort)
        if self._in_flight and num_tokens(cohorts) < budget // _LEAST_OVERLAP:
            return []
        if self._overlap and not self._in_flight:
            cohorts = self._half(cohorts)
        self._in_flight.update(cohorts)
        return cohorts

    def _half(self, cohorts: list[Cohort]) -> list[Cohort]:
        """About half of them, if both halves are worth a step of their own: else all."""
        loads = [num_tokens([cohort]) for cohort in cohorts]
        half = min(range(len(loads) + 1), key=lambda count: abs(sum(loads[:count]) - sum(loads[count:])))
        least = self.limits.max_tokens_per_step // _LEAST_OVERLAP
        return cohorts[:half] if min(sum(loads[:half]), sum(loads[half:])) >= max(1, least) else cohorts

    def _idle(self) -> list[Cohort]:
        return [cohort for cohort in self.running if cohort not in self._in_flight]

    def _admit(self, max_tokens: int) -> None:
        prompts: list[Prompt] = []
        prefixes: list[PrefixCache | None] = []
        missing: dict[Any, Prompt] = {}
        num_new = widest = 0
        num_cached = sum(cohort.most_cached_tokens for cohort in self.running)
        users: Counter[PrefixCache] = Counter()
        for prompt in self._next_in_turn():
            has_prefix = prompt.layout.num_prefix_tokens > 0
            uncached = has_prefix and prompt.prefix_key not in self._prefixes
            if uncached and len(missing) < self.limits.max_cached_prefixes:
                missing.setdefault(prompt.prefix_key, prompt)
            if missing:
                continue  # prompts run in order: those behind one that waits for its prefix wait with it
            num_new += prompt.num_own_tokens
            # Every prompt of a cohort has as many slots as its widest.
            widest = max(widest, prompt.most_own_tokens)
            prefix = self._prefixes[prompt.prefix_key] if has_prefix else None
            if prefix is not None:
                users[prefix] += 1
            num_own = (len(prompts) + 1) * self._room_for(widest)
            full = num_cached + num_own + self._num_prefix_slots(users) > self.limits.max_cached_tokens
            alone = not prompts and not self.running
            if (num_new > max_tokens or full) and not alone:
                break
            prompts.append(prompt)
            prefixes.append(prefix)
            if has_prefix:
                self._prefixes.move_to_end(prompt.prefix_key)
        for prompt in prompts:
            del self._waiting[prompt]
        if prompts:
            self._turn = None
            self.running.append(self._make_cohort(prompts, prefixes))
        if missing and self._prefix_cohort is None:
            bare = [Prompt(_prefix_layout(item.layout), key, item.owner) for key, item in missing.items()]
            self._prefix_cohort = self._make_cohort(bare, [None] * len(bare))

    def _next_in_turn(self) -> list[Prompt]:
        """As many prompts as a cohort takes: those of the oldest one's prefix, of the next oldest's, and so on.

        A cohort pays for each of its prefixes in every layer, and a small submission has few prompts of a category.
        So the prompts of later submissions may overtake, but only along with one that is older than they are: the
        oldest always runs next.
        """
        if self._turn is None:
            most = self.limits.max_prompts_per_cohort
            by_prefix: dict[Any, list[Prompt]] = {}
            for prompt in islice(self._waiting, _COHORTS_IN_SIGHT * most):
                by_prefix.setdefault(prompt.prefix_key, []).append(prompt)
            self._turn = list(islice(chain.from_iterable(by_prefix.values()), most))
        return self._turn

    def _num_prefix_slots(self, users: Counter[PrefixCache]) -> int:
        """Cache slots that prefixes take, if a new cohort has so many prompts of each: what is shared counts once."""
        if not self._share_prefixes:
            return sum(prefix.num_tokens * count for prefix, count in users.items())
        shared = set(users).union(*(cohort.shared_prefixes for cohort in self.running))
        return sum(prefix.num_tokens for prefix in shared)

    def finish_step(self, cohorts: Iterable[Cohort]) -> tuple[list[Prompt], list[Prompt]]:
        """After a step of `cohorts`: caches computed prefixes, retires finished prompts, merges what has become small.

        Returns:
            The finished prompts, and the prefixes (as prompts without branches) that are cached now.
        """
        self._in_flight.difference_update(cohorts)
        computed: list[Prompt] = []
        prefix_cohort = self._prefix_cohort
        if prefix_cohort and prefix_cohort.is_finished and prefix_cohort not in self._in_flight:
            for prompt, prefix in zip(prefix_cohort.prompts, prefix_cohort.take_prefixes(), strict=True):
                computed.append(prompt)
                self._prefixes[prompt.prefix_key] = prefix
                while len(self._prefixes) > self.limits.max_cached_prefixes:
                    self._prefixes.popitem(last=False)
            prefix_cohort.release()
            self._prefix_cohort = None
        idle = self._idle()
        finished = [prompt for cohort in idle for prompt in cohort.retire()]
        for cohort in idle:
            if cohort.is_finished:
                cohort.release()
        in_flight = [cohort for cohort in self.running if cohort in self._in_flight]
        self.running = in_flight + self._merge([cohort for cohort in idle if not cohort.is_finished])
        return finished, computed

    def _rows_to_merge(self, cohort: Cohort) -> int:
        """What it adds to a merged one. A large one adds all: it would be copied for each small one that comes."""
        is_small = 2 * cohort.num_unfinished <= self.limits.max_prompts_per_cohort
        return cohort.num_unfinished if is_small else len(cohort.prompts)

    def _merge(self, cohorts: list[Cohort]) -> list[Cohort]:
        """Merges decoding cohorts that together fit one."""
        limit = self.limits.max_prompts_per_cohort
        merged = [cohort for cohort in cohorts if cohort.num_prefill_tokens]
        small = sorted(
            (cohort for cohort in cohorts if not cohort.num_prefill_tokens),
            key=lambda cohort: cohort.num_columns,
        )
        group: list[Cohort] = []
        for cohort in small:
            size = sum(map(self._rows_to_merge, group)) + self._rows_to_merge(cohort)
            # Columns are padded to the longest, so very different lengths stay apart.
            if group and (size > limit or cohort.num_columns > 2 * group[0].num_columns):
                merged.append(Cohort.merge(group) if len(group) > 1 else group[0])
                group = []
            group.append(cohort)
        if group:
            merged.append(Cohort.merge(group) if len(group) > 1 else group[0])
        return merged


def num_tokens(cohorts: Iterable[Cohort]) -> int:
    """That they would feed, all of their prompts at once."""
    return sum(cohort.num_prefill_tokens or cohort.num_live for cohort in cohorts)


def _prefix_layout(layout: Layout) -> Layout:
    return tree_layout([], layout.token_ids[: layout.num_prefix_tokens].tolist(), [])
