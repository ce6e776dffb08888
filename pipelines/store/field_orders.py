"""Share of text that products have in common at the beginning, in the configured order of the fields and in others.

The engine computes a shared beginning of documents once (hpd_core/decoding/common_prefixes.py). The user chooses the
order of a document's fields: with its own title first, a variant shares nothing of the same description.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, permutations
from typing import Any

from hpd_core import Record

SAMPLE = 256
"""Number of records of a shard in the sample: neighbours, which in most catalogs include a product's variants."""

_ALL_ORDERS = 3
"""Maximum number of fields for which every order is tried."""

_WORTH_SAYING = 0.05
"""Minimum gain in the shared part of the text for which another order is suggested."""

FieldOrder = tuple[str, ...]


@dataclass(slots=True)
class FieldOrders:
    """Counts in a sample: characters of text and, by field order, characters of whole fields in shared beginnings."""

    characters: int = 0
    shared: Counter[FieldOrder] = field(default_factory=Counter)

    @classmethod
    def of(cls, records: Sequence[Record], fields: Sequence[str]) -> FieldOrders:
        """Count the first `SAMPLE` records. `fields`: their names, as configured."""
        sample = records[:SAMPLE]
        characters = sum(len(text) for record in sample for text in record.fields.values())
        return cls(characters, Counter(_shared_characters(sample, tuple(fields))))

    def add(self, other: FieldOrders) -> None:
        """Add another sample with the same fields."""
        self.characters += other.characters
        self.shared.update(other.shared)

    def better(self, configured: Sequence[str]) -> BetterOrder | None:
        """Return the order in which most text is shared; None if the gain is too small to mention."""
        mine = tuple(configured)
        if not self.characters or mine not in self.shared:
            return None
        # Of equals, the one that leaves most fields at the front where they are.
        best = max(self.shared, key=lambda order: (self.shared[order], [-mine.index(name) for name in order]))
        share, now = (self.shared[order] / self.characters for order in (best, mine))
        return BetterOrder(best, share, now) if share - now >= _WORTH_SAYING else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for manifests."""
        return {
            "characters": self.characters,
            "shared": [{"fields": list(order), "characters": count} for order, count in self.shared.items()],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FieldOrders:
        """Rebuild from `to_dict`; empty data gives an empty sample."""
        shared = {tuple(each["fields"]): each["characters"] for each in data.get("shared", ())}
        return cls(data.get("characters", 0), Counter(shared))


@dataclass(frozen=True, slots=True)
class BetterOrder:
    """An order of the fields, the share of shared text in it, and that share in the configured order."""

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
    """Yield the order itself, then others: all, or for many fields those with one field moved to an end."""
    yield fields
    if len(fields) <= _ALL_ORDERS:
        yield from islice(permutations(fields), 1, None)
        return
    for name in fields:
        rest = tuple(each for each in fields if each != name)
        yield from (order for order in ((name, *rest), (*rest, name)) if order != fields)
