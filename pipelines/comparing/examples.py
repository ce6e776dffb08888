"""Answers that differ, with the places in the text where each stands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.comparing.joining import Place, Sampled
from pipelines.comparing.sides import Side
from pipelines.runs import answer_probability

Right = Literal["a", "b", "both", "neither"]

_COLUMNS = (
    *("source_file", "source_row", "attribute", "value_index", "value_raw", "status"),
    *("evidence", "num_tokens", "logprob_mean", "carried_from"),
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A place in the product's text; `start` and `end` count code points in the field."""

    field: str
    start: int
    end: int
    text: str
    match: str


@dataclass(frozen=True, slots=True)
class Item:
    """A value, or what the model wrote where it is no valid one; None where it wrote nothing.

    Attributes:
        evidence: the places where it stands; empty: nowhere in the text; None: there is no value to look for.
    """

    text: str | None
    evidence: Sequence[Evidence] | None

    @property
    def is_ungrounded(self) -> bool:
        """Whether it is a value that stands nowhere in the text."""
        return self.evidence is not None and not self.evidence


@dataclass(frozen=True, slots=True)
class Answered:
    """A run's answer, in full.

    Attributes:
        probability: the model's own, of the whole answer; None if the run does not have it.
        carried_from: the earlier run that decoded it, if this one did not.
    """

    status: str
    items: Sequence[Item]
    probability: float | None
    carried_from: str | None


@dataclass(frozen=True, slots=True)
class Example:
    """An attribute that the two runs answer differently. `gold` and `right` are None where there is no label."""

    product_id: str
    category: str
    attribute: str
    a: Answered
    b: Answered
    gold: str | None = None
    right: Right | None = None


def read_examples(a: Side, b: Side, sampled: Sequence[Sampled]) -> list[Example]:
    """The sampled answers in full, in the same order. Raises `UsageError` if their parts cannot be read."""
    answers_a = _read(a, [(each.a, each.attribute) for each in sampled])
    answers_b = _read(b, [(each.b, each.attribute) for each in sampled])
    return [
        Example(
            each.product_id,
            each.category,
            each.attribute,
            answers_a[each.a, each.attribute],
            answers_b[each.b, each.attribute],
        )
        for each in sampled
    ]


def _read(side: Side, wanted: Sequence[tuple[Place, str]]) -> dict[tuple[Place, str], Answered]:
    by_part: dict[str, list[tuple[Place, str]]] = defaultdict(list)
    for place, attribute in wanted:
        by_part[place.part].append((place, attribute))
    found = {}
    for part, places in by_part.items():
        table = side.read("attributes", part, _COLUMNS)
        numbers = pa.array(sorted({place.key.source_row for place, _ in places}), pa.int64())
        rows: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
        for row in table.filter(pc.is_in(table["source_row"], numbers)).to_pylist():
            rows[row["source_file"], row["source_row"], row["attribute"]].append(row)
        for place, attribute in places:
            found[place, attribute] = _answered(rows[*place.key, attribute])
    return found


def _answered(rows: list[dict[str, Any]]) -> Answered:
    rows = sorted(rows, key=lambda row: row["value_index"])
    first = rows[0]
    return Answered(
        first["status"],
        [
            Item(row["value_raw"], None if row["evidence"] is None else [Evidence(**each) for each in row["evidence"]])
            for row in rows
        ],
        answer_probability(first["num_tokens"], first["logprob_mean"]),
        first["carried_from"],
    )
