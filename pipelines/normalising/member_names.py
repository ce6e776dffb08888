"""Matching of texts to members of an enum: by label, synonym or id, and else by the nearest spelling.

    NOIR, "nòir ", n-o-i-r        the same letters: capitals, accents, spaces and signs that join words do not count
    blacks, schwarze              the same word with the ending of a plural or of a gender
    aluminum for aluminium        a misspelling of a long word (see `misspellings`)

Numbers and meaningful signs must be the same in all of them. Two equally near members make the text ambiguous.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache

from hpd_core import Member
from hpd_core.text.near_names import fold_name
from hpd_core.text.vocabulary import Vocabulary
from pipelines.normalising.misspellings import SAME_BEGINNING, is_misspelt, may_be_misspelt
from pipelines.normalising.normalised import AMBIGUOUS, NO_RULE, Normalised
from pipelines.normalising.written_signs import one_form, written_signs

_MAX_COMPARED = 60  # letters; a longer text is a sentence
_MIN_STEM = 4  # letters of a word that may have an ending
_MIN_INFLECTED = 6  # letters of a word that may have another ending than that of a plural
_ENDINGS = ("s", "es", "e", "en", "em")
_HISSING = ("s", "x", "z", "ch", "sh")

_YES = """
    true yes y ja oui sí si sim sì tak ano igen evet да так ναι kyllä joo jah da vorhanden included 1 x ✓ ✔ ☑ はい 有
    あり 是 예 있음 نعم כן
"""
_NO = """
    false no n nein non não nao nee nej nei nie ne nem hayır нет ні όχι ei nu 0 ✗ ✘ ☐ いいえ なし 無 无
    否 아니요 없음 لا לא
"""
_TRUTHS = {**dict.fromkeys(_YES.split(), "true"), **dict.fromkeys(_NO.split(), "false")}


def normalise_boolean(raw: str) -> Normalised:
    """Normalise a text to "true" or "false"; `NO_RULE` if it is neither."""
    truth = _TRUTHS.get(raw.strip().casefold())
    return NO_RULE if truth is None else Normalised("ok", truth)


_Name = tuple[str, tuple[str, ...]]
"""Folded name, and its numbers and signs."""


class MemberNames:
    """Members of one enum, by all names that texts may use."""

    def __init__(self, members: tuple[Member, ...]) -> None:
        self.members = members
        self._exact = Vocabulary(members)
        self._by_label = {member.label: member for member in members}
        self._by_id = _sole_ids(members)
        self._folded: dict[_Name, set[str]] = defaultdict(set)
        self._joined: dict[_Name, set[str]] = defaultdict(set)
        for member in members:
            for name in (member.label, *member.synonyms):
                folded, signs = name_and_signs(name)
                self._folded[folded, signs].add(member.label)
                self._joined[folded.replace(" ", ""), signs].add(member.label)
        # A catalog writes the same few texts.
        self.find = lru_cache(maxsize=10_000)(self._find)

    def _find(self, raw: str) -> Normalised:
        label = self._exact.label(raw)
        if label is not None:
            return self._ok(self._by_label[label])
        if (text := raw.strip()) in self._by_id:
            member = self._by_id[text]
            return AMBIGUOUS if member is None else self._ok(member)
        folded, signs = name_and_signs(raw)
        labels = self._folded.get((folded, signs)) or self._joined.get((folded.replace(" ", ""), signs))
        labels = labels or self._nearest(folded, signs)
        if not labels:
            return NO_RULE
        return self._ok(self._by_label[next(iter(labels))]) if len(labels) == 1 else AMBIGUOUS

    def _nearest(self, folded: str, signs: tuple[str, ...]) -> set[str]:
        if len(folded) > _MAX_COMPARED:
            return set()
        inflected = (self._folded.get((name, signs), ()) for name in _inflected(folded))
        if found := {label for labels in inflected for label in labels}:
            return found
        near = (
            self._folded[name, signs]
            for length in (len(folded) - 1, len(folded), len(folded) + 1)
            for name, others in self._misspelt.get((folded[:SAME_BEGINNING], length), ())
            if others == signs and is_misspelt(folded, name)
        )
        return {label for labels in near for label in labels}

    @cached_property
    def _misspelt(self) -> Mapping[tuple[str, int], list[_Name]]:
        """Names with a word long enough to be recognised misspelt, by their first letters and length."""
        found: dict[tuple[str, int], list[_Name]] = defaultdict(list)
        for folded, signs in self._folded:
            if may_be_misspelt(folded) and len(folded) <= _MAX_COMPARED:
                found[folded[:SAME_BEGINNING], len(folded)].append((folded, signs))
        return dict(found)

    @staticmethod
    def _ok(member: Member) -> Normalised:
        return Normalised("ok", member.label, id=member.id)


def name_and_signs(text: str) -> _Name:
    """Return the folded name and the signs, which must be equal in two texts that name one member."""
    text = one_form(text)
    return fold_name(text), written_signs(text)


def _sole_ids(members: tuple[Member, ...]) -> Mapping[str, Member | None]:
    """Return the members by id; None for an id that several have."""
    found: dict[str, Member | None] = {}
    for member in members:
        if member.id is not None:
            found[member.id] = None if member.id in found else member
    return found


def _inflected(folded: str) -> Iterator[str]:
    """Yield the name with an ending added to its last word, or removed from it."""
    for ending in _ENDINGS:
        if _takes_ending(folded, ending):
            yield folded + ending
        if folded.endswith(ending) and _takes_ending(folded.removesuffix(ending), ending):
            yield folded.removesuffix(ending)


def _takes_ending(name: str, ending: str) -> bool:
    """Return whether the ending gives a plural or gender of the same word: "prints", not "printer"; "schwarze", not
    "stripe" or "silicone"; not "brass" from "bras"."""
    word = name.rpartition(" ")[2]
    if not word.isalpha() or len(word) < _MIN_STEM:
        return False
    if ending == "s":
        return not word.endswith(_HISSING)
    if ending == "es" and word.endswith(_HISSING):
        return True
    return len(word) >= _MIN_INFLECTED and not word.endswith(("e", "n", "h") if ending == "e" else "e")
