"""Answers counted by attribute, in each category and over all, with what gold says."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.reporting.answer_facts import total_of
from pipelines.reporting.table_scan import ANSWER_COLUMNS, AnswerSum, AnswerSums, scan_answers
from pipelines.store.tables import TABLES

_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "category": st.sampled_from("ab"),
            "attribute": st.sampled_from("xy"),
            "status": st.sampled_from(["value", "absent", "invalid"]),
            "decision": st.sampled_from(["accept", "review", None]),
            "source": st.sampled_from(["model", "review", None]),
            "confidence": st.none() | st.floats(0, 1),
            "probability": st.none() | st.floats(0, 1),
            "logprob_mean": st.none() | st.just(float("nan")) | st.floats(-5, 0),
            "value_index": st.integers(0, 2),
        }
    ),
    min_size=1,
    max_size=30,
)


@given(rows=_ROWS, cut=st.integers(0, 30))
def test_sums_are_those_of_the_single_answers_whatever_the_parts(rows: list[dict[str, object]], cut: int) -> None:
    schema = pa.schema([TABLES["attributes"].field(name).with_nullable(True) for name in ANSWER_COLUMNS])
    sums = AnswerSums(AnswerSum)
    same = {"source_file": "f", "source_row": 0, "num_tokens": 2}
    parts = [pa.Table.from_pylist([row | same for row in part], schema) for part in (rows[:cut], rows[cut:]) if part]
    assert len(list(scan_answers(parts, sums, set()))) == len(parts)
    first = [row for row in rows if row["value_index"] == 0]
    total = total_of(sums)
    assert total.values + total.absent + total.failed == len(first)
    values = [row for row in first if row["status"] == "value"]
    assert total.accepted == sum(row["decision"] == "accept" for row in values)
    assert total.undecided == sum(row["decision"] is None for row in values)
    assert total.review == sum(row["decision"] == "review" for row in first)
    assert total.corrected == sum(row["source"] == "review" for row in first)
    certain = [_certainty(row) for row in first if row["status"] == "value"]
    assert total.scored == sum(not np.isnan(each) for each in certain)
    assert total.certain == sum(each >= 0.9 for each in certain)
    known = [row["confidence"] for row in first if row["status"] == "value" and row["confidence"] is not None]
    assert total.expected_right == pytest.approx(sum(known))  # type: ignore[arg-type]


def _certainty(row: dict[str, object]) -> float:
    if row["source"] == "review":
        return float("nan")
    if (known := row["confidence"] if row["confidence"] is not None else row["probability"]) is not None:
        return float(known)  # type: ignore[arg-type]
    mean = row["logprob_mean"]
    return float("nan") if mean is None else float(np.exp(2 * mean))  # type: ignore[operator]
