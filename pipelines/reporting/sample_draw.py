"""The draw of the sample: least certain products, products with ungrounded or failed values, and random ones.

Categories take turns, so that a small one is seen as well. The same seed draws the same products.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pipelines.reporting.table_scan import Scored

Key = tuple[str, int]
_MAX_CANDIDATES = 30_000  # over all categories and reasons: some megabytes
_MIN_CANDIDATES = 4


@dataclass(frozen=True, slots=True)
class DrawnSample:
    """A product of the sample and why it is in it."""

    scored: Scored
    why: str


@dataclass(slots=True)
class _Best:
    """The products with the smallest ranks; a heap with the largest on top."""

    heap: list[tuple[float, float, Scored]] = field(default_factory=list)

    def add(self, rank: float, tie: float, scored: Scored, capacity: int) -> None:
        entry = (-rank, -tie, scored)
        if len(self.heap) < capacity:
            heapq.heappush(self.heap, entry)
        elif entry[:2] > self.heap[0][:2]:
            heapq.heapreplace(self.heap, entry)
        while len(self.heap) > capacity:  # it shrinks while categories come up
            heapq.heappop(self.heap)

    def ranked(self) -> list[Scored]:
        return [scored for *_, scored in sorted(self.heap, key=lambda entry: (-entry[0], -entry[1]))]


# Why -> share of the sample, and the product's rank; None: no candidate.
_REASONS: Mapping[str, tuple[float, Callable[[Scored], float | None]]] = {
    "least certain": (0.4, lambda product: product.lowest if product.lowest < math.inf else None),
    "ungrounded": (0.2, lambda product: -product.ungrounded if product.ungrounded else None),
    "failed": (0.1, lambda product: -product.failed if product.failed else None),
    "random": (0.3, lambda product: 0.0),
}


def draw(products: Iterable[Scored], size: int, seed: int) -> list[DrawnSample]:
    """Draw at most `size` products, returned in order of ascending certainty."""
    best: dict[str, dict[str, _Best]] = {why: {} for why in _REASONS}
    categories: set[str] = set()
    for product in products:
        categories.add(product.category)
        capacity = max(_MIN_CANDIDATES, min(size, _MAX_CANDIDATES // (len(_REASONS) * len(categories))))
        tie = _lot(product, seed)
        for why, (_, rank) in _REASONS.items():
            if (value := rank(product)) is not None:
                best[why].setdefault(product.category, _Best()).add(value, tie, product, capacity)
    chosen: dict[Key, DrawnSample] = {}
    for why, (share, _) in _REASONS.items():
        _take(chosen, why, best[why], min(size, len(chosen) + round(share * size)))
    # Fill the rest of the sample at random.
    _take(chosen, "random", best["random"], size)
    return sorted(chosen.values(), key=lambda drawn: (drawn.scored.lowest, drawn.scored[:2]))


def _take(chosen: dict[Key, DrawnSample], why: str, best: Mapping[str, _Best], until: int) -> None:
    """Add the best of each category, then the second best of each, and so on."""
    queues = [iter(best[category].ranked()) for category in sorted(best)]
    while queues and len(chosen) < until:
        for queue in list(queues):
            scored = next((each for each in queue if each[:2] not in chosen), None)
            if scored is None:
                queues.remove(queue)
            elif len(chosen) < until:
                chosen[scored[:2]] = DrawnSample(scored, why)


def _lot(product: Scored, seed: int) -> float:
    """Return a number in [0, 1) that depends only on the row and the seed."""
    name = f"{seed}:{product.source_file}:{product.source_row}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=7).digest(), "big") / 2**56
