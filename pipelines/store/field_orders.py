"""How much of their text products share at its beginning, in the configured order of the fields and in others.

The engine computes once what documents begin with alike (hpd_core/decoding/shared_text.py). In which order a document's
fields stand is the user's choice: with a title of its own in front, a variant shares nothing of the same description.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, permutations
from typing import Any

from hpd_core import Record

SAMPLE = 256
"""Records of a shard that are looked at: neighbours, as the variants of a product are in most catalogs."""

_ALL_ORDERS = 3
"""Fields of which every order is tried."""

_WORTH_SAYING = 0.05
"""Of the text, so much more is shared in another order before anybody is told."""

FieldOrder = tuple[str, ...]


@dataclass(slots=True)
class FieldOrders:
    """Of a sample: characters of text, and by order of the fields those of whole fields that others begin with, too."""

    characters: int = 0
    shared: Counter[FieldOrder] = field(default_factory=Counter)

    @classmethod
    def of(cls, records: Sequence[Record], fields: Sequence[str]) -> FieldOrders:
        """Of the first of some records. `fields`: their names, as configured."""
        sample = records[:SAMPLE]
        characters = sum(len(text) for record in sample for text in record.fields.values())
        return cls(characters, Counter(_shared_characters(sample, tuple(fields))))

    def add(self, other: FieldOrders) -> None:
        """Takes in another sample, with the same fields."""
        self.characters += other.characters
        self.shared.update(other.shared)

    def better(self, configured: Sequence[str]) -> BetterOrder | None:
        """The order in which most is shared; None where that is not worth saying."""
        mine = tuple(configured)
        if not self.characters or mine not in self.shared:
            return None
        # Of equals, the one that leaves most fields at the front where they are.
        best = max(self.shared, key=lambda order: (self.shared[order], [-mine.index(name) for name in order]))
        share, now = (self.shared[order] / self.characters for order in (best, mine))
        return BetterOrder(best, share, now) if share - now >= _WORTH_SAYING else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for manifests."""
        return {
            "characters": self.characters,
            "shared": [{"fields": list(order), "characters": count} for order, count in self.shared.items()],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FieldOrders:
        """The opposite of `to_dict`; of no data, no sample."""
        shared = {tuple(each["fields"]): each["characters"] for each in data.get("shared", ())}
        return cls(data.get("characters", 0), Counter(shared))


@dataclass(frozen=True, slots=True)
class BetterOrder:
    """An order of the fields, the share of text that others begin with in it, and that share as configured."""

    fields: FieldOrder
    share: float
    share_as_configured: float


def _shared_characters(records: Sequence[Record], fields: FieldOrder) -> dict[FieldOrder, int]:
    by_category: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    for record in records:
        by_category[record.category].append(record.fields)
    # In two orders, what stands in front of a field may be the same fields: looked at once.
    known: dict[tuple[frozenset[str], str], int] = {}

    def shared(before: frozenset[str], name: str) -> int:
        if (before, name) not in known:
            read = sorted({*before, name})
            groups = (
                Counter(tuple(row.get(each, "") for each in read) for row in rows) for rows in by_category.values()
            )
            place = read.index(name)
            known[before, name] = sum(
                (count - 1) * len(texts[place]) for group in groups for texts, count in group.items()
            )
        return known[before, name]

    return {
        order: sum(shared(frozenset(order[:place]), name) for place, name in enumerate(order))
        for order in _orders(fields)
    }


def _orders(fields: FieldOrder) -> Iterator[FieldOrder]:
    """The order itself, and others: all, or of many fields those with one at another end."""
    yield fields
    if len(fields) <= _ALL_ORDERS:
        yield from islice(permutations(fields), 1, None)
        return
    for name in fields:
        rest = tuple(each for each in fields if each != name)
        yield from (order for order in ((name, *rest), (*rest, name)) if order != fields)
