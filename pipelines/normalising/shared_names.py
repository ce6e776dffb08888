"""Names of enums' members, made once for all attributes with the same members: categories share vocabularies.

They are kept in an LRU cache whose capacity is counted in labels: a vocabulary of brands is as large as thousands of
others.
"""

from __future__ import annotations

from collections import OrderedDict

from hpd_core import Attribute, Member
from pipelines.normalising.member_names import MemberNames
from pipelines.normalising.normalised import Normalised

_MAX_LABELS = 100_000


class EnumNames:
    """Names of an attribute's members."""

    def __init__(self, attribute: Attribute) -> None:
        self._key = _Key(attribute.values or ())

    def find(self, raw: str) -> Normalised:
        """Return the member that the text means."""
        return _remembered.of(self._key).find(raw)


class _Key:
    """Vocabulary with a stored hash of its content, which takes long to compute for thousands of members."""

    __slots__ = ("_hash", "members")

    def __init__(self, members: tuple[Member, ...]) -> None:
        self.members = members
        self._hash = hash(members)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Key):
            return NotImplemented
        return self.members is other.members or (self._hash == other._hash and self.members == other.members)


class _Remembered:
    """LRU cache of vocabularies."""

    def __init__(self) -> None:
        self._names: OrderedDict[_Key, MemberNames] = OrderedDict()
        self._num_labels = 0

    def of(self, key: _Key) -> MemberNames:
        """Return the names of a vocabulary; make them if they are not cached."""
        names = self._names.get(key)
        if names is not None:
            self._names.move_to_end(key)
            key.members = names.members  # comparing identical objects takes no time from now on
            return names
        names = self._names[key] = MemberNames(key.members)
        self._num_labels += len(key.members)
        while self._num_labels > _MAX_LABELS and len(self._names) > 1:
            dropped, _ = self._names.popitem(last=False)
            self._num_labels -= len(dropped.members)
        return names


_remembered = _Remembered()
