"""How many cache slots prefixes take beside cohorts, and which of them can be given up for others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from hpd_core.attention.plan import PrefixCache
from hpd_core.decoding.cohort import Cohort
from hpd_core.decoding.common_prefixes import CommonPrefixes
from hpd_core.decoding.hybrid_cache import MixerRoom
from hpd_core.decoding.prompt import Prompt


class PrefixSlots:
    """Of the prefixes that cohorts attend to, and of those that wait for cohorts."""

    def __init__(self, common: CommonPrefixes, is_shared: bool, mixer_room: MixerRoom) -> None:
        """`is_shared`: cohorts attend to them where they are, and have no copies."""
        self._common, self._is_shared, self._trunk = common, is_shared, mixer_room.trunk

    def count(
        self, running: Sequence[Cohort], computed: Cohort | None = None, users: Counter[PrefixCache] | None = None
    ) -> int:
        """How many slots they take: what is shared counts once.

        Of those that nobody uses, texts are counted, and states of layers beside attention; keys and values of
        categories' prefixes are as many as the settings allow.

        Args:
            computed: the cohort of those that are being computed.
            users: how many prompts of each a new cohort would have.
        """
        users, texts = users or Counter(), self._common.texts
        if self._is_shared:
            used = self._used(running, users)
            num_tokens = sum(prefix.num_tokens for prefix in used)
        else:
            used = set(texts)
            copies = sum(prefix.num_tokens * count for prefix, count in users.items())
            num_tokens = copies + sum(text.num_tokens for text in texts)
        num_states = len(used.union(self._common.prefixes))
        if computed is not None:
            num_states += 2 * len(computed.prompts)
        return num_tokens + self._trunk * num_states

    def _used(self, running: Sequence[Cohort], others: Iterable[PrefixCache]) -> set[PrefixCache]:
        return {*others, *self._common.texts}.union(*(cohort.shared_prefixes for cohort in running))

    @property
    def of_new_prefix(self) -> int:
        """Slots of a category's prefix that are counted: as it is computed, and in its own place."""
        return 2 * self._trunk

    def of_new_text(self, text: Prompt) -> int:
        """At most so many are taken for a text that several share: as it is computed, and in its own place."""
        return 2 * (text.layout.num_tokens + self._trunk)

    def make_room(
        self,
        over: int,
        running: Sequence[Cohort],
        users: Iterable[PrefixCache] = (),
        *,
        at_any_rate: bool = False,
    ) -> bool:
        """Whether so many slots less can be had: prefixes of categories that nobody uses are forgotten for it, as far
        as their states are counted, the least recently used first.

        Args:
            users: prefixes that a new cohort would use.
            at_any_rate: forgets all of them where that is not enough. Else none.
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
