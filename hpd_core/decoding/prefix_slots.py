"""Cache slots that prefixes take besides cohorts, and eviction of prefixes that are not in use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hpd_core.attention.plan import PrefixCache
from hpd_core.decoding.cohort import Cohort
from hpd_core.decoding.common_prefixes import CommonPrefixes
from hpd_core.decoding.hybrid_cache import MixerRoom
from hpd_core.decoding.prompt import Prompt


class PrefixSlots:
    """Slots of the prefixes that cohorts attend to, and of those that wait for cohorts."""

    def __init__(self, common: CommonPrefixes, mixer_room: MixerRoom) -> None:
        """Start counting."""
        self._common, self._trunk = common, mixer_room.trunk

    def count(
        self, running: Sequence[Cohort], computed: Cohort | None = None, users: Iterable[PrefixCache] = ()
    ) -> int:
        """Return how many slots they take: shared ones count once.

        Of unused prefixes, texts count, and states of layers beside attention. The number of keys and values of unused
        category prefixes is limited by the settings instead.

        Args:
            computed: the cohort of prefixes that are being computed.
            users: prefixes that a new cohort would use.
        """
        used = self._used(running, users)
        num_tokens = sum(prefix.num_tokens for prefix in used)
        num_states = len(used.union(self._common.prefixes))
        if computed is not None:
            num_states += 2 * len(computed.prompts)
        return num_tokens + self._trunk * num_states

    def _used(self, running: Sequence[Cohort], others: Iterable[PrefixCache]) -> set[PrefixCache]:
        return {*others, *self._common.texts}.union(*(cohort.shared_prefixes for cohort in running))

    @property
    def of_new_prefix(self) -> int:
        """Slots that count for a new category prefix: while it is computed, and in its own place."""
        return 2 * self._trunk

    def of_new_text(self, text: Prompt) -> int:
        """Return the most slots that a shared text takes: while it is computed, and in its own place."""
        return 2 * (text.layout.num_tokens + self._trunk)

    def make_room(
        self,
        over: int,
        running: Sequence[Cohort],
        users: Iterable[PrefixCache] = (),
        *,
        at_any_rate: bool = False,
    ) -> bool:
        """Try to free `over` slots by evicting idle category prefixes (LRU). Return whether enough were freed.

        Only their states of layers beside attention count.

        Args:
            users: prefixes that a new cohort would use.
            at_any_rate: evict all of them even if that is not enough. Else evict none then.
        """
        if over <= 0:
            return True
        if not self._trunk:
            return False
        used = self._used(running, users)
        idle = [prefix for prefix in self._common.prefixes if prefix not in used]
        is_enough = over <= self._trunk * len(idle)
        if is_enough or at_any_rate:
            self._common.forget(set(idle[: -(-over // self._trunk)]))
        return is_enough
