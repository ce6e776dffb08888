"""The scheduler: which prompts run next, and in which cohorts. It never reads a tensor.

Cohorts that have become small are merged, so that a long tail does not cost a call for each.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import Any

from hpd_core.attention.kv_cache import CacheOrder
from hpd_core.attention.plan import PrefixCache
from hpd_core.decoding.cohort import Cohort
from hpd_core.decoding.cohort_cache import MixerRoom
from hpd_core.decoding.common_prefixes import CommonPrefixes, SharedText
from hpd_core.decoding.memory import Limits
from hpd_core.decoding.prompt import Prompt

MakeCohort = Callable[[list[Prompt], list[PrefixCache | None]], Cohort]

_COHORTS_IN_SIGHT = 4
"""Number of cohorts' worth of waiting prompts that are searched for those that share a prefix.

Not all waiting prompts: submissions that are searched together end together, and then nothing waits after them.
"""

_SPARE = 32
"""New prompts leave one part in 32 of the cache free, for values that are longer than usual. If that is too little,
some prompts begin again."""

_LEAST_OVERLAP = 4
"""A step beside another one is worth its launch from this fraction of a full one on. With less, the tail of a run would
be two steps of half the size that take turns, where one could be merged.
"""


class Scheduler:
    """Admission of waiting prompts, as cohorts, under the step's token budget and the cache's size.

    A prompt whose prefix is not cached waits one step while the prefix is computed beside other work. Prompts submitted
    first run first, together with others that share their prefix. Callers who sort by length get cohorts with little
    padding.
    """

    def __init__(
        self,
        limits: Limits,
        make_cohort: MakeCohort,
        overlap: bool,
        order: CacheOrder,
        share_text: bool,
        mixer_room: MixerRoom,
    ) -> None:
        """Start without work.

        Args:
            overlap: whether a step may be scheduled while another one is not finished.
            order: of the cache. Without slots of their own, all prompts of a cohort are padded to the widest.
            share_text: whether texts that several documents begin with are computed once.
            mixer_room: slots that layers beside attention take.
        """
        self.limits = limits
        self._overlap = overlap
        self._make_cohort = make_cohort
        self._order = order
        self._mixer_room = mixer_room
        self._waiting: OrderedDict[Prompt, None] = OrderedDict()  # in the order of their submission
        self._turn: list[Prompt] | None = None  # result of `_next_in_turn`, until other prompts wait
        self._arrived: list[Prompt] = []  # waiting prompts not yet searched for common texts
        self._common = CommonPrefixes(share_text, mixer_room)
        self._prefix_cohort: Cohort | None = None
        self._in_flight: set[Cohort] = set()  # in a step that is not finished
        self._num_cohorts = 0
        self._retired: list[Prompt] = []  # ended between steps, not reported yet
        self.running: list[Cohort] = []

    def add(self, prompts: Iterable[Prompt]) -> None:
        """Queue prompts after those that wait."""
        arrived = list(prompts)
        self._waiting.update(dict.fromkeys(arrived))
        self._arrived += arrived
        self._turn = None

    def drop(self, prompts: Iterable[Prompt]) -> list[Prompt]:
        """Drop prompts, between steps. Return those that had not begun to run; the others end as they are with the next
        step of their cohorts."""
        waiting = [prompt for prompt in prompts if prompt in self._waiting]
        for prompt in waiting:
            del self._waiting[prompt]
            self._common.admit(prompt)
        self._arrived = [prompt for prompt in self._arrived if prompt in self._waiting]
        self._turn = None
        self._give_up_texts()
        return waiting

    def _give_up_texts(self) -> None:
        """Release the cohort of prefixes in computation if all prompts that wait for any of them were dropped."""
        computing = self._prefix_cohort
        if computing is None or computing in self._in_flight:
            return
        if not any(self._common.is_wanted(bare.prefix_key) for bare in computing.prompts):
            computing.release()
            self._prefix_cohort = None

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._waiting or self.running)

    def clear(self) -> None:
        """Drop everything that waits or runs, without a release; keep cached prefixes."""
        self._waiting.clear()
        self._arrived.clear()
        self._common.clear()
        self._turn = None
        self.running.clear()
        self._retired.clear()
        self._in_flight.clear()
        self._prefix_cohort = None

    def restart(self, limits: Limits) -> None:
        """Drop everything, including cached prefixes, and set other limits."""
        self.clear()
        self._common.clear_all()
        self.limits = limits

    def schedule(self) -> list[Cohort]:
        """Return the cohorts of the next step, new ones included; an uncached prefix comes as a cohort of its own.

        Return [] if other steps are not finished, and nothing else is to do, or too little for a step of its own.
        """
        if not self._displace():
            return []
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
        """Return about half of the cohorts if both halves are worth a step of their own, else all."""
        loads = [num_tokens([cohort]) for cohort in cohorts]
        half = min(range(len(loads) + 1), key=lambda count: abs(sum(loads[:count]) - sum(loads[count:])))
        least = self.limits.max_tokens_per_step // _LEAST_OVERLAP
        return cohorts[:half] if min(sum(loads[:half]), sum(loads[half:])) >= max(1, least) else cohorts

    def _idle(self) -> list[Cohort]:
        return [cohort for cohort in self.running if cohort not in self._in_flight]

    def _admit(self, max_tokens: int) -> None:
        turn = self._next_in_turn()
        if not self.running and self._prefix_cohort is None:
            self._give_up_what_never_fits(turn[0])
        num_near = self.limits.max_prompts_per_cohort
        if self._prefix_cohort is None:  # what the next cohort lacks is computed beside this one
            near = (prompt for prompt in turn[:num_near] if self._common.missing(prompt) == prompt.prefix_key)
            max_tokens -= sum({prompt.prefix_key: prompt.layout.num_prefix_tokens for prompt in near}.values())
        ready = self._ready(turn, max_tokens)
        if ready:
            self._turn = None
            self.running.append(self._make_cohort([prompt for prompt, _ in ready], [prefix for _, prefix in ready]))
            self.running[-1].number = self._num_cohorts = self._num_cohorts + 1
            max_tokens -= self.running[-1].num_prefill_tokens
        for prompt, _ in ready:
            del self._waiting[prompt]
            self._common.admit(prompt)
        if self._prefix_cohort is None:
            self._compute_for(turn[len(ready) :], num_near - len(ready), max_tokens)

    def _ready(self, turn: Sequence[Prompt], max_tokens: int) -> list[tuple[Prompt, PrefixCache | None]]:
        """Return those of the next prompts that can run now, each with the cached prefix that it attends to."""
        ready: list[tuple[Prompt, PrefixCache | None]] = []
        num_new = widest = num_columns = widest_mixing = 0
        most = self.limits.max_cached_tokens
        if turn[0].was_displaced:  # it waits until running prompts fit even at their longest
            num_cached = sum(cohort.most_cached_tokens for cohort in self.running)
        else:
            num_cached = self._num_cached()
            most -= most // _SPARE
        users: set[PrefixCache] = set()
        for prompt in islice(turn, self.limits.max_prompts_per_cohort):
            if self._common.missing(prompt) is not None:
                break  # prompts run in order: those after one that waits for its prefix wait with it
            prefix = self._common.of(prompt)
            num_new += prompt.num_own_tokens
            room = self._order.room_for(prompt.reserved_tokens)
            widest = max(widest, room)
            num_columns += room
            widest_mixing = max(widest_mixing, self._mixer_room.for_prompt(prompt))  # padded however it attends
            if prefix is not None:
                users.add(prefix)
            count = len(ready) + 1
            num_own = (num_columns if self._order.by_address else count * widest) + count * widest_mixing
            num_kept = self._common.num_slots(self.running, self._prefix_cohort, users)
            over = num_cached + num_own + num_kept - most
            alone = not ready and not self.running
            if not alone and num_new > max_tokens:
                break
            if not self._common.make_room(over, self.running, users, at_any_rate=alone) and not alone:
                break
            ready.append((prompt, prefix))
        return ready

    def _compute_for(self, prompts: Sequence[Prompt], num_near: int, max_tokens: int) -> None:
        """Start computing the prefixes that these prompts wait for.

        Texts are computed for all of them while there is room, so that many are in one step. Prefixes of categories are
        computed only for the nearest prompts, and as many as are kept together: they evict others.
        """
        wanted: dict[Any, tuple[Prompt, PrefixCache | None]] = {}
        near: set[Any] = set()
        num_free = self.limits.max_cached_tokens - self._num_cached() - self._common.num_slots(self.running)
        for number, prompt in enumerate(prompts):
            if number < num_near:
                near.add(prompt.prefix_key)
            key = self._common.missing(prompt)
            if key is None or key in wanted:
                continue
            if isinstance(key, SharedText):
                bare, before = self._common.to_compute(key, prompt)
                num_free -= self._common.slots_of_new_text(bare)
                max_tokens -= bare.num_own_tokens
                if (num_free < 0 or max_tokens < 0) and (wanted or self.running):
                    break
                wanted[key] = bare, before
            elif number < num_near and len(near) <= self.limits.max_cached_prefixes:
                if needed := self._common.slots_of_new_prefix:
                    alone = not wanted and not self.running
                    has_room = self._common.make_room(needed - num_free, self.running, at_any_rate=alone)
                    if not has_room and not alone:
                        break
                    num_free = max(num_free, needed) - needed
                wanted[key] = self._common.to_compute(key, prompt)
        if wanted:
            bare_prompts, before_them = zip(*wanted.values(), strict=True)
            self._prefix_cohort = self._make_cohort(list(bare_prompts), list(before_them))

    def _give_up_what_never_fits(self, prompt: Prompt) -> None:
        """Give up texts that cannot fit, if nothing runs that would free memory when it ends; share less instead."""
        while isinstance(text := self._common.missing(prompt), SharedText):
            bare, before = self._common.to_compute(text, prompt)
            num_slots = self._common.slots_of_new_text(bare) + self._common.num_slots(self.running)
            users = [] if before is None else [before]
            if self._common.make_room(num_slots - self.limits.max_cached_tokens, self.running, users):
                break
            text.is_given_up = True

    def _next_in_turn(self) -> list[Prompt]:
        """Return the next prompts: those of the oldest one's prefix, of the next oldest's, and so on.

        Prompts that share a text stand side by side. A cohort pays for each of its prefixes in every layer, and a small
        submission has few prompts of a category. So prompts of later submissions may overtake, but only along with one
        that is older than they are: the oldest always runs next.
        """
        if self._turn is None:
            most = self.limits.max_prompts_per_cohort
            in_sight = list(islice(self._waiting, _COHORTS_IN_SIGHT * most))
            if self._arrived:
                self._common.find_texts(self._arrived, in_sight)
                self._arrived = []
            by_prefix: dict[Any, dict[Prompt, None]] = {}
            for prompt in in_sight:
                group = by_prefix.setdefault(prompt.prefix_key, {})
                if prompt not in group:
                    group.update(dict.fromkeys([prompt, *self._common.relatives(prompt, most)]))
            self._turn = list(chain.from_iterable(by_prefix.values()))
        return self._turn

    def _num_cached(self) -> int:
        return sum(cohort.num_cached_tokens for cohort in self.running)

    def _displace(self) -> bool:
        """Displace prompts of the youngest cohorts while the next step needs more cache than there is: they begin again
        later. Return False if the youngest cohort is in a step that has to be waited for.
        """
        while sum(cohort.num_unfinished for cohort in self.running) > 1:
            idle = self._idle()
            needed = self._num_cached() + sum(cohort.next_cached_tokens - cohort.num_cached_tokens for cohort in idle)
            kept = self._common.num_slots(self.running, self._prefix_cohort)
            if needed + kept <= self.limits.max_cached_tokens:
                return True
            youngest = max(self.running, key=lambda cohort: cohort.number)
            if youngest in self._in_flight:
                return False
            self._retired += youngest.retire()  # dropped prompts end as they are
            num_left, prompts = youngest.num_unfinished, youngest.displace()
            if len(prompts) == num_left:
                self.running.remove(youngest)
            self.add(prompts)
            for prompt in reversed(prompts):
                prompt.was_displaced = True
                self._waiting.move_to_end(prompt, last=False)
        return True

    def finish_step(self, cohorts: Iterable[Cohort]) -> tuple[list[Prompt], list[Prompt], list[Prompt]]:
        """Finish a step of `cohorts`: cache computed prefixes, retire finished prompts, merge small cohorts.

        Returns:
            The finished prompts; the prefixes that are cached now, as prompts without branches; texts likewise.
        """
        self._in_flight.difference_update(cohorts)
        self._give_up_texts()  # all that waited may have been dropped while they were in flight
        prefixes: list[Prompt] = []
        texts: list[Prompt] = []
        prefix_cohort = self._prefix_cohort
        if prefix_cohort and prefix_cohort.is_finished and prefix_cohort not in self._in_flight:
            for prompt, prefix in zip(prefix_cohort.prompts, prefix_cohort.take_prefixes(), strict=True):
                (texts if isinstance(prompt.prefix_key, SharedText) else prefixes).append(prompt)
                self._common.computed(prompt.prefix_key, prefix, self.limits.max_cached_prefixes)
            prefix_cohort.release()
            self._prefix_cohort = None
        idle = self._idle()
        finished = [*self._retired, *(prompt for cohort in idle for prompt in cohort.retire())]
        self._retired.clear()
        for cohort in idle:
            if cohort.is_finished:
                cohort.release()
        in_flight = [cohort for cohort in self.running if cohort in self._in_flight]
        left = [cohort for cohort in idle if not cohort.is_finished]
        self.running = in_flight + left  # read by `_has_room_for_one`
        self.running = in_flight + merged(left, self.limits.max_prompts_per_cohort, self._has_room_for_one)
        return finished, prefixes, texts

    def _has_room_for_one(self, cohorts: Sequence[Cohort]) -> bool:
        """Return whether memory suffices to merge these. Padding to the widest may need more."""
        if self._order.by_address and not self._mixer_room.trunk:
            return True
        widest = max(-(-cohort.num_cached_tokens // len(cohort.prompts)) for cohort in cohorts)
        others = sum(cohort.num_cached_tokens for cohort in self.running if cohort not in cohorts)
        together = widest * sum(cohort.num_unfinished for cohort in cohorts)
        kept = self._common.num_slots(self.running, self._prefix_cohort)
        return together + others + kept <= self.limits.max_cached_tokens


def num_tokens(cohorts: Iterable[Cohort]) -> int:
    """Return the number of tokens that the cohorts would feed, with all of their prompts' tokens at once."""
    return sum(cohort.num_next_tokens for cohort in cohorts)


def merged(cohorts: Sequence[Cohort], most_prompts: int, has_room: Callable[[Sequence[Cohort]], bool]) -> list[Cohort]:
    """Merge decoding cohorts that together fit one; return them with the others.

    Args:
        most_prompts: the most prompts of a cohort.
        has_room: whether there is memory to merge these.
    """
    left = [cohort for cohort in cohorts if cohort.num_prefill_tokens]
    small = sorted(
        (cohort for cohort in cohorts if not cohort.num_prefill_tokens), key=lambda cohort: cohort.num_columns
    )
    group: list[Cohort] = []
    for cohort in small:
        size = sum(_num_rows(each, most_prompts) for each in (*group, cohort))
        # Columns may be padded to the longest, so very different lengths stay apart.
        is_alike = not group or cohort.num_columns <= 2 * group[0].num_columns
        if group and (size > most_prompts or not is_alike or not has_room([*group, cohort])):
            left.append(_one(group))
            group = []
        group.append(cohort)
    return [*left, _one(group)] if group else left


def _num_rows(cohort: Cohort, most_prompts: int) -> int:
    """Return the rows it adds to a merged cohort. A large one counts all: it would be copied for each small one."""
    is_small = 2 * cohort.num_unfinished <= most_prompts
    return cohort.num_unfinished if is_small else len(cohort.prompts)


def _one(cohorts: list[Cohort]) -> Cohort:
    return Cohort.merge(cohorts) if len(cohorts) > 1 else cohorts[0]
