"""Near names: known names that an unknown name probably means, and how they differ from it.

A catalog and a schema file are written by different people and programs: one spells the "é" of "Café" with two code
points, the other with one, or has an invisible space. The answer is not guessed. The reader is shown both names.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rapidfuzz.fuzz import ratio
from rapidfuzz.process import extract

_MAX_SHOWN = 100  # characters of a name in a message
_MAX_NEAR = 3
_MAX_LISTED = 5
_MAX_MESSAGES = 1_000  # with a search; more different names than that are not misspellings
_MAX_COMPARED_LENGTH = 500  # what is longer is a text in the wrong column
_CUTOFF = 75  # percent of two names' letters that are common to both, in their order
# Between the parts of a path, of a list of categories, and after an id or a language ("632 - Hardware", "en:coffees").
_PATH = re.compile(r"[>/|\\»›→,;:]|\s[-–—]\s")
_AND = re.compile(r"(?<=\w )(?:and|und|et|y|e|en|och|og|i)(?= \w)", re.IGNORECASE)
_JOINERS = "\u200c\u200d\ufe0e\ufe0f"
_SIGN = re.compile(r"[\W_]+")


def _visible(text: str) -> str:
    # Variation selectors are marks, the others format or control characters.
    kept = (each for each in text if not "\ufe00" <= each <= "\ufe0f")
    return "".join(each for each in kept if each.isspace() or unicodedata.category(each) not in ("Cf", "Cc", "Co"))


def _entities(text: str) -> str:
    # "&amp;amp;" is seen, too: exported, imported and exported again.
    return html.unescape(html.unescape(text))


def _signs(text: str) -> str:
    # A name of signs alone stays what it is.
    return " ".join(_SIGN.sub(" ", text).split()) or text


def _accents(text: str) -> str:
    parts = unicodedata.normalize("NFKD", text)
    return "".join(each for each in parts if not unicodedata.combining(each))


# In the order in which they are applied; how a person calls the difference.
_STEPS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("HTML entities", _entities),
    ("invisible characters", _visible),
    ("spaces", lambda text: " ".join(text.split())),
    ("Unicode form", lambda text: unicodedata.normalize("NFKC", text)),
    ("capitals", str.casefold),
    ("'and' or '&'", lambda text: _AND.sub("&", text)),
    ("punctuation or signs", _signs),
    ("accents", _accents),
)
_ALL = frozenset(range(len(_STEPS)))
_SPELLING = frozenset(range(5))


def fold_name(text: str) -> str:
    """Fold a name: drop differences of Unicode form, case, spaces, invisible characters, HTML entities, punctuation
    and accents, and of 'and' or '&'."""
    return _folded(text, _ALL)


def fold_spelling(text: str) -> str:
    """Fold as `fold_name`, but keep 'and' or '&', punctuation and accents: "C" and "C++" are two values."""
    return _folded(text, _SPELLING)


def is_blank(text: str) -> bool:
    """Return whether the name is empty, or consists of spaces and invisible characters."""
    return not _visible(text).strip()


def unseen(text: str) -> list[str]:
    """Return the invisible characters of the name, as "U+200B", except those that join letters or emoji."""
    found = dict.fromkeys(each for each in text if not each.isspace() and not _visible(each) and each not in _JOINERS)
    return [f"U+{ord(each):04X}" for each in found]


def _folded(text: str, steps: Collection[int]) -> str:
    # Twice: one step may uncover work for an earlier one (a space from an entity).
    for _ in range(2):
        for number, (_, step) in enumerate(_STEPS):
            if number in steps:
                text = step(text)
    return text


def difference(one: str, other: str) -> str:
    """Describe how two names of equal `fold_name` differ: "capitals and spaces"."""
    needed = set(_ALL)
    for number in reversed(range(len(_STEPS))):
        # The least that explains it: a step is named only where the others do not do.
        rest = needed - {number}
        if _folded(one, rest) == _folded(other, rest):
            needed = rest
    return " and ".join(_STEPS[number][0] for number in sorted(needed))


@dataclass(frozen=True, slots=True)
class NearName:
    """Known name. `difference`: its only difference from the one asked for; None if it is merely similar."""

    name: str
    difference: str | None


class NearNames:
    """Finder of known names."""

    def __init__(self, known: Iterable[str]) -> None:
        known = sorted(known)
        self._all_known = f"there are schemas for {listed(known)}"
        self._ways_out: dict[str, str] = {}
        self._folded: dict[str, list[str]] = defaultdict(list)
        self._leaves: dict[str, list[str]] = defaultdict(list)
        for name in known:
            folded = fold_name(name)
            self._folded[folded].append(name)
            if len(parts := _parts(name)) > 1:
                self._leaves[parts[-1]].append(name)
        # A catalog has the same wrong name in many rows.
        self.find = lru_cache(maxsize=10_000)(self._find)

    def _find(self, name: str) -> tuple[NearName, ...]:
        """Return the nearest known names, best first, at most 3; empty if none is near."""
        return tuple(self._nearest(name))[:_MAX_NEAR] if len(name) <= _MAX_COMPARED_LENGTH else ()

    def _nearest(self, name: str) -> Iterator[NearName]:
        folded = fold_name(name)
        if same := self._folded.get(folded):
            yield from (NearName(each, difference(name, each)) for each in same if each != name)
            return
        parts = [found for part in reversed(_parts(name)) for found in self._folded.get(part, ())]
        if path := dict.fromkeys([*self._leaves.get(folded, ()), *parts]):
            yield from (NearName(each, "the rest of the path") for each in path)
            return
        for each, *_ in extract(folded, list(self._folded), scorer=ratio, score_cutoff=_CUTOFF, limit=_MAX_NEAR):
            yield from (NearName(found, None) for found in self._folded[each])

    def missing(self, name: str) -> str:
        """Return a message that there is no schema of this name, with the near names, or else the known ones.

        It is called for every row. A column that does not hold categories has a new name in each row: after 1,000
        different names nothing is searched any more.
        """
        way_out = self._ways_out.get(name)
        if way_out is None and len(self._ways_out) < _MAX_MESSAGES:
            way_out = self._ways_out[name] = self.hint(name) or self._all_known
        return f"no schema for category {quoted(name)}; {way_out or self._all_known}"

    def hint(self, name: str) -> str:
        """Return a question, "did you mean 'Coffee' (differs in capitals)?"; empty if no name is near."""
        found = self.find(name)
        shown = (
            quoted(near.name) + (f" (differs in {near.difference})" if near.difference is not None else "")
            for near in found
        )
        return f"did you mean {' or '.join(shown)}?" if found else ""


def listed(names: Sequence[str]) -> str:
    """Return the first names and the number of others: "'Coffee', 'Tea' and 7 more"."""
    more = f" and {len(names) - _MAX_LISTED:,} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(map(quoted, names[:_MAX_LISTED])) + more


def quoted(name: str) -> str:
    """Return the name in quotes, with invisible characters escaped; a very long one is cut."""
    return repr(name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}…")


_last: tuple[Collection[str], NearNames] | None = None


def near_names(known: Collection[str]) -> NearNames:
    """Return `NearNames` of a mapping or list that does not change; the last one is cached."""
    global _last
    if _last is None or _last[0] is not known:
        _last = (known, NearNames(known))
    return _last[1]


def _parts(name: str) -> list[str]:
    """Return the parts of a path ("Home > Kitchen") or list, folded, without those that lack letters and digits."""
    parts = map(fold_name, _PATH.split(_entities(name)))
    return [part for part in parts if any(map(str.isalnum, part))]
