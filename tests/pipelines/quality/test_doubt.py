"""Which answers are asked again."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpd_core import RecordResult, Value
from pipelines.quality.both_answers import certainty, doubtful
from tests.tables import table

STATUSES = ("value", "absent", "truncated", "invalid")
shares = st.floats(0, 1)
values = st.builds(
    lambda status, probability, tokens, mean: Value(
        "x" if status == "value" else None,
        ("x",) if status == "value" else (),
        status,
        num_tokens=tokens,
        logprob_mean=mean,
        probability=probability,
    ),
    st.sampled_from(STATUSES),
    st.none() | shares,
    st.integers(1, 9),
    st.none() | st.floats(-9, 0),
)


@given(st.dictionaries(st.text(max_size=3), st.tuples(values, st.none() | shares), max_size=6), shares, shares)
def test_a_higher_threshold_asks_for_more(
    answers: dict[str, tuple[Value, float | None]], one: float, two: float
) -> None:
    result = RecordResult("1", "c", {name: value for name, (value, _) in answers.items()})
    confidences = {name: confidence for name, (_, confidence) in answers.items()}
    low, high = sorted((one, two))
    fewer, more = doubtful(result, confidences, low), doubtful(result, confidences, high)
    assert fewer.items() <= more.items()
    assert doubtful(result, confidences, 0.0) == {}
    assert doubtful(result, confidences, 1.0) == confidences
    assert all(confidences[name] == confidence for name, confidence in more.items())


def test_confidence_counts_before_the_models_own_probability() -> None:
    value = Value("x", ("x",), "value", num_tokens=2, logprob_mean=math.log(0.5), probability=0.9)
    assert certainty(value, 0.2) == 0.2
    assert certainty(value, None) == 0.9
    unscored = Value("x", ("x",), "value", num_tokens=2, logprob_mean=math.log(0.5))
    assert certainty(unscored, None) == pytest.approx(0.25)
    assert certainty(Value(None, (), "value"), None) == 0.0


@table("status", ["truncated", "invalid"])
def test_what_is_no_answer_is_asked_again_however_probable(status: str) -> None:
    value = Value(None, (), status, num_tokens=1, logprob_mean=0.0, probability=1.0)  # type: ignore[arg-type]
    assert certainty(value, None) == 0.0
    assert doubtful(RecordResult("1", "c", {"a": value}), {}, 0.01) == {"a": None}
