"""The KV that prompts have in common, kept and evicted (LRU): category prefixes, texts that documents begin with.

A text's KV includes that of all tokens before it, in one piece, as if it were a longer prefix of the category.

Beginnings that documents have in common: a radix tree over their tokens. Pure functions, no tensors.

Sorted by their tokens, documents that begin alike are neighbours. The number of tokens that each has in common with the
one before it determines the tree:

    the brown fox jumps             the brown fox ──┬── jumps ── over
    the brown fox jumps over   4                    └── sleeps
    the brown fox sleeps       3
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpd_core.attention.plan import PrefixCache
from hpd_core.decoding.cohort import Cohort
from hpd_core.decoding.cohort_cache import MixerRoom
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import IntArray, tree_layout


class CommonPrefixes:
    """Cache of computed prefixes and texts; knows what is missing before a prompt can run, and what slots they take.

    Prefixes of categories are kept after their last use; texts only while prompts that begin with them wait.
    """

    def __init__(self, share_text: bool, mixer_room: MixerRoom) -> None:
        """Start empty. `share_text`: whether texts are shared, too."""
        self._share_text, self._trunk = share_text, mixer_room.trunk
        self._prefixes: OrderedDict[Any, PrefixCache] = OrderedDict()  # least recently used first
        self._texts: dict[SharedText, PrefixCache] = {}
        self._longest: dict[Prompt, SharedText] = {}  # the longest text of each waiting prompt

    def clear(self) -> None:
        """Drop the texts; no prompt waits any more."""
        self._texts.clear()
        self._longest.clear()

    def clear_all(self) -> None:
        """Drop the prefixes, too."""
        self.clear()
        self._prefixes.clear()

    # Which prompts have something in common.

    def find_texts(self, arrived: Iterable[Prompt], waiting: Iterable[Prompt]) -> None:
        """Find the texts that documents of new prompts share, with each other and with waiting ones that have none."""
        if not self._share_text:
            return
        prompts = dict.fromkeys(prompt for prompt in waiting if prompt not in self._longest)
        by_prefix: dict[Any, list[Prompt]] = {}
        for prompt in prompts | dict.fromkeys(arrived):
            if not prompt.layout.reads_both_ways:  # else the KV of its first tokens depends on its last ones
                by_prefix.setdefault(prompt.prefix_key, []).append(prompt)
        for group in by_prefix.values():
            if len(group) > 1:
                documents = [prompt.document_ids for prompt in group]
                for text in shared_texts(group, documents, group[0].layout.num_prefix_tokens):
                    self._longest.update(dict.fromkeys(text.members, text))  # longer ones come later

    def relatives(self, prompt: Prompt, most: int) -> Collection[Prompt]:
        """Return the waiting prompts that share a text with `prompt`; none if there are more than `most`."""
        text = self._longest.get(prompt)
        if text is None or text.num_waiting > most:
            return ()
        while text.parent is not None and text.parent.num_waiting <= most:
            text = text.parent
        return [member for member in text.members if member in self._longest]

    # Cached KV.

    def of(self, prompt: Prompt) -> PrefixCache | None:
        """Return the KV that the prompt attends to, if `missing` returned None, and mark it as used."""
        text = self._text(prompt)
        prompt.num_shared_tokens = 0 if text is None else text.length
        return self._before(prompt, text)

    def _before(self, prompt: Prompt, text: SharedText | None) -> PrefixCache | None:
        if text is not None:
            return self._texts[text]
        if not prompt.layout.num_prefix_tokens:
            return None
        self._prefixes.move_to_end(prompt.prefix_key)
        return self._prefixes[prompt.prefix_key]

    def _text(self, prompt: Prompt) -> SharedText | None:
        longest = self._longest.get(prompt)
        return None if longest is None else longest.or_above()

    def admit(self, prompt: Prompt) -> None:
        """Mark the prompt as not waiting any more; evict texts that no other prompt waits for."""
        text = self._longest.pop(prompt, None)
        while text is not None:
            text.num_waiting -= 1
            if not text.num_waiting:
                self._texts.pop(text, None)
            text = text.parent

    # Missing KV.

    def missing(self, prompt: Prompt) -> Any:
        """Return the key of what has to be computed first: a prefix's, or a `SharedText`. None: nothing is missing."""
        text, missing = self._text(prompt), None
        while text is not None and text not in self._texts:
            missing, text = text, text.parent.or_above() if text.parent is not None else None
        if text is None and prompt.layout.num_prefix_tokens and prompt.prefix_key not in self._prefixes:
            return prompt.prefix_key
        return missing

    def to_compute(self, key: Any, prompt: Prompt) -> tuple[Prompt, PrefixCache | None]:
        """Return what is missing, as a prompt without branches whose `prefix_key` is `key`, and what it attends to.

        Args:
            prompt: one that needs it.
        """
        ids, num_prefix_tokens = prompt.layout.token_ids, prompt.layout.num_prefix_tokens
        if not isinstance(key, SharedText):
            return Prompt(tree_layout([], ids[:num_prefix_tokens].tolist(), []), key, owner=prompt.owner), None
        above = key.parent.or_above() if key.parent is not None else None
        own = ids[num_prefix_tokens : num_prefix_tokens + key.length].tolist()
        bare = Prompt(tree_layout(ids[:num_prefix_tokens].tolist(), own, []), key, owner=prompt.owner)
        bare.num_shared_tokens = 0 if above is None else above.length
        return bare, self._before(prompt, above)

    def is_wanted(self, key: Any) -> bool:
        """Return whether a missing KV is still needed: prefixes of categories always, texts while a prompt waits."""
        return not isinstance(key, SharedText) or key.num_waiting > 0

    def computed(self, key: Any, prefix: PrefixCache, most: int) -> None:
        """Store a KV that was missing; keep at most `most` prefixes (LRU)."""
        if isinstance(key, SharedText):
            # All prompts that waited for it may have been dropped meanwhile: then nothing would ever evict it.
            if self.is_wanted(key):
                self._texts[key] = prefix
            return
        self._prefixes[key] = prefix
        while len(self._prefixes) > most:
            self._prefixes.popitem(last=False)

    # Slots of the prefixes that cohorts attend to, and of those that wait for cohorts.

    def num_slots(
        self, running: Sequence[Cohort], computed: Cohort | None = None, users: Iterable[PrefixCache] = ()
    ) -> int:
        """Return how many slots all take: shared ones count once.

        Of unused prefixes, texts count, and states of layers beside attention. The number of keys and values of unused
        category prefixes is limited by the settings instead.

        Args:
            computed: the cohort of prefixes that are being computed.
            users: prefixes that a new cohort would use.
        """
        used = self._used(running, users)
        num_tokens = sum(prefix.num_tokens for prefix in used)
        num_states = len(used.union(self._prefixes.values()))
        if computed is not None:
            num_states += 2 * len(computed.prompts)
        return num_tokens + self._trunk * num_states

    def _used(self, running: Sequence[Cohort], others: Iterable[PrefixCache]) -> set[PrefixCache]:
        return {*others, *self._texts.values()}.union(*(cohort.shared_prefixes for cohort in running))

    @property
    def slots_of_new_prefix(self) -> int:
        """Slots that count for a new category prefix: while it is computed, and in its own place."""
        return 2 * self._trunk

    def slots_of_new_text(self, text: Prompt) -> int:
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
        idle = [key for key, prefix in self._prefixes.items() if prefix not in used]
        is_enough = over <= self._trunk * len(idle)
        if is_enough or at_any_rate:
            for key in idle[: -(-over // self._trunk)]:
                del self._prefixes[key]
        return is_enough


_LEAST_LENGTH = 8
"""Tokens that a node has more than the one above it: all documents of a catalog begin with a few equal ones."""

_LEAST_SAVED = 16
"""Tokens that a node saves at least: its own are computed a step before those after them."""

_COPIED_FOR_SAVED = 16
"""Tokens of KV that can be copied in the time of computing one, at least: a node has a copy of all KV before it.

Measured with 135 million weights on a CPU, where copying is most expensive (docs/log.md)."""

_BYTES = 4
"""Bytes of a token id."""


@dataclass(eq=False, slots=True)
class SharedText:
    """A beginning that several documents have in common: a node of the tree.

    Attributes:
        parent: the next shorter one, which is a part of it.
        length: tokens, counted from the documents' first.
        members: all that begin with it, in the order of their tokens.
        num_waiting: number of them that have not begun to run.
        is_given_up: whether it did not fit in memory.
    """

    parent: SharedText | None
    length: int
    members: Sequence[Any]
    num_waiting: int = field(init=False)
    is_given_up: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.num_waiting = len(self.members)

    def or_above(self) -> SharedText | None:
        """Return itself, or the longest part of it that is not given up; None if all are."""
        text: SharedText | None = self
        while text is not None and text.is_given_up:
            text = text.parent
        return text


def shared_texts(members: Sequence[Any], documents: Sequence[IntArray], num_prefix_tokens: int) -> list[SharedText]:
    """Return the nodes that are worth computing once, each after its parent; in time linear in the texts (and sorting).

    Args:
        members: owners of the documents.
        documents: token ids of each, less than 2**32.
        num_prefix_tokens: number of tokens before all of them.
    """
    # Big-endian, so that bytes are in the order of the numbers.
    texts = [np.asarray(ids, dtype=">u4").tobytes() for ids in documents]
    order = sorted(range(len(texts)), key=texts.__getitem__)
    ordered = [texts[number] for number in order]
    found: list[tuple[SharedText, int]] = []  # the nodes in which the next one may lie, and where they end
    nodes: list[SharedText] = []
    for length, first, stop in _intervals(ordered):
        while found and found[-1][1] <= first:
            found.pop()
        parent = found[-1][0] if found else None
        num_new = length - (parent.length if parent is not None else 0)
        if num_new >= _LEAST_LENGTH and _is_worth(num_new, stop - first, num_prefix_tokens + length):
            nodes.append(SharedText(parent, length, [members[number] for number in order[first:stop]]))
            found.append((nodes[-1], stop))
    return nodes


def _is_worth(num_new: int, num_members: int, num_copied: int) -> bool:
    return (num_members - 1) * num_new >= max(_LEAST_SAVED, num_copied // _COPIED_FOR_SAVED)


def _intervals(ordered: Sequence[bytes]) -> list[tuple[int, int, int]]:
    """Return all (length, first, stop) of sorted texts: `first` to `stop` have `length` tokens in common, no neighbour
    has. Larger intervals come before those within them."""
    intervals: list[tuple[int, int, int]] = []
    open_: list[tuple[int, int]] = []  # (length, first), each longer than the one before it
    for number in range(1, len(ordered) + 1):
        length = _num_common(ordered[number - 1], ordered[number]) if number < len(ordered) else 0
        first = number - 1
        while open_ and open_[-1][0] > length:
            longer, first = open_.pop()
            intervals.append((longer, first, number))
        if length and (not open_ or open_[-1][0] < length):
            open_.append((length, first))
    return sorted(intervals, key=lambda interval: (interval[1], -interval[2]))


def _num_common(a: bytes, b: bytes) -> int:
    """Return the number of tokens with which both begin; 0 if less than `_LEAST_LENGTH`, without comparing them all."""
    if a[: _LEAST_LENGTH * _BYTES] != b[: _LEAST_LENGTH * _BYTES]:
        return 0
    size = min(len(a), len(b)) // _BYTES
    differ = np.frombuffer(a, dtype=np.uint32, count=size) != np.frombuffer(b, dtype=np.uint32, count=size)
    return int(differ.argmax()) if differ.any() else size
