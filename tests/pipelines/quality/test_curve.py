"""F1 against cost over thresholds, on made-up judgements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.quality.both_answers import NEVER, AskedAnswer, BothJudged
from pipelines.quality.curve import AskedProduct, Costs, Curve, TokenRates, f1_at, make_curve
from pipelines.quality.scoring import AnswerOutcome, count

VC, VW, VN = int(AnswerOutcome.VC), int(AnswerOutcome.VW), int(AnswerOutcome.VN)

labels = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(AnswerOutcome),
        st.sampled_from(AnswerOutcome),
        st.floats(0, 1) | st.just(NEVER),
    ),
    min_size=1,
    max_size=30,
)


def judged(rows: list[tuple[int, int, int, float]]) -> BothJudged:
    products, first, larger, certainty = (np.array(column) for column in zip(*rows, strict=True))
    return BothJudged(products, first, larger, certainty.astype(float), int(products.max()) + 1)


@given(labels, st.floats(0, 1))
def test_f1_is_that_of_the_answers_that_would_stand(
    rows: list[tuple[int, AnswerOutcome, AnswerOutcome, float]], below: float
) -> None:
    (found,) = f1_at(judged(rows), [below])  # type: ignore[arg-type]
    stand = [
        larger if certainty < below or (below >= 1 and certainty != NEVER) else first
        for _, first, larger, certainty in rows
    ]
    assert found.value == pytest.approx(count(stand).rates.f1)
    assert found.low <= found.high


answers = st.lists(st.builds(AskedAnswer, st.floats(0, 1), st.integers(1, 30)), min_size=1, max_size=8)


@given(st.lists(st.tuples(answers, st.integers(1, 400)), min_size=1, max_size=8), st.floats(0, 1), st.floats(0, 1))
def test_the_larger_models_seconds_grow_with_the_threshold(
    products: list[tuple[list[AskedAnswer], int]], one: float, two: float
) -> None:
    """By tokens: a text once, and a key of 3 tokens, 5 to score it and its answer for each attribute that is asked."""
    per_token, keys, scored = 0.01, 3, 5
    own = keys + scored
    found = [
        AskedProduct(per_token * (text + sum(own + each.num_tokens for each in asked)), asked)
        for asked, text in products
    ]
    metrics = [
        {
            "document_tokens": sum(text for _, text in products),
            "key_tokens": keys * sum(len(asked) for asked, _ in products),
            "value_tokens": sum(each.num_tokens for asked, _ in products for each in asked),
            "scored_tokens": scored * sum(len(asked) for asked, _ in products),
        }
    ]
    rates = TokenRates.of(found, metrics)
    low, high = sorted((one, two))
    for product, (asked, text) in zip(found, products, strict=True):
        assert rates.seconds_at(product, 0.0) == 0.0
        assert rates.seconds_at(product, 1.0) == pytest.approx(product.seconds)
        assert rates.seconds_at(product, low) <= rates.seconds_at(product, high) + 1e-9
        wanted = [each for each in asked if each.certainty < high or high >= 1]
        expected = per_token * (text + sum(own + each.num_tokens for each in wanted)) if wanted else 0.0
        assert rates.seconds_at(product, high) == pytest.approx(expected)


def costs(hours: float, usd: float | None = None) -> Costs:
    return Costs((hours, hours, hours), None if usd is None else (usd, usd, usd), 0.5)


def example(*, larger_hours: float) -> Curve:
    """The first model is right where it is sure."""
    rows = [(n, VC if n >= 4 else VW, VC if n < 9 else VN, n / 10) for n in range(10)]
    return make_curve(
        judged(rows),
        "gold.jsonl",
        [0.2, 0.4, 1.0],
        lambda below: costs(1 + larger_hours * below),
        costs(1),
        costs(larger_hours),
    )


def test_the_cheapest_way_to_an_f1_is_proposed() -> None:
    curve = example(larger_hours=10)
    assert [round(point.f1.value, 2) for point in curve.points] == [0.8, 1.0, 0.95]
    assert curve.first.f1.value == pytest.approx(0.6)
    assert curve.reaching(0.5) == curve.first
    assert curve.reaching(0.7) == curve.points[0]
    assert curve.reaching(0.9) == curve.points[1] == curve.best
    # A larger model that costs no more than the first one is better alone.
    assert example(larger_hours=0.5).reaching(0.9) == example(larger_hours=0.5).larger
    assert example(larger_hours=10).reaching(1.01) is None
