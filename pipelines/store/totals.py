"""Counts of a run, summed over shards, and a check that they add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, TypeVar

from hpd_core import ErrorCode

Number = TypeVar("Number", int, float)

MAX_UNKNOWN_CATEGORIES = 100
"""Maximum number of names kept of a run's categories without a schema."""


def sum_of_known(numbers: Iterable[Number | None]) -> Number | None:
    """Return the sum of the numbers that are not None; None, not zero, if all are."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


_LOADING_SAID = 0.2


def retries_text(retries: int, retried_shards: int) -> str:
    """Return the number of retries and of retried shards in words, the same on every page."""
    if not retries:
        return "none"
    return f"{retries:,} {'try' if retries == 1 else 'tries'} beyond the first, of {_shards(retried_shards)}"


def _shards(number: int) -> str:
    return f"{number:,} shard{'' if number == 1 else 's'}"


def loading_note(load_seconds: float, billed_seconds: float) -> str:
    """Return a note that loading makes up much of a product's cost; "" if it does not.

    Loading is paid once an engine: it may be most of the cost of a small run, and little of a larger one.
    """
    if load_seconds < _LOADING_SAID * billed_seconds or not billed_seconds:
        return ""
    return f"{load_seconds / billed_seconds:.0%} of it loading, paid once an engine however many products there are"


# Counts that an older run's totals do not have.
_OF_OLDER_RUNS = {
    **dict.fromkeys(("priced_shards", "priced_decoded", "retried_shards"), 0),
    **dict.fromkeys(("decisions", "unknown_categories", "carried", "cascade"), MappingProxyType({})),
    "unknown_categories_are_least": True,
}


@dataclass(slots=True)
class Totals:
    """Outcomes of the rows. `statuses` counts attribute values, `decisions` accepted ones and those for review.
    `reasons` counts dead letters by code, `unknown_categories` those of "no_schema" by category (the most frequent
    names; if others were dropped on the way, any name may have more rows: `unknown_categories_are_least`). `carried`
    counts what was carried over from an earlier run, `cascade` what a larger model was asked again
    (quality/both_answers.py). `metrics` sums tokens, steps, seconds, retries (of `retried_shards`) and, over
    `priced_shards`, dollars; `priced_decoded` counts the products that these decoded.
    """

    shards: int = 0
    priced_shards: int = 0
    priced_decoded: int = 0
    retried_shards: int = 0
    rows: int = 0
    products: int = 0
    dead_letters: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    decisions: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    unknown_categories: Counter[str] = field(default_factory=Counter)
    unknown_categories_are_least: bool = False
    carried: Counter[str] = field(default_factory=Counter)
    cascade: Counter[str] = field(default_factory=Counter)
    metrics: Counter[str] = field(default_factory=Counter)

    def add(self, manifest: Mapping[str, Any]) -> None:
        """Add one committed shard."""
        counts = manifest["counts"]
        self.shards += 1
        self.retried_shards += manifest["metrics"].get("retries", 0) > 0
        if "cost_billed" in manifest["metrics"]:
            self.priced_shards += 1
            self.priced_decoded += counts["products"] - counts.get("carried", {}).get("products", 0)
        self.rows += counts["rows"]
        self.products += counts["products"]
        self.dead_letters += counts["dead_letters"]
        self.statuses.update(counts["statuses"])
        self.decisions.update(counts.get("decisions", {}))
        self.reasons.update(counts["reasons"])
        self._add_unknown(counts.get("unknown_categories", {}), counts["reasons"].get(ErrorCode.NO_SCHEMA, 0))
        self.carried.update(counts.get("carried", {}))
        self.cascade.update(counts.get("cascade", {}))
        self.metrics.update(manifest["metrics"])

    def _add_unknown(self, names: Mapping[str, int], num_rows: int) -> None:
        """Add the names of `num_rows` rows; some names may have been left out. A column without categories may have as
        many names as rows: only the most frequent are kept."""
        self.unknown_categories_are_least |= sum(names.values()) < num_rows
        self.unknown_categories.update(names)
        if len(self.unknown_categories) > 20 * MAX_UNKNOWN_CATEGORIES:
            kept = self.unknown_categories.most_common(10 * MAX_UNKNOWN_CATEGORIES)
            self.unknown_categories, self.unknown_categories_are_least = Counter(dict(kept)), True

    @property
    def decoded(self) -> int:
        """Products that this run decoded, at least in part; the others were carried over and cost nothing."""
        return self.products - self.carried["products"]

    @property
    def usd_per_1k(self) -> float | None:
        """Dollars billed for 1,000 decoded products; None without a price."""
        return self.metrics["cost_billed"] / self.priced_decoded * 1000 if self.priced_decoded else None

    @property
    def retries(self) -> str:
        """Retries in words."""
        return retries_text(int(self.metrics["retries"]), self.retried_shards)

    @property
    def dead_letter_share(self) -> float:
        """Share of dead-lettered rows among all rows."""
        return self.dead_letters / self.rows if self.rows else 0.0

    def discrepancy(self, planned_shards: int, planned_rows: int) -> str | None:
        """Return what does not add up (in = extracted + dead-lettered, all as planned); None if everything does."""
        if self.shards != planned_shards:
            return f"{planned_shards} shards were planned, {self.shards} are committed"
        if self.rows != planned_rows:
            return f"{planned_rows} rows were planned, {self.rows} went in"
        if self.rows != self.products + self.dead_letters:
            return f"{self.rows} rows went in, {self.products} products and {self.dead_letters} dead letters came out"
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for the manifest and for programs."""
        data = {each.name: getattr(self, each.name) for each in fields(self)}
        data["unknown_categories"] = Counter(dict(self.unknown_categories.most_common(MAX_UNKNOWN_CATEGORIES)))
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in data.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Totals:
        """Rebuild from `to_dict`."""
        known = {**_OF_OLDER_RUNS, **data}
        stored: dict[str, Any] = {
            each.name: Counter(value) if isinstance(value := known[each.name], Mapping) else value
            for each in fields(cls)
        }
        return cls(**stored)
