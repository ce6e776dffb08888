"""Which answers are taken where a run has decided, and where it has not."""

from __future__ import annotations

import math

import pyarrow as pa

from pipelines.exporting.acceptance import FOR_REVIEW, NO_CONFIDENCE, Acceptance


def answers(decision: str | None, confidence: float | None) -> pa.Table:
    columns = {"category": "Shoes", "attribute": "Brand", "status": "value", "norm_status": "ok"}
    rows = [{**columns, "logprob_mean": -0.1, "confidence": confidence, "decision": decision}]
    schema = {**dict.fromkeys(columns, pa.string()), "logprob_mean": pa.float64(), "confidence": pa.float64()}
    return pa.Table.from_pylist(rows, pa.schema({**schema, "decision": pa.string()}))


def test_a_value_without_a_decision_is_for_review_in_a_run_that_has_decided() -> None:
    assert Acceptance({}).reasons(answers(None, None)).to_pylist() == [None]
    assert Acceptance({}, has_decided=True).reasons(answers(None, None)).to_pylist() == [FOR_REVIEW]
    assert Acceptance({}, has_decided=True).reasons(answers("accept", None)).to_pylist() == [None]


def test_a_confidence_that_is_no_number_is_none() -> None:
    assert Acceptance({}, min_confidence=0.5).reasons(answers(None, math.nan)).to_pylist() == [NO_CONFIDENCE]
