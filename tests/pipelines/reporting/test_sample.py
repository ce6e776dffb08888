"""The sample of products: the least certain first, every category in it, and what is said of each value."""

from __future__ import annotations

import math
from pathlib import Path

from pipelines.reporting.page import render_json
from pipelines.reporting.report_facts import Facts
from pipelines.reporting.sample import draw
from pipelines.reporting.table_scan import Scored
from tests.pipelines.reporting.reports import change_answers, facts_of


def test_least_certain_first(facts: Facts) -> None:
    lowest = [product.lowest for product in facts.sample.products]
    assert lowest == sorted(lowest, key=lambda each: each or 0)
    first = facts.sample.products[0]
    assert first.category == "Shoes"
    assert [value.attribute for value in first.values] == ["Brand", "Vegan", "Colour"]
    brand, vegan, colour = first.values
    assert brand.is_ungrounded
    assert (vegan.places, vegan.is_ungrounded) == (None, False), "a conclusion stands nowhere"
    assert [place.match for place in colour.places or ()] == ["exact"]
    assert facts.sample.products[-1].values[-1].status == "absent"


def test_a_probability_that_is_no_number_is_not_known(run: Path) -> None:
    change_answers(run, logprob_mean=math.nan)
    facts = facts_of(run)
    assert {value.probability for product in facts.sample.products for value in product.values} == {None}
    assert "NaN" not in render_json(facts)


def scored(count: int, category: str, start: int = 0) -> list[Scored]:
    return [Scored("f", start + n, category, (n * 7919 % count) / count, n % 3 == 0, n % 50 == 0) for n in range(count)]


def test_the_sample_is_bounded_and_each_category_is_in_it() -> None:
    products = [*scored(5000, "large"), *scored(3, "small", 10_000), *scored(40, "middle", 20_000)]
    drawn = draw(products, 60, seed=1)
    assert len(drawn) == 60
    assert {each.scored.category for each in drawn} == {"large", "small", "middle"}
    assert {each.why for each in drawn} == {"least certain", "ungrounded", "failed", "random"}
    assert min(products, key=lambda each: each.lowest) in [each.scored for each in drawn]
    assert drawn == draw(reversed(products), 60, seed=1), "whatever the order"
    assert drawn != draw(products, 60, seed=2)
    assert len(draw(products, 10_000, seed=1)) == len(products)
    assert draw(products, 0, seed=1) == draw([], 10, seed=1) == []
