"""Prices before paying: strata, draws, the estimate and what is derived from it, without an engine."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.config.extraction import JobConfig
from pipelines.config.loading import parse_config
from pipelines.config.operation import CostConfig
from pipelines.costing.backtest import SHARES, backtest
from pipelines.costing.estimate import FloatArray, Measurements, estimate, student_t
from pipelines.costing.forecast import CategoryForecast, Forecast, Interval, Price
from pipelines.costing.forecast_builder import _combined, _measurements
from pipelines.costing.machines import (
    assumed_seconds,
    find_gpu,
    gpu_table,
    is_same_gpu,
    planned_price,
    rate_text,
    work_per_row,
)
from pipelines.costing.pilot import MeasuredRun, Pilot
from pipelines.costing.pilot_rows import MIN_ROWS, Draw, draw_rows
from pipelines.costing.scenarios import deadlines, sensitivity
from pipelines.costing.second_pilot import check_second, second_draw
from pipelines.costing.strata import allocate, make_strata
from pipelines.costing.survey import Candidate, Cell, CellCount, Survey, band, row_number
from pipelines.errors import UsageError
from pipelines.job.prices import price_table, usd_per_1k
from tests.examples import examples


@dataclass(frozen=True)
class Population:
    """A catalog whose every row's cost is known."""

    categories: Sequence[str]
    text_bytes: Sequence[int]
    seconds: FloatArray

    @classmethod
    def make(cls, num_rows: int, num_categories: int, rng: np.random.Generator) -> Population:
        """Few large categories and many small ones; long-tailed lengths; a cost that a length explains in part."""
        shares = 1 / np.arange(1, num_categories + 1) ** 1.1
        category = rng.choice(num_categories, size=num_rows, p=shares / shares.sum())
        lengths = np.exp(rng.normal(rng.normal(6, 0.7, num_categories)[category], 0.6)).astype(int) + 5
        per_row = rng.uniform(0.5, 3, num_categories)[category]
        seconds = (per_row + lengths / 200) * rng.lognormal(0, 0.4, num_rows)
        return cls([f"c{index}" for index in category], lengths.tolist(), seconds)

    def survey(self, seed: int, keep: int) -> Survey:
        cells: dict[Cell, CellCount] = {}
        for row, (category, size) in enumerate(zip(self.categories, self.text_bytes, strict=True)):
            cell = cells.setdefault(Cell(category, band(size)), CellCount())
            cell.rows += 1
            cell.text_bytes += size
            cell.candidates.append(Candidate(row_number(seed, "c", row), 0, row, size, category))
        for cell in cells.values():
            cell.candidates = sorted(cell.candidates)[:keep]
        return Survey(cells, Counter())

    def measure(self, draw: Draw, names: Sequence[str], batch_factors: FloatArray) -> Measurements:
        counts = np.zeros((len(draw.strata_rows), draw.num_batches))
        seconds = np.zeros_like(counts)
        for row in draw.rows:
            counts[row.stratum, row.batch] += 1
            seconds[row.stratum, row.batch] += self.seconds[row.row] * batch_factors[row.batch]
        measured = list(draw.measured_batches)
        rows = np.array([[float(stratum.get(name, 0)) for stratum in draw.strata_rows] for name in names])
        return Measurements(counts[:, measured], seconds[:, measured], rows)


@pytest.mark.full
@pytest.mark.parametrize(("num_rows", "num_categories"), [(2000, 12), (5000, 40)])
def test_the_interval_covers_the_truth_as_often_as_it_says(num_rows: int, num_categories: int) -> None:
    """Pilots of 1%, 5% and 10%, on a machine whose speed changes from batch to batch."""
    population = Population.make(num_rows, num_categories, np.random.default_rng(7))
    survey = population.survey(0, num_rows)
    seconds = {(0, row): float(cost) for row, cost in enumerate(population.seconds)}
    for share in SHARES:
        found = backtest(survey, seconds, share, 200, lambda generator: float(generator.lognormal(0, 0.05)))
        assert found is not None
        # 95% of 200 are 190, and a few less of small pilots with skewed costs; fewer than 178 of 188 would be seen once
        # in a hundred times. More is no fault: a tenth of a catalog is no small sample.
        assert found.num_covered >= 178, found
        assert abs(found.mean_error) < 4 * found.rms_error / math.sqrt(200), "biased"
    assert backtest(survey, seconds, 10 / num_rows, 1) is None


def test_a_stratified_draw_is_better_than_chance() -> None:
    rng = np.random.default_rng(3)
    population = Population.make(3000, 15, rng)
    ours, plain = [], []
    for seed in range(40):
        draw = draw_rows(make_strata(population.survey(seed, 150), 150), 150, seed)
        names = sorted({name for rows in draw.strata_rows for name in rows})
        ours.append(estimate(population.measure(draw, names, np.ones(draw.num_batches))).total.estimate)
        plain.append(rng.choice(population.seconds, 136, replace=False).mean() * 3000)
    assert np.std(ours) < 0.8 * np.std(plain)


def test_the_estimate_by_hand() -> None:
    counts = np.array([[2.0, 2.0], [1.0, 1.0]])
    seconds = np.array([[2.0, 6.0], [5.0, 7.0]])
    rows = np.array([[100.0, 0.0], [0.0, 10.0]])
    found = estimate(Measurements(counts, seconds, rows))
    # Means 2 and 6. Without the first batch 3 and 7, without the second 1 and 5: 370 and 150 around 260.
    assert found.total.estimate == pytest.approx(260)
    half = 12.706 * math.sqrt(0.5 * (110**2 + 110**2))
    assert found.total == Interval(260.0, 0.0, pytest.approx(260 + half))  # type: ignore[arg-type]
    assert [each.estimate for each in found.by_category] == pytest.approx([200, 60])


@pytest.mark.parametrize("counts", [[[1.0, 1.0], [0.0, 0.0]], [[2.0], [1.0]]])
def test_an_estimate_needs_every_stratum_and_two_batches(counts: list[list[float]]) -> None:
    array = np.array(counts)
    with pytest.raises(ValueError, match="every stratum needs a product"):
        estimate(Measurements(array, array, np.ones((1, 2))))


def test_students_quantiles() -> None:
    assert [student_t(degrees) for degrees in (1, 2, 19, 30, 35, 60, 100000)] == [
        *(12.706, 4.303, 2.093, 2.042, 2.042, 2.000, 1.980)
    ]


@settings(max_examples=examples(300))
@given(
    st.lists(st.tuples(st.floats(0, 1e9), st.integers(0, 50)), min_size=1, max_size=30),
    st.integers(0, 400),
    st.integers(0, 4),
)
def test_an_allocation_takes_what_there_is(pairs: list[tuple[float, int]], num_draws: int, least: int) -> None:
    weights, available = [weight for weight, _ in pairs], [limit for _, limit in pairs]
    draws = allocate(weights, available, num_draws, least)
    assert all(0 <= taken <= limit for taken, limit in zip(draws, available, strict=True))
    assert all(taken >= min(least, limit) for taken, limit in zip(draws, available, strict=True))
    minimum = sum(min(least, limit) for limit in available)
    assert sum(draws) == max(minimum, min(num_draws, sum(available)))


def test_an_allocation_follows_the_weights() -> None:
    assert allocate([1, 2, 7], [1000] * 3, 100, 2) == pytest.approx([10, 20, 70], abs=1)
    assert allocate([1, 1], [3, 1000], 100, 2) == [3, 97], "what one has not, the other gives"


cells = st.dictionaries(
    st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 6)), st.integers(1, 40), min_size=1, max_size=30
)


def _survey(sizes: dict[tuple[str, int], int]) -> Survey:
    counts, row = {}, 0
    for (category, level), num_rows in sizes.items():
        candidates = [Candidate(row_number(1, "f", row + n), 0, row + n, 4**level, category) for n in range(num_rows)]
        counts[Cell(category, level)] = CellCount(num_rows, num_rows * 4**level, sorted(candidates))
        row += num_rows
    return Survey(counts, Counter())


@settings(max_examples=examples(200))
@given(cells, st.integers(MIN_ROWS, 300), st.integers(0, 3))
def test_every_row_is_in_one_stratum_and_every_stratum_is_measured_twice(
    sizes: dict[tuple[str, int], int], num_draws: int, seed: int
) -> None:
    survey = _survey(sizes)
    strata = make_strata(survey, num_draws)
    by_category: Counter[str] = Counter()
    for stratum in strata:
        by_category.update(stratum.rows)
        assert stratum.category is None or set(stratum.rows) == {stratum.category}
        assert stratum.num_rows == len(stratum.candidates)
    expected: Counter[str] = Counter()
    for (category, _), count in sizes.items():
        expected[category] += count
    assert by_category == expected
    if sum(sizes.values()) < MIN_ROWS:
        with pytest.raises(UsageError, match="the catalog has"):
            draw_rows(strata, num_draws, seed)
        return
    draw = draw_rows(strata, num_draws, seed)
    places = [(row.file, row.row) for row in draw.rows]
    assert len(set(places)) == len(places) == max(min(num_draws, len(by_category) and by_category.total()), len(places))
    assert [row.batch for row in draw.rows] == sorted(row.batch for row in draw.rows)
    measured = Counter(row.stratum for row in draw.rows if row.batch in draw.measured_batches)
    for index, stratum in enumerate(strata):
        assert measured[index] >= min(2, stratum.num_rows)
    assert Draw.from_dict(json.loads(json.dumps(draw.to_dict()))) == draw


def test_rare_categories_are_pooled_and_the_others_are_not() -> None:
    sizes = {("large", 3): 900, ("medium", 3): 90, **{(f"rare{n}", 3): 1 for n in range(30)}}
    strata = make_strata(_survey(sizes), 100)
    assert {stratum.category for stratum in strata} == {"large", "medium", None}
    draw = draw_rows(strata, 100, 0)
    assert draw.pooled == sorted(f"rare{n}" for n in range(30))


def test_a_second_draw_takes_other_rows_where_they_are_wanted() -> None:
    strata = make_strata(_survey({("a", 3): 500, ("b", 3): 500}), 60)
    first = draw_rows(strata, 60, 0)
    taken = [sum(row.stratum == index for row in first.rows) for index in range(len(strata))]
    second = draw_rows(strata, 60, 1, [0.0, 1.0], taken)
    assert not {row.row for row in first.rows} & {row.row for row in second.rows}
    assert Counter(row.category for row in second.rows)["b"] > 50


@pytest.mark.parametrize("spread", [0.4, 1.2])
def test_two_pilots_are_no_more_biased_than_one(spread: float) -> None:
    """With long-tailed costs a first pilot often misses a tail; a second must not make a rule of it."""
    generator = np.random.default_rng(11)
    plain = Population.make(2000, 12, generator)
    population = replace(plain, seconds=plain.seconds * generator.lognormal(0, spread, 2000))
    truth, errors = float(population.seconds.sum()), []
    for seed in range(60):
        strata = make_strata(population.survey(seed, 300), 60)
        first = Pilot({}, 2000, 1, {}, draw_rows(strata, 60, seed))
        run = MeasuredRun({n: float(population.seconds[row.row]) for n, row in enumerate(first.draw.rows)}, [], {})
        second = Pilot({}, 2000, 1, {}, second_draw(strata, first, run, 100, seed))
        then = MeasuredRun({n: float(population.seconds[row.row]) for n, row in enumerate(second.draw.rows)}, [], {})
        assert not {row.row for row in first.draw.rows} & {row.row for row in second.draw.rows}
        names = sorted(set(population.categories))
        found = _combined(
            [
                (len(pilot.draw.rows), estimate(measured))
                for pilot, measured in _measurements([(first, run), (second, then)], names)
            ]
        )
        errors.append(found.total.estimate / truth - 1)
    assert abs(np.mean(errors)) < 3 * np.std(errors) / math.sqrt(60)


def test_a_second_pilot_that_cannot_be_drawn() -> None:
    strata = make_strata(_survey({(name, 3): 60 for name in "abcdefghijklmno"}), 300)
    with pytest.raises(UsageError, match="--second-pilot 10 says nothing"):
        check_second(strata, 300, 10)
    with pytest.raises(UsageError, match="there are 15 strata, take at least 30 rows"):
        check_second(strata, 300, 25)
    with pytest.raises(UsageError, match="the first one takes 890 of 900 rows"):
        check_second(strata, 890, 40)
    check_second(strata, 300, 30)


def test_a_pilot_of_a_few_rows_is_refused() -> None:
    with pytest.raises(UsageError, match="a pilot of 5 rows says nothing; take at least 20"):
        draw_rows(make_strata(_survey({("a", 1): 100}), 5), 5, 0)


def test_a_rows_number_depends_on_seed_file_and_row_alone() -> None:
    numbers = {row_number(seed, file, row) for seed in (0, 1) for file in ("a", "b") for row in range(1000)}
    assert len(numbers) == 4000
    assert row_number(0, "a", 7) == row_number(0, "a", 7)
    assert 0.45 < np.mean([number / 2**64 for number in numbers]) < 0.55


# What is derived from a forecast.


def forecast(**changes: object) -> Forecast:
    plain = Forecast(
        basis="pilot",
        source="runs/x.pilot",
        created_at="2026-11-21T00:00:00+00:00",
        model="m",
        device="NVIDIA L40S",
        rows=1_000_000,
        dead_rows=0,
        sampled=2000,
        num_batches=20,
        seed=0,
        text_bytes=250.0,
        sampled_text_bytes=251.0,
        work_hours=Interval(76.0, 66.5, 85.5),
        prefix_hours=0.0,
        load_seconds=360.0,
        utilisation=0.95,
        utilisation_source="assumed",
        engines=8,
        price=Price(3.0, "configuration", "g6e.48xlarge", "spot", 8),
        categories=[CategoryForecast("Shoes", 1_000_000, 2000, Interval(76.0, 66.5, 85.5))],
        tokens={"document": 60.0, "key": 30.0, "value": 10.0},
        bytes_effect=0.5,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_the_price_by_hand() -> None:
    found = forecast()
    assert found.fixed_hours == pytest.approx(8 * 0.1)
    assert found.billed_hours == Interval(*map(pytest.approx, (80.8, 70.8, 90.8)))
    assert found.wall_hours.estimate == pytest.approx(10.1)
    assert found.usd is not None
    assert found.usd.estimate == pytest.approx(242.4)
    assert found.usd_per_1k is not None
    assert found.usd_per_1k.high == pytest.approx(0.2724)
    half_dead = forecast(dead_rows=500_000).usd_per_1k
    assert half_dead is not None
    assert half_dead.estimate == pytest.approx(2 * 0.2424), "of those that can be extracted"


def test_the_papers_prices() -> None:
    """$30.13 an hour for 8 GPUs: 6.28 products/s a GPU is $0.167 per 1,000, 0.77 is $1.36; $597,000 on 500 million."""
    node = price_table()["g6e.48xlarge"]
    assert node.on_demand is not None
    hpd, ar = (
        forecast(
            rows=500_000_000,
            work_hours=Interval(*[500_000_000 / rate / 3600] * 3),
            load_seconds=0.0,
            utilisation=1.0,
            price=Price(node.on_demand / node.gpu_count, "table", node.instance_type, "on-demand", node.gpu_count),
        )
        for rate in (6.28, 0.77)
    )
    assert hpd.usd_per_1k is not None
    assert ar.usd_per_1k is not None
    assert round(hpd.usd_per_1k.estimate, 3) == 0.167 == round(usd_per_1k(30.13 / 8, 6.28), 3)
    assert round(ar.usd_per_1k.estimate, 2) == 1.36
    assert hpd.usd is not None
    assert ar.usd is not None
    # The paper subtracts the rounded prices: $1.36 - $0.167, times 500,000.
    assert ar.usd.estimate - hpd.usd.estimate == pytest.approx(597_000, rel=0.005)


def test_without_a_price_there_are_hours_and_no_dollars() -> None:
    found = forecast(price=Price(None, None))
    assert (found.usd, found.usd_per_1k) == (None, None)
    assert all(each.usd is None for each in deadlines(found))
    assert all(each.usd is None for each in sensitivity(found))


def test_a_price_of_zero_is_a_price() -> None:
    found = forecast(price=Price(0.0, "configuration"))
    assert found.usd == Interval(0.0, 0.0, 0.0)
    assert found.usd.half_width_share == 0


def test_deadlines_by_hand() -> None:
    short, long, never = deadlines(forecast(), [1.1, 100.0, 0.05])
    # Every engine loads for 0.1 h; 76 / 0.95 = 80 hours of the others are left.
    assert (short.engines, short.engines_safe, short.nodes) == (80, 90, 10)
    assert (long.engines, long.nodes) == (1, 1)
    assert (never.engines, never.usd) == (None, None)
    assert short.usd is not None
    assert short.usd.estimate == pytest.approx(3.0 * (80 + 80 * 0.1))
    assert long.usd is not None
    assert long.usd.estimate == pytest.approx(8 * 3.0 * 80.1), "one engine at work, and a whole node of eight is paid"


@settings(max_examples=examples(100))
@given(st.floats(0.01, 1e5), st.floats(0.2, 1000), st.floats(0.1, 1.0))
def test_the_engines_for_a_deadline_meet_it_and_one_less_would_not(
    work: float, hours: float, utilisation: float
) -> None:
    plan = forecast(work_hours=Interval(work, work, work), utilisation=utilisation)
    (found,) = deadlines(plan, [hours])
    assert found.engines is not None
    assert replace(plan, engines=found.engines).wall_hours.estimate <= hours * (1 + 1e-6)
    if found.engines > 1:
        assert replace(plan, engines=found.engines - 1).wall_hours.estimate > hours * (1 - 1e-6)


def test_sensitivity_by_hand() -> None:
    found = {(each.what, each.change): each for each in sensitivity(forecast())}
    base = forecast().billed_hours.estimate
    assert found["text length", "+20%"].hours == pytest.approx(80 * 1.1 + 0.8)
    assert found["attributes", "-25%"].hours == pytest.approx(80 * 0.9 + 0.8)
    assert found["engines compute", "80% of the time"].hours == pytest.approx(76 / 0.8 + 0.8)
    assert found["price of an hour", "+50%"].hours == base
    assert found["price of an hour", "+50%"].usd == pytest.approx(base * 4.5)


def test_a_forecast_survives_being_stored(tmp_path: Path) -> None:
    path = tmp_path / "forecast.json"
    path.write_bytes(forecast().to_json())
    assert Forecast.read(str(path)) == forecast()
    assert json.loads(path.read_text())["derived"]["usd"]["estimate"] == pytest.approx(242.4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no forecast in"),
        ("{", "cannot read"),
        ("[]", "is no forecast"),
        ('{"version": 1}', "is no forecast"),
        ('{"version": 0}', "another version"),
    ],
)
def test_what_is_no_forecast(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "f.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=message):
        Forecast.read(str(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dead_rows": 1000}, "none of its 1000 rows can be extracted"),
        ({"utilisation": 0}, "utilisation"),
        ({"utilisation": 1.5}, "utilisation"),
        ({"engines": 0}, "engines"),
        ({"price": {"usd_per_hour": 1.0, "source": None, "engines_per_node": 0}}, "price.engines_per_node"),
        ({"price": {"usd_per_hour": math.inf, "source": None}}, "price.usd_per_hour"),
        ({"work_hours": {"estimate": "a", "low": 0, "high": 1}}, "work_hours.estimate"),
        ({"work_hours": {"estimate": math.nan, "low": 0, "high": 1}}, "work_hours.estimate"),
        ({"work_hours": {"estimate": 2, "low": 0, "high": 1}}, "outside its interval"),
        ({"work_hours": 5}, "work_hours"),
        ({"created_at": None}, "created_at"),
        ({"tokens": {"document": None}}, "tokens.document"),
        ({"categories": [{"category": "Tea"}]}, "categories.0"),
    ],
)
def test_a_forecast_with_odd_values_is_none(changes: dict[str, Any], message: str) -> None:
    data = json.loads(forecast().to_json()) | {"rows": 1000, "dead_rows": 0} | changes
    with pytest.raises(UsageError, match=message) as raised:
        Forecast.from_json(data, "f.json")
    assert "\n" not in str(raised.value)


# Machines.


def job(**cost: object) -> JobConfig:
    document = {
        "input": {"path": "x", "fields": ["title"]},
        "schemas": "s",
        "output": "o",
        "actors": {"max": 16},
        "cost": cost,
    }
    return parse_config(JobConfig, document, "job.yaml")


def test_the_price_is_the_configurations_else_what_was_billed() -> None:
    metrics = [{"price_per_hour": 1.5, "price_source": "table", "instance_type": "i", "market": "spot"}]
    assert planned_price(job(), metrics) == Price(1.5, "table", "i", "spot", 16)
    assert planned_price(job(), []) == Price(None, None, None, None, 16)
    node = price_table()["g6e.48xlarge"]
    assert node.spot is not None
    spot = planned_price(job(instance_type="g6e.48xlarge", market="spot"), metrics)
    assert (spot.usd_per_hour, spot.engines_per_node) == (pytest.approx(node.spot / 8), 8)
    dear = planned_price(job(instance_type="g6e.48xlarge"), metrics)
    assert (dear.market, dear.usd_per_hour) == ("on-demand", pytest.approx(node.on_demand / 8))  # type: ignore[operator]
    unknown = planned_price(job(instance_type="mine"), metrics)
    assert (unknown.usd_per_hour, unknown.instance_type) == (None, "mine")
    own = planned_price(job(instance_type="mine", usd_per_hour=32.0), metrics)
    assert own.usd_per_hour == pytest.approx(2.0), "a machine without GPUs is shared by actors.max engines"
    on_gpus = [{"gpu_type": "NVIDIA X", "node_share": 0.125}]
    assert planned_price(job(usd_per_hour=32.0), on_gpus).usd_per_hour == pytest.approx(4.0), (
        "as the pilot's engine was"
    )
    empty = planned_price(job(instance_type="p5e.48xlarge", market="on-demand"), metrics)
    assert empty.usd_per_hour is None, "an empty cell of the table is not guessed"
    assert CostConfig().instance_type is None


def test_work_on_a_machine_that_was_not_measured() -> None:
    size = {"layer_parameters": 8_000_000_000, "head_parameters": 500_000_000, "weight_bytes": 17_000_000_000}
    tokens = {"document": 200.0, "key": 60.0, "value": 40.0}
    work = work_per_row(job(), {"model_size": size}, tokens)
    assert work.flops == pytest.approx(2 * 8e9 * 300 + 2 * 5e8 * 40)
    scored = work_per_row(job(), {"model_size": size}, tokens | {"scored": 50.0})
    assert scored.flops == pytest.approx(work.flops + 2 * (8e9 + 5e8) * 50)
    gpu = find_gpu("g6e.48xlarge")
    assert gpu.name == "L40S"
    assert assumed_seconds(work, gpu, 0.5) == pytest.approx(work.flops / 181e12)
    small_steps = replace(work, steps=1.0)
    assert assumed_seconds(small_steps, gpu, 0.5) == pytest.approx(17e9 / 432e9), "then the weights take longer"
    assert is_same_gpu(gpu, "NVIDIA L40S")
    in_fp8 = work_per_row(job(), {"model_size": size, "quantization": "fp8"}, tokens)
    assert (in_fp8.fp8_flops, in_fp8.flops) == (pytest.approx(2 * 8e9 * 300), pytest.approx(2 * 5e8 * 40))
    expected = (in_fp8.fp8_flops / 733e12 + in_fp8.flops / 362e12) / 0.5
    assert assumed_seconds(in_fp8, gpu, 0.5) == pytest.approx(expected), "the head's are not in FP8"
    assert rate_text(work, gpu) == "362 TFLOP/s"
    assert rate_text(in_fp8, gpu) == "362 TFLOP/s (the layers' at 733, FP8)"
    of_hybrid = work_per_row(job(), {"model_size": size | {"state_operations": 1_000_000_000}}, tokens)
    assert of_hybrid.state_flops == pytest.approx(1e9 * 300)
    expected = (work.flops / 362e12 + 3e11 / 91.6e12) / 0.5
    assert assumed_seconds(of_hybrid, gpu, 0.5) == pytest.approx(expected), "states are in fp32"
    assert rate_text(of_hybrid, gpu) == "362 TFLOP/s (states' at 92, fp32)"
    with pytest.raises(UsageError, match="A100 has no FP8; name a machine that has"):
        assumed_seconds(in_fp8, gpu_table()["A100"], 0.5)
    assert not is_same_gpu(gpu_table()["L4"], "NVIDIA L40S")
    assert is_same_gpu(gpu_table()["A100"], "NVIDIA A100-SXM4-40GB")
    with pytest.raises(UsageError, match="only decoding: hpd"):
        work_per_row(job().model_copy(update={"decoding": "ar"}), {"model_size": size}, tokens)
    with pytest.raises(UsageError, match="how large its model is"):
        work_per_row(job(), {}, tokens)
    with pytest.raises(UsageError, match=r"--on g9\.large: no such machine"):
        find_gpu("g9.large")
    assert {price.gpu for price in price_table().values()} - set(gpu_table()) == {"RTX PRO Server 6000"}
