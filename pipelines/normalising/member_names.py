"""The member of an enum that a text means: by its label, a synonym or its id, and else by the nearest spelling.

    NOIR, "nòir ", n-o-i-r        the same letters: capitals, accents, signs and spaces do not count
    blacks, schwarzer             the same word with an ending
    aluminum for aluminium        a letter or two apart, in words of five letters and more. Digits have to agree, and so
                                  has the beginning: "unscented" is not "scented"

Two members that are equally near leave it open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache

from hpd_core import Attribute, Member
from hpd_core.text.near_names import fold_name
from pipelines.normalising.normalised import AMBIGUOUS, NO_RULE, Normalised

_MIN_STEM, _MAX_ENDING = 4, 2
_MIN_FUZZY, _SAME_BEGINNING = 5, 2
_LONG = 9  # from this length on two letters may differ
_MAX_COMPARED = 60

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
    """ "true" or "false"."""
    truth = _TRUTHS.get(raw.strip().casefold())
    return NO_RULE if truth is None else Normalised("ok", truth)


class MemberNames:
    """The members of one enum by all that texts may call them."""

    def __init__(self, attribute: Attribute) -> None:
        self._exact = attribute.vocabulary
        self._members = {member.label: member for member in attribute.values or ()}
        self._ids = {member.id: member for member in attribute.values or () if member.id is not None}
        self._folded: dict[str, set[str]] = defaultdict(set)
        self._joined: dict[str, set[str]] = defaultdict(set)
        for member in attribute.values or ():
            for name in (member.label, *member.synonyms):
                self._folded[fold_name(name)].add(member.label)
                self._joined[fold_name(name).replace(" ", "")].add(member.label)
        # A catalog writes the same few texts.
        self.find = lru_cache(maxsize=10_000)(self._find)

    def _find(self, raw: str) -> Normalised:
        label = self._exact.label(raw)
        if label is not None:
            return self._ok(self._members[label])
        if (member := self._ids.get(raw.strip())) is not None:
            return self._ok(member)
        folded = fold_name(raw)
        labels = self._folded.get(folded) or self._joined.get(folded.replace(" ", "")) or self._nearest(folded)
        if not labels:
            return NO_RULE
        return self._ok(self._members[next(iter(labels))]) if len(labels) == 1 else AMBIGUOUS

    def _nearest(self, folded: str) -> set[str]:
        if not _MIN_STEM <= len(folded) <= _MAX_COMPARED:
            return set()
        inflected = [labels for name, labels in self._folded.items() if _is_inflected(folded, name)]
        if inflected:
            return set().union(*inflected)
        bound = 0 if len(folded) < _MIN_FUZZY else 1 if len(folded) < _LONG else 2
        by_distance: Mapping[int, set[str]] = defaultdict(set)
        for name, labels in self._folded.items():
            if bound and abs(len(name) - len(folded)) <= bound and _may_be_near(folded, name):
                distance = _distance(folded, name, bound)
                if distance is not None:
                    by_distance[distance].update(labels)
        return by_distance[min(by_distance)] if by_distance else set()

    @staticmethod
    def _ok(member: Member) -> Normalised:
        return Normalised("ok", member.label, id=member.id)


def _is_inflected(one: str, other: str) -> bool:
    """Whether one is the other with an ending of one or two letters."""
    short, long = sorted((one, other), key=len)
    is_longer = 0 < len(long) - len(short) <= _MAX_ENDING and len(short) >= _MIN_STEM
    return is_longer and long.startswith(short) and long[len(short) :].isalpha()


def _may_be_near(one: str, other: str) -> bool:
    return one[:_SAME_BEGINNING] == other[:_SAME_BEGINNING] and _digits(one) == _digits(other)


def _digits(text: str) -> list[str]:
    return [letter for letter in text if letter.isdecimal()]


def _distance(one: str, other: str, bound: int) -> int | None:
    """Letters to change, insert or drop; None if they are more than `bound`."""
    row: Sequence[int] = range(len(other) + 1)
    for index, letter in enumerate(one, 1):
        current = [index]
        for place, wanted in enumerate(other, 1):
            current.append(min(row[place] + 1, current[-1] + 1, row[place - 1] + (letter != wanted)))
        if min(current) > bound:
            return None
        row = current
    return row[-1] if row[-1] <= bound else None
