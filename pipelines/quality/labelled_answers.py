"""A run's values with what gold says of each: what a calibration is learned from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpd_core import Attribute
from pipelines.confidence.answer_features import features_of
from pipelines.confidence.labelled_answer import LabelledAnswer
from pipelines.quality.gold import GoldProduct
from pipelines.quality.scoring import Answer, Outcome, judge

Row = Mapping[str, Any]


def judged_answers(
    product: str, answers: Mapping[str, Sequence[Row]], asked: Mapping[str, Attribute], gold: GoldProduct
) -> Iterator[LabelledAnswer]:
    """The values of one product that gold has a label for: right as `hpd evaluate` counts exactly.

    Args:
        product: its name in the result.
        answers: by attribute, the rows of the attribute table, each with its category.
        asked: the attributes of its schema.
    """
    for name, label in gold.values.items():
        rows, attribute = answers.get(name), asked.get(name)
        if not rows or attribute is None or rows[0]["status"] != "value":
            continue
        items = tuple(row["value_raw"] for row in rows if row["value_raw"] is not None)
        outcome = judge(label, Answer("value", items), attribute=attribute, fields=gold.fields)
        yield LabelledAnswer(product, features_of(rows[0], attribute, *rows[1:]), outcome is Outcome.VC)
