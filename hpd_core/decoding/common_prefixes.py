"""The KV that prompts have in common: prefixes of categories, and texts that several documents begin with.

A text's KV includes that of all tokens before it, in one piece, as if it were a longer prefix of the category.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Any

from hpd_core.attention.plan import PrefixCache
from hpd_core.decoding.prompt import Prompt
from hpd_core.decoding.shared_text import SharedText, shared_texts
from hpd_core.layout import tree_layout


class CommonPrefixes:
    """Cache of computed prefixes and texts; knows what is missing before a prompt can run.

    Prefixes of categories are kept after their last use; texts only while prompts that begin with them wait.
    """

    def __init__(self, share_text: bool) -> None:
        """Start empty. `share_text`: whether texts are shared, too."""
        self._share_text = share_text
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

    @property
    def texts(self) -> Collection[PrefixCache]:
        """KV of texts that prompts wait for."""
        return self._texts.values()

    @property
    def prefixes(self) -> Collection[PrefixCache]:
        """KV of categories' prefixes, the least recently used first."""
        return self._prefixes.values()

    def forget(self, prefixes: Collection[PrefixCache]) -> None:
        """Evict these prefixes; they are computed again when they are needed."""
        self._prefixes = OrderedDict((key, kept) for key, kept in self._prefixes.items() if kept not in prefixes)

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
